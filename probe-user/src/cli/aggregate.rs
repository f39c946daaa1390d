//! Probes whose hits are added up in the kernel until something ends it: a count, or latencies.

use super::args::Aggregate;
use super::ending::Ending;
use super::patterns;
use anyhow::Result;
use probe_user::trace::{LeftOut, TraceError, TracerBuilder};
use std::process::ExitCode;

/// Attaches what the arguments ask for, waits for the end, and then has `tell` print the sum.
pub(crate) fn run<A>(
    args: &Aggregate,
    attach: impl FnOnce(TracerBuilder) -> Result<A, TraceError>,
    left_out: impl FnOnce(&A) -> &[LeftOut],
    tell: impl FnOnce(A) -> Result<()>,
) -> Result<ExitCode> {
    let ending = Ending::prepare(&args.target)?;
    let attached = attach(args.choose(ending.narrow(&args.target))?)?;
    patterns::tell(left_out(&attached));
    ending.watch(&args.target)?;
    let begun = ending.begin(args.duration)?;
    begun.stop().wait()?;
    tell(attached)?;
    begun.exit_code()
}

/// What there was no room to follow, as the end of a sentence.
pub(crate) fn not_followed(tasks: u64) -> String {
    match tasks {
        0 => String::new(),
        _ => format!("; {tasks} tasks not followed, for want of room"),
    }
}
