//! `probe trace`.

use super::args::Trace;
use super::ending::{self, Command};
use super::exit::code_of;
use super::patterns;
use super::print::written;
use super::progress;
use anyhow::Result;
use probe_user::trace::output::Printer;
use probe_user::trace::{
    Capabilities, Ledger, Probe, TraceError, TracedCommand, Tracer, privileges,
};
use probe_user::{Escaped, Options, Stop};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::io::{self, Stdout, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

type Output = Printer<Stdout>;

pub(crate) fn run(args: &Trace, level: log::LevelFilter) -> Result<ExitCode> {
    let stop = Stop::new()?;
    // From here on a signal stops the trace, in whatever state it is.
    let signals = Signals::new([SIGINT, SIGTERM])?;
    // A file that may not grow is an error of the write, instead of the end. The command has the usual.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let command = args.target.hold()?;
    let mut tracer = attach(args, command.as_ref(), level)?;
    patterns::tell(tracer.left_out());
    give_up_privileges(args, &tracer)?;
    if let Some(pid) = args.target.pid {
        ending::with_process(pid, stop.clone())?;
    }
    let mut printer = Printer::new(io::stdout(), args.format.into(), tracer.probes().to_vec())
        .time(args.time.into())
        .limit(args.max_events);
    let started = printer.start();

    let command = command.map(|command| Command::start(command, stop.clone())).transpose()?;
    ending::with_signals(signals, stop.clone(), command.as_ref().map(Command::pid));
    if started.is_ok() {
        follow(&mut tracer, &stop, args.duration, &mut printer)?;
    }
    let probes = tracer.probes().to_vec();
    let ledger = tracer.close(&mut printer)?;
    let finished = started.and_then(|()| printer.finish(&ledger));
    summarize(printer.printed(), &probes, &ledger);

    let status = command.map(Command::wait).transpose()?;
    written(finished, "events")?;
    Ok(status.map_or(ExitCode::SUCCESS, code_of))
}

fn attach(
    args: &Trace,
    command: Option<&TracedCommand>,
    level: log::LevelFilter,
) -> Result<Tracer, TraceError> {
    let mut builder = args
        .target
        .narrow(Tracer::builder(), command)
        .options(Options::new().bytes_per_cpu(args.buffer_size));
    if let Some(level) = level.to_level().filter(|level| *level > log::Level::Warn) {
        builder = builder.log_level(level);
    }
    if args.is_ordered() {
        builder = builder.ordered(None);
    }
    if args.ret {
        builder = builder.calls();
    }
    if let Some(latency) = args.longer {
        builder = builder.longer(latency);
    }
    for probe in &args.probes {
        builder = builder.probe(probe.clone());
    }
    patterns::choose(builder, &args.choice)?.attach_with(progress::bar())
}

/// Keeps of the privileges what a trace that runs can still need. Threads that are started later
/// have no more.
fn give_up_privileges(args: &Trace, tracer: &Tracer) -> Result<()> {
    let kept = if args.sealed {
        privileges::drop_all(tracer)
    } else {
        // SIGTERM is passed on to the command, which may have become somebody else's.
        let also =
            if args.target.command.is_empty() { Capabilities::NONE } else { Capabilities::KILL };
        privileges::keep_for_hotplug(tracer, also)
    };
    let kept = kept.map_err(|error| anyhow::anyhow!("cannot give up privileges: {error}"))?;
    log::debug!("privileges kept: {kept}");
    if args.sealed && !kept.is_empty() {
        // Nobody may be there to read it.
        let _ = writeln!(
            io::stderr(),
            "probe: sealed but for {kept}, which this kernel asks for to read the last line's \
             counts (before 5.19, with the sysctl kernel.unprivileged_bpf_disabled)"
        );
    }
    Ok(())
}

/// Prints events until the trace has to end.
fn follow(
    tracer: &mut Tracer,
    stop: &Stop,
    duration: Option<Duration>,
    printer: &mut Output,
) -> Result<()> {
    if let Some(duration) = duration {
        ending::after(duration, stop.clone())?;
    }
    Ok(tracer.run(stop, printer)?)
}

/// Says what happened, on standard error.
fn summarize(printed: u64, probes: &[Probe], ledger: &Ledger) {
    let events = if printed == 1 { "event" } else { "events" };
    let mut said = format!("probe: {printed} {events}\n");
    for (probe, missed) in probes.iter().zip(&ledger.missed) {
        if !missed.is_nothing() {
            said += &format!("probe: {}: {missed}\n", Escaped(probe.spec().name().as_bytes()));
        }
    }
    // Nobody may be there to read it, which is no reason to fail.
    let _ = writeln!(io::stderr(), "{said}ledger: {ledger}");
}
