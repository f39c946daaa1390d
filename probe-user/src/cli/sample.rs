//! `probe sample`.

use super::args::{Sample, Target};
use super::aux;
use super::ending::Ending;
use super::file;
use super::print::written;
use super::privileges;
use super::stack::titled;
use anyhow::Result;
use probe_user::Stop;
use probe_user::perf::{
    Event, Flags, Next, Sampler, SamplerBuilder, SamplerCounts, Scope, Software,
};
use probe_user::trace::output::StackFormat;
use probe_user::trace::{SampledWays, Symbols, Whose};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::time::Duration;

/// How long samples may wait before anybody looks at them: processes that they are of are better looked into
/// before they end.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) fn run(args: &Sample) -> Result<ExitCode> {
    let target = Target { command: args.command.clone(), ..Target::default() };
    let ending = Ending::prepare(&target)?;
    let command = ending.command().map(|command| command.pid());
    if let Some(dir) = &args.aux.dir {
        return aux::run(args, dir, ending);
    }
    let mut sampler = builder(args, command).open()?;
    if let Some(error) = sampler.hotplug_error() {
        log::warn!("CPUs that come later are not sampled: {error}");
    }
    // It needs other privileges than the samples do, and keeps them to itself.
    let mut ways = SampledWays::new(Symbols::start(Whose::Processes)?);
    let out: Box<dyn Write> = match &args.output {
        None => Box::new(io::stdout()),
        Some(path) => Box::new(file::create(path)?),
    };
    privileges::give_up_but_for_samples(&sampler, command.is_some())?;
    let begun = ending.begin(args.duration)?;
    if on_exec(args, command).is_empty() {
        sampler.enable()?;
    }
    follow(&mut sampler, begun.stop(), &mut ways)?;
    let counts = sampler.counts()?;
    let printed = print(args, &mut ways, &sampler, out);
    tell(&counts);
    for (cpu, error) in sampler.uncovered() {
        log::warn!("CPU {cpu} has come, and is not sampled: {error}");
    }
    let code = begun.exit_code()?;
    written(printed, "samples")?;
    Ok(code)
}

/// What is sampled. The command is held.
fn builder(args: &Sample, command: Option<u32>) -> SamplerBuilder {
    let builder = Sampler::builder().callchains().bytes_per_ring(args.ring_bytes());
    let builder = match args.count {
        Some(count) => builder.period(count.get()),
        None => builder.frequency(args.freq.get()),
    };
    let tasks = Flags::COMM | Flags::COMM_EXEC | Flags::TASK;
    let flags = tasks | Flags::MMAP | Flags::MMAP2 | on_exec(args, command);
    // What is in the rings is looked at anyway.
    let builder = builder.wake_after_bytes(args.ring_bytes() as u32 / 4).flags(flags);
    events(args).into_iter().fold(builder.scope(scope(args, command)), SamplerBuilder::event)
}

/// Of whom. The command is held.
pub(super) fn scope(args: &Sample, command: Option<u32>) -> Scope {
    match (&args.cpus, command, args.pid, args.tid) {
        (Some(cpus), ..) => Scope::Cpus(cpus.0.clone()),
        _ if args.all_cpus => Scope::System,
        (_, Some(pid), ..) | (_, _, Some(pid), _) if args.per_thread => Scope::Process(pid),
        (_, Some(pid), ..) | (_, _, Some(pid), _) => Scope::ProcessAndChildren(pid),
        (.., Some(tid)) => Scope::Thread(tid),
        _ => Scope::System,
    }
}

/// Has events of a command begin with it; others are switched on.
pub(super) fn on_exec(args: &Sample, command: Option<u32>) -> Flags {
    let is_of_command = command.is_some() && args.cpus.is_none() && !args.all_cpus;
    if is_of_command { Flags::ENABLE_ON_EXEC } else { Flags::empty() }
}

/// What was asked for; else what every machine has.
fn events(args: &Sample) -> Vec<Event> {
    match args.events() {
        events if events.is_empty() => vec![Software::CpuClock.into()],
        events => events,
    }
}

/// Counts samples until something ends it.
fn follow(sampler: &mut Sampler, stop: &Stop, ways: &mut SampledWays) -> Result<()> {
    while !stop.is_stopped() {
        match sampler.next_blocking(Some(LOOK))? {
            Next::Record(record) => ways.record(&record),
            Next::Malformed(error) => log::warn!("{error}"),
            Next::Timeout => {}
            Next::End => return Ok(()),
        }
    }
    sampler.disable()?;
    while let Some(record) = sampler.next_record() {
        match record {
            Ok(record) => ways.record(&record),
            Err(error) => log::warn!("{error}"),
        }
    }
    Ok(())
}

fn print(
    args: &Sample,
    ways: &mut SampledWays,
    sampler: &Sampler,
    out: Box<dyn Write>,
) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let title = titled(sampler.events().iter());
    StackFormat::from(args.format).write(&ways.ways(), &title, &mut out)?;
    out.flush()
}

/// Says what became of every record, on standard error.
fn tell(counts: &SamplerCounts) {
    let SamplerCounts { samples, lost, throttled, malformed, .. } = counts;
    let mut told = format!("probe: {samples} samples, {lost} lost, throttled {throttled} times");
    if *malformed > 0 {
        told += &format!(", {malformed} malformed");
    }
    // Nobody may be there to read it, which is no reason to fail.
    let _ = writeln!(io::stderr(), "{told}");
}
