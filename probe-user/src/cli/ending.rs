//! What ends a trace: its command, a process, a signal, or time.

use super::args::Target;
use super::exit::code_of;
use anyhow::Result;
use probe_user::Stop;
use probe_user::trace::{TracedCommand, Tracer, TracerBuilder};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::process::{Child, ExitCode, ExitStatus};
use std::thread;
use std::time::Duration;

/// What ends a trace, before it begins. From here on a signal stops it, in whatever state it is.
pub(crate) struct Ending {
    stop: Stop,
    signals: Signals,
    command: Option<TracedCommand>,
}

impl Ending {
    /// Holds the command, if there is one.
    pub(crate) fn prepare(target: &Target) -> Result<Self> {
        let stop = Stop::new()?;
        let signals = Signals::new([SIGINT, SIGTERM])?;
        Ok(Self { stop, signals, command: target.hold()? })
    }

    /// The command, which is held.
    pub(crate) fn command(&self) -> Option<&TracedCommand> {
        self.command.as_ref()
    }

    /// A trace of the target alone.
    pub(crate) fn narrow(&self, target: &Target) -> TracerBuilder {
        target.narrow(Tracer::builder(), self.command.as_ref())
    }

    /// Ends with the process that is traced, if it is one.
    pub(crate) fn watch(&self, target: &Target) -> Result<()> {
        target.pid.map_or(Ok(()), |pid| with_process(pid, self.stop.clone()))
    }

    /// Lets the command go, and the time begin.
    pub(crate) fn begin(self, duration: Option<Duration>) -> Result<Begun> {
        let Self { stop, signals, command } = self;
        let command = command.map(|command| Command::start(command, stop.clone())).transpose()?;
        with_signals(signals, stop.clone(), command.as_ref().map(|command| command.pid));
        if let Some(duration) = duration {
            after(duration, stop.clone())?;
        }
        Ok(Begun { stop, command })
    }
}

/// A trace that has begun.
pub(crate) struct Begun {
    stop: Stop,
    command: Option<Command>,
}

impl Begun {
    /// Stopped when the trace has to end.
    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Waits for the command, and exits as it does.
    pub(crate) fn exit_code(self) -> Result<ExitCode> {
        let status = self.command.map(Command::wait).transpose()?;
        Ok(status.map_or(ExitCode::SUCCESS, code_of))
    }
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

    /// What it exited with.
    fn wait(self) -> Result<ExitStatus> {
        match self.waiter.join() {
            Ok(status) => Ok(status?),
            Err(_) => anyhow::bail!("the thread that waits for the command panicked"),
        }
    }
}

/// Stops the trace with the first signal; the second one has its usual effect.
fn with_signals(mut signals: Signals, stop: Stop, command: Option<u32>) {
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
fn with_process(pid: u32, stop: Stop) -> Result<()> {
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

/// Stops the trace after some time.
fn after(duration: Duration, stop: Stop) -> Result<()> {
    thread::Builder::new().name("duration".into()).spawn(move || {
        thread::sleep(duration);
        stop.stop();
    })?;
    Ok(())
}
