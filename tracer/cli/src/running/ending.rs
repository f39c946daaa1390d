//! The end of a trace: by its command, a process, a signal, a time limit or a closed output.

use super::signals;
use crate::args::{AtEnd, TargetArgs};
use crate::output::print::report;
use anyhow::Result;
use probe_tracer::{TracedCommand, Tracer, TracerBuilder};
use probe_user::Stop;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Signals that arrive within this time count as one: GNU timeout signals its child and then the whole group, and a
/// terminal sends one for each press of a key.
const TOGETHER: Duration = Duration::from_secs(1);

/// How long a command may take to end by itself after SIGINT, which a terminal sends to it, too.
const OF_ITS_OWN: Duration = Duration::from_millis(500);

/// How long a command may take to end after SIGTERM.
const TO_TERMINATE: Duration = Duration::from_secs(2);

/// What ended a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The command has exited, or exits now.
    Command,
    /// This signal.
    Signal(i32),
    /// The traced process exited, or a limit was reached.
    Limit,
}

/// Ends a trace. The first cause counts.
#[derive(Clone)]
struct End {
    stop: Stop,
    cause: Arc<OnceLock<Cause>>,
}

impl End {
    fn because(&self, cause: Cause) {
        // A second cause changes nothing.
        let _ = self.cause.set(cause);
        self.stop.stop();
    }
}

/// A trace that has not begun yet. From now on, a signal stops it at any stage.
pub(crate) struct Ending {
    end: End,
    signals: Signals,
    interrupted: Arc<AtomicUsize>,
    command: Option<TracedCommand>,
    at_end: AtEnd,
}

impl Ending {
    /// Stops the command, if there is one, before its first instruction.
    pub(crate) fn prepare(target: &TargetArgs) -> Result<Self> {
        let end = End { stop: Stop::new()?, cause: Arc::default() };
        let all: Vec<i32> = signals::that_end().collect();
        let signals = Signals::new(&all)?;
        let interrupted = Arc::<AtomicUsize>::default();
        for signal in all {
            signal_hook::flag::register_usize(signal, interrupted.clone(), signal as usize)?;
        }
        Ok(Self { end, signals, interrupted, command: target.hold()?, at_end: target.at_end })
    }

    /// The stopped command.
    pub(crate) fn command(&self) -> Option<&TracedCommand> {
        self.command.as_ref()
    }

    /// The number of the signal that wants the trace to end, and 0 until there is one.
    pub(crate) fn interrupted(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.interrupted)
    }

    /// A builder of a trace that is limited to the target. A signal interrupts the attaching.
    pub(crate) fn narrow(&self, target: &TargetArgs) -> TracerBuilder {
        let builder =
            Tracer::builder().interrupted_by(self.interrupted()).detach_in_background(true);
        target.narrow(builder, self.command.as_ref())
    }

    /// Ends the trace together with the traced processes or the traced thread, if there are any.
    pub(crate) fn watch(&self, watched: Watched) -> Result<()> {
        let Watched { thread, processes } = watched;
        if let Some(thread) = thread {
            with_thread(thread, self.end.clone())?;
        }
        if !processes.is_empty() {
            with_processes(processes, self.end.clone())?;
        }
        Ok(())
    }

    /// Ends the trace as soon as nobody reads its standard output any more, even if there is nothing to print.
    pub(crate) fn watch_output(&self) -> Result<()> {
        let end = self.end.clone();
        thread::Builder::new().name("output".into()).spawn(move || {
            // A pipe or socket whose other end is closed has an error. Files and terminals have none.
            let stdout = io::stdout();
            let mut output = [PollFd::new(&stdout, PollFlags::empty())];
            while poll(&mut output, None).is_err() {}
            end.because(Cause::Limit);
        })?;
        Ok(())
    }

    /// Releases the command and starts the time limit.
    pub(crate) fn begin(self, duration: Option<Duration>) -> Result<Begun> {
        let Self { end, signals, command, at_end, .. } = self;
        let command = command.map(|command| Command::start(command, end.clone())).transpose()?;
        with_signals(signals, end.clone());
        let is_endless = command.is_none() && duration.is_none();
        if let Some(duration) = duration {
            after(duration, end.clone())?;
        }
        Ok(Begun { end, command, at_end, is_endless })
    }
}

