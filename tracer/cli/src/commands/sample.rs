//! `probe sample`.

use super::aux;
use crate::args::{Sample, TargetArgs};
use crate::output::directory::Sharing;
use crate::output::file::OutputFile;
use crate::output::print::{report, written};
use crate::output::stacks::titled;
use crate::running::ending::{Begun, Ending};
use crate::running::privileges::{self, Running};
use anyhow::Result;
use probe_perf::{Event, Flags, Next, Sampler, SamplerBuilder, SamplerCounts, Software};
use probe_sys::hint::counted;
use probe_tracer::{SampledStacks, Symbols};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::time::Duration;

/// How long samples may wait before they are read: processes should be inspected before they end.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &Sample) -> Result<ExitCode> {
    let out =
        args.output.as_deref().map(|path| OutputFile::open(path, Sharing::forced(args.force)));
    let out = out.transpose()?;
    let (command, user, at_end) = (args.command.clone(), args.user.clone(), args.at_end);
    let target = TargetArgs { command, user, at_end, ..TargetArgs::default() };
    let ending = Ending::prepare(&target)?;
    let command = ending.command().map(|command| command.pid());
    if let Some(dir) = &args.aux.dir {
        return aux::run(args, dir, ending);
    }
    let mut sampler = builder(args, command).open()?;
    if let Some(error) = sampler.hotplug_error() {
        log::warn!("CPUs that come online later are not sampled: {error}");
    }
    // The thread for symbols needs other privileges than sampling, and keeps them to itself.
    let symbols = Symbols::start_for(args.seal.symbol_access(), &args.target(command))?;
    let mut stacks = SampledStacks::new(symbols.interrupted_by(ending.interrupted()));
    if !args.include_self {
        stacks = stacks.without_process(std::process::id());
    }
    let mut out = out.map_or_else(OutputFile::stdout, Ok)?;
    OutputFile::named_by_a_process(&mut [&mut out]);
    privileges::give_up_but_for_samples(
        &sampler,
        out.directory(),
        args.seal,
        Running::of(&args.command),
    )?;
    if args.on_exec(command).is_empty() {
        sampler.enable()?;
    }
    let begun = ending.begin(args.duration)?;
    begun.announce();
    follow(&mut sampler, &begun, &mut stacks)?;
    let counts = sampler.counts()?;
    let printed = print(args, &mut stacks, &sampler, &mut out);
    summarize(&counts, stacks.left_out());
    for (cpu, error) in sampler.uncovered() {
        log::warn!(
            "samples of CPU {cpu} may be missing since it came online or the machine was suspended: {error}"
        );
    }
    written(printed, "samples")?;
    // Before the command, which may go on for long.
    out.finish()?;
    begun.exit_code(false)
}

/// Samples per second, unless the user says otherwise. It is not a divisor of the rates at which programs do things.
const FREQUENCY: u64 = 99;

/// The sampler. `command` is the id of the stopped command.
fn builder(args: &Sample, command: Option<u32>) -> SamplerBuilder {
    let builder = Sampler::builder().callchains().bytes_per_ring(args.buffer_size);
    let builder = match (args.count, args.freq) {
        (Some(count), _) => builder.period(count.get()),
        (None, Some(frequency)) => builder.frequency(frequency.get()),
        (None, None) => builder.frequency(FREQUENCY).each_hit_of_tracepoints(),
    };
    let flags = Flags::COMM | Flags::TASK | args.on_exec(command);
    // Wakeups are only for full rings: the rings are read every [`LOOK`] anyway.
    let bytes = u32::try_from(args.buffer_size / 4).unwrap_or(u32::MAX);
    let builder = builder.wake_after_bytes(bytes).flags(flags);
    events(args).into_iter().fold(builder.target(args.target(command)), SamplerBuilder::event)
}

/// The requested events, or the one that every machine has.
fn events(args: &Sample) -> Vec<Event> {
    match args.events() {
        events if events.is_empty() => vec![Software::CpuClock.into()],
        events => events,
    }
}

/// Counts samples until the trace ends.
fn follow(sampler: &mut Sampler, begun: &Begun, stacks: &mut SampledStacks) -> Result<()> {
    while !begun.stop().is_stopped() {
        read(sampler, stacks, || begun.stop().is_stopped());
        match sampler.next_blocking(Some(LOOK))? {
            Next::Record(record) => stacks.record(&record),
            Next::Malformed(error) => log::warn!("{error}"),
            Next::Timeout => {}
            Next::End => {
                begun.target_exited()?;
                return Ok(());
            }
        }
    }
    sampler.disable()?;
    read(sampler, stacks, || false);
    Ok(())
}

/// Counts the samples that are there, unless the trace ends meanwhile.
fn read(sampler: &mut Sampler, stacks: &mut SampledStacks, is_over: impl Fn() -> bool) {
    while !is_over()
        && let Some(record) = sampler.next_record()
    {
        match record {
            Ok(record) => stacks.record(&record),
            Err(error) => log::warn!("{error}"),
        }
    }
    stacks.caught_up();
}

fn print(
    args: &Sample,
    stacks: &mut SampledStacks,
    sampler: &Sampler,
    out: &mut OutputFile,
) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let title = titled(sampler.events().iter());
    let events = sampler.events();
    let stacks = match events {
        [_] => stacks.stacks(),
        _ => {
            let names = sampler.ids().iter().map(|(&id, &number)| (id, events[number].to_string()));
            stacks.stacks_by_event(&names.collect())
        }
    };
    args.format().write(&stacks, &title, &mut out)?;
    out.flush()
}

/// Reports what became of every record.
fn summarize(counts: &SamplerCounts, of_probe: u64) {
    let SamplerCounts { samples, lost, throttled, malformed, .. } = counts;
    let mut text = format!("{}, {lost} lost", counted(*samples, "sample"));
    if *lost > 0 {
        text += " (a larger ring has more room: -B)";
    }
    if *throttled > 0 {
        text += &format!(", throttled {}", counted(*throttled, "time"));
    }
    if *malformed > 0 {
        text += &format!(", {malformed} malformed");
    }
    if of_probe > 0 {
        text += &format!("; {of_probe} of them of probe itself, left out (--include-self)");
    }
    report(text);
}
