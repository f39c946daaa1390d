//! `probe trace`.

use super::args::{Trace, Traced};
use super::ending::{self, Command};
use super::exit::code_of;
use super::output::Output;
use super::print::written;
use super::{ledger, patterns, privileges, progress, ring, symbols};
use anyhow::Result;
use probe_user::trace::output::Printer;
use probe_user::trace::{Account, Probe, Symbols, TraceError, TracedCommand, Tracer};
use probe_user::{Options, Stop};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

pub(crate) fn run(args: &Trace, level: log::LevelFilter) -> Result<ExitCode> {
    follow(&args.traced, args.is_ordered(), level, |probes, symbols| {
        Ok(Printer::new(io::stdout(), args.format.into(), probes)
            .time(args.time.into())
            .symbols(symbols)
            .limit(args.traced.max_events))
    })
}

/// Traces, and gives everything to the output, which is opened as soon as it is known what it will get.
pub(crate) fn follow<O: Output>(
    args: &Traced,
    is_ordered: bool,
    level: log::LevelFilter,
    open: impl FnOnce(Vec<Probe>, Symbols) -> Result<O>,
) -> Result<ExitCode> {
    let stop = Stop::new()?;
    // From here on a signal stops the trace, in whatever state it is.
    let signals = Signals::new([SIGINT, SIGTERM])?;
    // A file that may not grow is an error of the write, instead of the end. The command has the usual.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let command = args.target.hold()?;
    let mut tracer = attach(args, is_ordered, command.as_ref(), level)?;
    patterns::tell(tracer.left_out());
    // It needs other privileges than the trace does, and keeps them to itself.
    let symbols = symbols::of(tracer.probes(), args.sealed)?;
    let mut output = open(tracer.probes().to_vec(), symbols)?;
    privileges::give_up(&tracer, &args.target, args.sealed)?;
    if let Some(pid) = args.target.pid {
        ending::with_process(pid, stop.clone())?;
    }
    let started = output.start();

    let command = command.map(|command| Command::start(command, stop.clone())).transpose()?;
    ending::with_signals(signals, stop.clone(), command.as_ref().map(Command::pid));
    if started.is_ok() {
        if let Some(duration) = args.duration {
            ending::after(duration, stop.clone())?;
        }
        tracer.run(&stop, &mut output)?;
    }
    let probes = tracer.probes().to_vec();
    let account = Account::from(&tracer.close(&mut output)?);
    let finished = started.and_then(|()| output.finish(&account));
    ledger::tell(&ledger::events(output.events()), &probes, &account);

    let status = command.map(Command::wait).transpose()?;
    written(finished, "events")?;
    Ok(status.map_or(ExitCode::SUCCESS, code_of))
}

fn attach(
    args: &Traced,
    is_ordered: bool,
    command: Option<&TracedCommand>,
    level: log::LevelFilter,
) -> Result<Tracer, TraceError> {
    let mut builder = args
        .target
        .narrow(Tracer::builder(), command)
        .options(Options::new().bytes_per_cpu(args.buffer_size.unwrap_or_else(ring::bytes)));
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
    if args.kernel_stack {
        builder = builder.kernel_stacks();
    }
    if args.user_stack {
        builder = builder.user_stacks();
    }
    if let Some(latency) = args.longer {
        builder = builder.longer(latency);
    }
    for probe in &args.probes {
        builder = builder.probe(probe.clone());
    }
    patterns::choose(builder, &args.choice)?.attach_with(progress::bar())
}