/// What ends a trace when it exits.
pub(crate) struct Watched {
    thread: Option<File>,
    processes: Vec<OwnedFd>,
}

impl Watched {
    /// Opens the traced processes or the traced thread. With the option `hidepid`, `/proc` takes privileges.
    pub(crate) fn open(target: &TargetArgs) -> Result<Self> {
        let thread = |tid: u32| {
            File::open(format!("/proc/{tid}/stat")).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => anyhow::anyhow!("there is no thread {tid}"),
                _ => anyhow::anyhow!("cannot watch thread {tid}: {error}"),
            })
        };
        let processes = target.pids().iter().map(|&pid| pidfd_of(pid)).collect::<Result<_>>()?;
        Ok(Self { thread: target.tid.map(thread).transpose()?, processes })
    }
}

/// A trace that has begun.
pub(crate) struct Begun {
    end: End,
    command: Option<Command>,
    at_end: AtEnd,
    /// Whether only the user ends it, or the end of what is traced.
    is_endless: bool,
}

impl Begun {
    /// Tells the user at a terminal how a trace ends that prints nothing before its end.
    pub(crate) fn announce(&self) {
        if self.is_endless && io::stderr().is_terminal() {
            report("running until Ctrl-C");
        }
    }

    /// Stopped when the trace must end.
    pub(crate) fn stop(&self) -> &Stop {
        &self.end.stop
    }

    /// Ends the trace because nothing of its target is observed any more: it has exited. But a command may also go on, if it
    /// executes a program that the kernel lets nobody observe. Then this waits for what ends the trace.
    pub(crate) fn target_exited(&self) -> io::Result<()> {
        if self.command.is_none() {
            self.end.because(Cause::Command);
        }
        self.stop().wait()
    }

    /// Deals with the command, now that the trace has ended, and returns the exit status of this process. `is_enough` says that
    /// the output takes no more, whether or not the command has exited since.
    pub(crate) fn exit_code(mut self, is_enough: bool) -> Result<ExitCode> {
        let cause = self.cause().filter(|_| !is_enough).unwrap_or(Cause::Limit);
        let status = self.command.take().map(|command| command.settle(cause, self.at_end));
        Ok(match status.transpose()?.flatten() {
            Some(status) if cause != Cause::Limit || self.at_end == AtEnd::Wait => code_of(status),
            _ => ExitCode::SUCCESS,
        })
    }

    fn cause(&self) -> Option<Cause> {
        self.end.cause.get().copied()
    }
}

/// An error ends the trace, too.
impl Drop for Begun {
    fn drop(&mut self) {
        let cause = self.cause().unwrap_or(Cause::Limit);
        if let Some(command) = self.command.take() {
            // The error that ends the trace is reported.
            let _ = command.settle(cause, self.at_end);
        }
    }
}

/// A running command.
struct Command {
    pid: u32,
    pidfd: OwnedFd,
    status: Receiver<io::Result<ExitStatus>>,
}

impl Command {
    /// Releases the command, and stops the trace when it exits.
    fn start(command: TracedCommand, end: End) -> Result<Self> {
        let pid = command.pid();
        let pidfd = pidfd_of(pid)?;
        let mut child: Child = command.release()?;
        let (sender, status) = channel();
        thread::Builder::new().name("wait".into()).spawn(move || {
            // Nobody waits for the status of a command that is left alone.
            let _ = sender.send(child.wait());
            end.because(Cause::Command);
        })?;
        Ok(Self { pid, pidfd, status })
    }

    /// Does with the command what the user wants, and returns its exit status if it has one by now.
    fn settle(self, cause: Cause, at_end: AtEnd) -> Result<Option<ExitStatus>> {
        match (cause, at_end) {
            (Cause::Command, _) | (_, AtEnd::Wait) => self.wait(None),
            (_, AtEnd::Leave) => self.wait(Some(Duration::ZERO)),
            (Cause::Signal(SIGINT), AtEnd::Terminate) => match self.wait(Some(OF_ITS_OWN))? {
                None => self.terminate(),
                status => Ok(status),
            },
            (_, AtEnd::Terminate) => self.terminate(),
        }
    }

