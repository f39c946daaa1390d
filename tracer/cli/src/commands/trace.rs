//! `probe trace` and `probe record`.

use crate::args::{Record, Trace, Traced};
use crate::output::directory::Sharing;
use crate::output::file::{self, OutputFile};
use crate::output::progress;
use crate::output::{Output, stdout};
use crate::running::follow::{Extent, follow};
use anyhow::{Result, ensure};
use log::{Level, LevelFilter};
use probe_tracer::output::Printer;
use probe_tracer::recording::Recorder;
use probe_tracer::{Probe, Symbols, TraceError, Tracer, TracerBuilder};
use std::process::ExitCode;

pub(crate) fn trace(args: &Trace, level: LevelFilter) -> Result<ExitCode> {
    traced(&args.traced, true, args.is_ordered(), level, |probes, symbols| {
        Ok(Printer::new(stdout(), args.format, shown(probes, args.raw_values))
            .time(args.time)
            .symbols(symbols)
            .limit(args.traced.max_events))
    })
}

/// The probes as their events are printed.
pub(super) fn shown(probes: Vec<Probe>, raw_values: bool) -> Vec<Probe> {
    match raw_values {
        true => probes.into_iter().map(Probe::with_raw_values).collect(),
        false => probes,
    }
}

pub(crate) fn record(args: &Record, level: LevelFilter) -> Result<ExitCode> {
    // Record in the order of each CPU: names are looked up as early as possible, and a replay can sort by time.
    let to_stdout = file::is_stdout(&args.output);
    let file = OutputFile::open(&args.output, Sharing::forced(args.force))?;
    ensure!(!file.is_terminal(), "a recording cannot be written to a terminal; write it to a file");
    traced(&args.traced, to_stdout, false, level, |probes, symbols| {
        // It can be replayed as far as it goes.
        Ok(Recorder::new(file.named()?, probes, symbols).limit(args.traced.max_events))
    })
}

/// Traces, and passes everything to an output.
fn traced<O: Output>(
    args: &Traced,
    to_stdout: bool,
    is_ordered: bool,
    level: LevelFilter,
    open: impl FnOnce(Vec<Probe>, Symbols) -> Result<O>,
) -> Result<ExitCode> {
    let Traced { target, duration, seal, require_complete, flight, choice, .. } = args;
    let flight = flight.is_wanted().then_some((flight, choice));
    let (duration, seal) = (*duration, *seal);
    let is_silent = !to_stdout;
    let requires_complete = *require_complete;
    let extent = Extent { target, duration, seal, requires_complete, flight, to_stdout, is_silent };
    follow(&extent, |builder| attach(args, is_ordered, level, builder), open)
}

fn attach(
    args: &Traced,
    is_ordered: bool,
    level: LevelFilter,
    builder: TracerBuilder,
) -> Result<Tracer, TraceError> {
    let mut builder = builder.options(args.options());
    if let Some(level) = level.to_level().filter(|level| *level > Level::Warn) {
        builder = builder.log_level(level);
    }
    if is_ordered {
        builder = builder.ordered(None);
    }
    if args.ret {
        builder = builder.calls();
    }
    if args.kernel_stack {
        builder = builder.kernel_stacks();
    }
    if args.user_stack {
        builder = builder.user_stacks();
    }
    builder = args.counters().fold(builder, TracerBuilder::counter);
    // Each of these is an iterator of at most one value.
    builder = args.sample.into_iter().fold(builder, TracerBuilder::sample);
    builder = args.rate.into_iter().fold(builder, TracerBuilder::rate);
    builder = args.longer.into_iter().fold(builder, TracerBuilder::longer);
    args.choice.probe(&args.probes, builder)?.attach_with(progress::bar())
}
