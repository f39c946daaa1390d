//! `probe trace`.

use super::args::{Trace, Traced};
use super::follow::{Extent, follow};
use super::output::Output;
use super::progress;
use anyhow::Result;
use probe_user::trace::output::Printer;
use probe_user::trace::{Probe, Symbols, TraceError, Tracer, TracerBuilder};
use signal_hook::consts::SIGXFSZ;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

pub(crate) fn run(args: &Trace, level: log::LevelFilter) -> Result<ExitCode> {
    traced(&args.traced, args.is_ordered(), level, |probes, symbols| {
        Ok(Printer::new(io::stdout(), args.format.into(), probes)
            .time(args.time.into())
            .symbols(symbols)
            .limit(args.traced.max_events))
    })
}

/// Traces, and gives everything to an output.
pub(crate) fn traced<O: Output>(
    args: &Traced,
    is_ordered: bool,
    level: log::LevelFilter,
    open: impl FnOnce(Vec<Probe>, Symbols) -> Result<O>,
) -> Result<ExitCode> {
    // A file that may not grow is an error of the write, instead of the end. The command has the usual.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let Traced { target, duration, sealed, flight, .. } = args;
    let flight = flight.is_wanted().then_some(flight);
    let extent = Extent { target, duration: *duration, is_sealed: *sealed, flight };
    follow(&extent, |builder| attach(args, is_ordered, level, builder), open)
}

fn attach(
    args: &Traced,
    is_ordered: bool,
    level: log::LevelFilter,
    builder: TracerBuilder,
) -> Result<Tracer, TraceError> {
    let mut builder = builder.options(args.options());
    if let Some(level) = level.to_level().filter(|level| *level > log::Level::Warn) {
        builder = builder.log_level(level);
    }
    if is_ordered {
        builder = builder.ordered(None);
    }
    if args.ret {
        builder = builder.calls();
    }
    if let Some(one_in) = args.sample {
        builder = builder.sample(one_in);
    }
    if let Some(per_second) = args.rate {
        builder = builder.rate(per_second);
    }
    for event in args.counters() {
        builder = builder.counter(event);
    }
    if args.kernel_stack {
        builder = builder.kernel_stacks();
    }
    if args.user_stack {
        builder = builder.user_stacks();
    }
    if let Some(latency) = args.longer {
        builder = builder.longer(latency);
    }
    args.choice.probe(&args.probes, builder)?.attach_with(progress::bar())
}