    /// Asks the command to end.
    fn terminate(&self) -> Result<Option<ExitStatus>> {
        // They fail if the command has exited, or is another user's by now. A stopped one must continue to end.
        let _ = pidfd_send_signal(&self.pidfd, Signal::TERM);
        let _ = pidfd_send_signal(&self.pidfd, Signal::CONT);
        let status = self.wait(Some(TO_TERMINATE))?;
        if status.is_none() {
            report(format_args!("the command still runs, as process {}", self.pid));
        }
        Ok(status)
    }

    /// Waits for the exit status, at most for this time.
    fn wait(&self, timeout: Option<Duration>) -> Result<Option<ExitStatus>> {
        let received = match timeout {
            Some(timeout) => self.status.recv_timeout(timeout),
            None => self.status.recv().map_err(RecvTimeoutError::from),
        };
        match received {
            Ok(status) => Ok(Some(status?)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("the thread that waits for the command panicked")
            }
        }
    }
}

/// Stops the trace at the first signal. A signal that comes later, when the end takes long, has its default effect.
fn with_signals(mut signals: Signals, end: End) {
    let watch = move || {
        let mut first: Option<Instant> = None;
        for signal in &mut signals {
            match first {
                None => first = Some(Instant::now()),
                Some(first) if first.elapsed() < TOGETHER => continue,
                // It cannot fail for these signals.
                Some(_) => drop(signal_hook::low_level::emulate_default_handler(signal)),
            }
            end.because(Cause::Signal(signal));
        }
    };
    // Without the thread, signals have no effect. Other threads could be created before, so this is unlikely.
    if let Err(error) = thread::Builder::new().name("signals".into()).spawn(watch) {
        log::warn!("cannot watch for signals: {error}");
    }
}

fn pidfd_of(pid: u32) -> Result<OwnedFd> {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(process) = process else { anyhow::bail!("there is no process {pid}") };
    pidfd_open(process, PidfdFlags::empty()).map_err(|errno| match errno {
        Errno::SRCH => anyhow::anyhow!("there is no process {pid}"),
        errno => anyhow::anyhow!("cannot watch process {pid}: {errno}"),
    })
}

/// Stops the trace when all processes have exited.
fn with_processes(pidfds: Vec<OwnedFd>, end: End) -> Result<()> {
    thread::Builder::new().name("process".into()).spawn(move || {
        for pidfd in &pidfds {
            while poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None).is_err() {}
        }
        end.because(Cause::Limit);
    })?;
    Ok(())
}

/// Stops the trace when a thread has exited, whose `stat` in `/proc` this is. Before 6.9, the kernel does not notify anybody
/// of that.
fn with_thread(stat: File, end: End) -> Result<()> {
    const PAUSE: Duration = Duration::from_millis(100);
    thread::Builder::new().name("thread".into()).spawn(move || {
        // The file never becomes that of a later thread with this number.
        while is_running(&stat) {
            thread::sleep(PAUSE);
        }
        end.because(Cause::Limit);
    })?;
    Ok(())
}

/// Whether a thread runs, by its `stat` in `/proc`, and is not a zombie, which its parent may leave for ever.
fn is_running(stat: &File) -> bool {
    let mut text = [0; 64];
    let Ok(read) = stat.read_at(&mut text, 0) else { return false };
    // "PID (NAME) STATE": the name may contain anything.
    let text = &text[..read];
    let end = text.iter().rposition(|&byte| byte == b')');
    end.and_then(|end| text.get(end + 2)).is_some_and(|state| !b"ZX".contains(state))
}

/// Stops the trace after this time.
fn after(duration: Duration, end: End) -> Result<()> {
    thread::Builder::new().name("duration".into()).spawn(move || {
        thread::sleep(duration);
        end.because(Cause::Limit);
    })?;
    Ok(())
}

/// Follows the shell's convention for a command that was killed by a signal.
fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_are_passed_on() {
        for (raw, code) in [(0, 0u8), (7 << 8, 7), (libc::SIGKILL, 137)] {
            assert_eq!(code_of(ExitStatus::from_raw(raw)), ExitCode::from(code));
        }
    }
}
