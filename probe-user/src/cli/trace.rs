//! `probe trace`.

use super::args::Trace;
use super::exit::code_of;
use anyhow::Result;
use probe_user::trace::output::Printer;
use probe_user::trace::{
    Capabilities, Ledger, Scope, TraceError, TracedCommand, Tracer, privileges,
};
use probe_user::{Options, Stop};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::io::{self, BufWriter, Stdout, Write};
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Events are written in pieces of so many bytes, or whenever there are no more at hand.
const OUTPUT_BUFFER: usize = 64 << 10;

type Output = Printer<BufWriter<Stdout>>;

pub(crate) fn run(args: &Trace, level: log::LevelFilter) -> Result<ExitCode> {
    let stop = Stop::new()?;
    // From here on a signal stops the trace, in whatever state it is.
    let signals = Signals::new([SIGINT, SIGTERM])?;
    // A file that may not grow is an error of the write, instead of the end. The command has the usual.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let command = match args.command.as_slice() {
        [] => None,
        command => Some(TracedCommand::hold(command)?),
    };
    let mut tracer = attach(args, command.as_ref(), level)?;
    give_up_privileges(args, &tracer)?;
    if let Some(pid) = args.pid {
        stop_with(pid, stop.clone())?;
    }
    let format = args.format.into();
    let writer = BufWriter::with_capacity(OUTPUT_BUFFER, io::stdout());
    let mut printer = Printer::new(writer, format, args.probes.clone()).limit(args.max_events);
    let started = printer.start();

    let command = command.map(|command| Command::start(command, stop.clone())).transpose()?;
    watch_signals(signals, stop.clone(), command.as_ref().map(|command| command.pid));
    if started.is_ok() {
        follow(&mut tracer, &stop, args.duration, &mut printer)?;
    }
    let ledger = tracer.close(&mut printer)?;
    let written = started.and_then(|()| printer.finish());
    summarize(printer.printed(), &ledger);

    let status = command.map(Command::wait).transpose()?;
    match written {
        // Whoever read the events has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => anyhow::bail!("cannot write events: {error}"),
        Ok(()) => {}
    }
    Ok(status.map_or(ExitCode::SUCCESS, code_of))
}

fn attach(
    args: &Trace,
    command: Option<&TracedCommand>,
    level: log::LevelFilter,
) -> Result<Tracer, TraceError> {
    let scope = match (args.pid, command) {
        (Some(pid), _) => Scope::Process(pid),
        (None, Some(command)) if !args.all => Scope::Descendants(command.pid()),
        _ => Scope::Everybody,
    };
    let mut builder =
        Tracer::builder().scope(scope).options(Options::new().bytes_per_cpu(args.buffer_size));
    if let Some(level) = level.to_level().filter(|level| *level > log::Level::Warn) {
        builder = builder.log_level(level);
    }
    for probe in &args.probes {
        builder = builder.probe(probe.clone());
    }
    builder.attach()
}

/// Keeps of the privileges what a trace that runs can still need. Threads that are started later
/// have no more.
fn give_up_privileges(args: &Trace, tracer: &Tracer) -> Result<()> {
    let kept = if args.sealed {
        privileges::drop_all(tracer)
    } else {
        // SIGTERM is passed on to the command, which may have become somebody else's.
        let also = if args.command.is_empty() { Capabilities::NONE } else { Capabilities::KILL };
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
        let stop = stop.clone();
        thread::Builder::new().name("duration".into()).spawn(move || {
            thread::sleep(duration);
            stop.stop();
        })?;
    }
    Ok(tracer.run(stop, printer)?)
}

/// Says what happened, on standard error.
fn summarize(printed: u64, ledger: &Ledger) {
    let events = if printed == 1 { "event" } else { "events" };
    // Nobody may be there to read it, which is no reason to fail.
    let _ = writeln!(io::stderr(), "probe: {printed} {events}\nledger: {ledger}");
}

/// A command that runs.
struct Command {
    pid: u32,
    waiter: thread::JoinHandle<io::Result<ExitStatus>>,
}

impl Command {
    /// Lets the command go, and stops the trace when it exits.
    fn start(command: TracedCommand, stop: Stop) -> Result<Self> {
        let mut child: Child = command.release()?;
        let pid = child.id();
        let waiter = thread::Builder::new().name("wait".into()).spawn(move || {
            let status = child.wait();
            stop.stop();
            status
        })?;
        Ok(Self { pid, waiter })
    }

    fn wait(self) -> Result<ExitStatus> {
        match self.waiter.join() {
            Ok(status) => Ok(status?),
            Err(_) => anyhow::bail!("the thread that waits for the command panicked"),
        }
    }
}

/// Stops the trace with the first signal; the second one has its usual effect.
fn watch_signals(mut signals: Signals, stop: Stop, command: Option<u32>) {
    let watch = move || {
        for signal in &mut signals {
            if stop.is_stopped() {
                // It cannot fail for these two.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            stop.stop();
            // A terminal sends SIGINT to the command, too; SIGTERM is for us alone.
            if let (SIGTERM, Some(pid)) =
                (signal, command.and_then(|pid| Pid::from_raw(pid as i32)))
            {
                // It fails only if the command has exited.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
    };
    // Without the thread, signals have no effect at all; threads are had at this point.
    if let Err(error) = thread::Builder::new().name("signals".into()).spawn(watch) {
        log::warn!("cannot watch for signals: {error}");
    }
}

/// Stops the trace when a process exits.
fn stop_with(pid: u32, stop: Stop) -> Result<()> {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(process) = process else { anyhow::bail!("there is no process {pid}") };
    let pidfd = pidfd_open(process, PidfdFlags::empty())
        .map_err(|errno| anyhow::anyhow!("cannot watch process {pid}: {errno}"))?;
    thread::Builder::new().name("process".into()).spawn(move || {
        use rustix::event::{PollFd, PollFlags, poll};
        while poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).is_err() {}
        stop.stop();
    })?;
    Ok(())
}
