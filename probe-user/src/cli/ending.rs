//! What ends a trace: its command, a process, a signal, or time.

use anyhow::Result;
use probe_user::Stop;
use probe_user::trace::TracedCommand;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::io;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

/// A command that runs.
pub(crate) struct Command {
    pid: u32,
    waiter: thread::JoinHandle<io::Result<ExitStatus>>,
}

impl Command {
    /// Lets the command go, and stops the trace when it exits.
    pub(crate) fn start(command: TracedCommand, stop: Stop) -> Result<Self> {
        let mut child: Child = command.release()?;
        let pid = child.id();
        let waiter = thread::Builder::new().name("wait".into()).spawn(move || {
            let status = child.wait();
            stop.stop();
            status
        })?;
        Ok(Self { pid, waiter })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// What it exited with.
    pub(crate) fn wait(self) -> Result<ExitStatus> {
        match self.waiter.join() {
            Ok(status) => Ok(status?),
            Err(_) => anyhow::bail!("the thread that waits for the command panicked"),
        }
    }
}

/// Stops the trace with the first signal; the second one has its usual effect.
pub(crate) fn with_signals(mut signals: Signals, stop: Stop, command: Option<u32>) {
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
pub(crate) fn with_process(pid: u32, stop: Stop) -> Result<()> {
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
pub(crate) fn after(duration: Duration, stop: Stop) -> Result<()> {
    thread::Builder::new().name("duration".into()).spawn(move || {
        thread::sleep(duration);
        stop.stop();
    })?;
    Ok(())
}
