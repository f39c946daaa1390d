//! The process that starts readers.

use super::channel::Channel;
use super::message::{Ended, Started};
use super::{confine, worker};
use probe_sys::process::fork_alone;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Runs until the tracer closes its end of standard input, which is a channel to it. Whenever the tracer asks, starts a
/// reader in place of the previous one.
pub(super) fn run() -> io::Result<()> {
    let mut asked = Some(Channel::from(io::stdin().as_fd().try_clone_to_owned()?));
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    confine::keeper()?;
    let mut reader = None;
    // An error means that the tracer has ended.
    while let Some(channel) = &asked
        && channel.receive::<()>().is_ok()
    {
        let previous = reader.take().map(end).transpose()?;
        let [ours, theirs] = Channel::pair()?;
        let mut theirs = Some(theirs);
        let pid = fork_alone(|| {
            // A reader that a crafted file has taken over must not speak for the keeper.
            drop((asked.take(), theirs.take()));
            u8::from(worker::run(&ours).is_err())
        })?;
        reader = Pid::from_raw(pid.cast_signed());
        if let (Some(asked), Some(theirs)) = (&asked, &theirs) {
            asked.send(&Started { pid, previous }, &[theirs.as_fd()])?;
        }
    }
    // It is not waited for: it may be in a system call that takes long.
    Ok(reader.map_or(Ok(()), |reader| kill_process(reader, Signal::KILL))?)
}

/// Ends a reader.
fn end(reader: Pid) -> io::Result<Ended> {
    kill_process(reader, Signal::KILL)?;
    let status = waitpid(Some(reader), WaitOptions::empty())?;
    let status = status.ok_or(io::ErrorKind::NotFound)?.1;
    Ok(match status.terminating_signal() {
        Some(signal) => Ended::Signal(signal),
        None => Ended::Code(status.exit_status().unwrap_or(-1)),
    })
}
