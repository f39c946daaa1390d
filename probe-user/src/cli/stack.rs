//! `probe stack`.

use super::args::Stack;
use super::ending::{self, Command};
use super::exit::code_of;
use super::print::written;
use super::{ledger, patterns, privileges, progress, ring, symbols};
use anyhow::Result;
use probe_user::trace::output::StackFormat;
use probe_user::trace::{Account, StackCounts, Tracer, TracerBuilder};
use probe_user::{Options, Stop};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

pub(crate) fn run(args: &Stack) -> Result<ExitCode> {
    let probes = &args.probes;
    let stop = Stop::new()?;
    // From here on a signal stops it, in whatever state it is.
    let signals = Signals::new([SIGINT, SIGTERM])?;
    let command = probes.target.hold()?;
    let builder = probes.target.narrow(Tracer::builder(), command.as_ref());
    let builder = probes.probes.iter().cloned().fold(builder, TracerBuilder::probe);
    let builder = patterns::choose(stacks(builder, args), &probes.choice)?
        .options(Options::new().bytes_per_cpu(args.buffer_size.unwrap_or_else(ring::bytes)));
    let mut tracer = builder.attach_with(progress::bar())?;
    patterns::tell(tracer.left_out());
    let symbols = symbols::of(tracer.probes(), false)?;
    privileges::give_up(&tracer, &probes.target, false)?;
    if let Some(pid) = probes.target.pid {
        ending::with_process(pid, stop.clone())?;
    }
    let mut counts = StackCounts::new(tracer.probes().to_vec(), symbols);
    let command = command.map(|command| Command::start(command, stop.clone())).transpose()?;
    ending::with_signals(signals, stop.clone(), command.as_ref().map(Command::pid));
    if let Some(duration) = probes.duration {
        ending::after(duration, stop.clone())?;
    }
    tracer.run(&stop, &mut counts)?;
    let probed = tracer.probes().to_vec();
    let ledger = tracer.close(&mut counts)?;
    let hits = counts.hits();
    let specs: Vec<_> = probes.probes.iter().map(ToString::to_string).collect();
    let ways = print(counts, args.format.into(), &specs.join(" "));
    ledger::tell(&format!("{hits} hits"), &probed, &Account::from(&ledger));
    let status = command.map(Command::wait).transpose()?;
    written(ways, "stacks")?;
    Ok(status.map_or(ExitCode::SUCCESS, code_of))
}

/// Has the stacks told that were asked for: by default, the kernel's.
fn stacks(builder: TracerBuilder, args: &Stack) -> TracerBuilder {
    let builder = builder.stacks_only();
    let builder = if args.user_stack { builder.user_stacks() } else { builder };
    if args.kernel_stack || !args.user_stack { builder.kernel_stacks() } else { builder }
}

/// Prints every way; `title`: what was counted.
pub(crate) fn print(counts: StackCounts, format: StackFormat, title: &str) -> io::Result<()> {
    let mut writer = BufWriter::new(io::stdout());
    format.write(&counts.into_ways(), title, &mut writer)?;
    writer.flush()
}
