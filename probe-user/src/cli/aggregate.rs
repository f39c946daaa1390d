//! Probes whose hits are added up in the kernel until something ends it: a count, or latencies.

use super::args::Aggregate;
use super::ending::{self, Command};
use super::exit::code_of;
use super::patterns;
use anyhow::Result;
use probe_user::Stop;
use probe_user::trace::{LeftOut, TraceError, Tracer, TracerBuilder};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::process::ExitCode;

/// Attaches what the arguments ask for, waits for the end, and then has `tell` print the sum.
pub(crate) fn run<A>(
    args: &Aggregate,
    attach: impl FnOnce(TracerBuilder) -> Result<A, TraceError>,
    left_out: impl FnOnce(&A) -> &[LeftOut],
    tell: impl FnOnce(A) -> Result<()>,
) -> Result<ExitCode> {
    let stop = Stop::new()?;
    // From here on a signal stops it, in whatever state it is.
    let signals = Signals::new([SIGINT, SIGTERM])?;
    let command = args.target.hold()?;
    let builder = args.target.narrow(Tracer::builder(), command.as_ref());
    let builder = args.probes.iter().cloned().fold(builder, TracerBuilder::probe);
    let attached = attach(patterns::choose(builder, &args.choice)?)?;
    patterns::tell(left_out(&attached));
    if let Some(pid) = args.target.pid {
        ending::with_process(pid, stop.clone())?;
    }
    let command = command.map(|command| Command::start(command, stop.clone())).transpose()?;
    ending::with_signals(signals, stop.clone(), command.as_ref().map(Command::pid));
    if let Some(duration) = args.duration {
        ending::after(duration, stop.clone())?;
    }
    stop.wait()?;
    tell(attached)?;
    let status = command.map(Command::wait).transpose()?;
    Ok(status.map_or(ExitCode::SUCCESS, code_of))
}

/// What there was no room to follow, as the end of a sentence.
pub(crate) fn not_followed(tasks: u64) -> String {
    match tasks {
        0 => String::new(),
        _ => format!("; {tasks} tasks not followed, for want of room"),
    }
}
