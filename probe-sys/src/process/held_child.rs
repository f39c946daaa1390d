//! Starting a process that waits before it executes its program.

use super::user::Identity;
use crate::{attempt, call};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver, SendError};

/// A child that has forked and waits for [`release`](Self::release) before it executes its program.
///
/// If you drop it instead, the child exits without executing anything.
#[derive(Debug)]
pub struct HeldChild {
    pid: u32,
    /// Dropped before `release` is: the child exits then, and the thread that finds nobody here waits for it.
    spawned: Receiver<io::Result<Child>>,
    release: PipeWriter,
}

impl HeldChild {
    /// Forks, and waits until the child exists.
    pub fn spawn(command: Command) -> io::Result<Self> {
        Self::spawn_as(command, None)
    }

    /// The same. When the child is released, it takes on an identity, which requires `CAP_SETUID` and `CAP_SETGID`, and
    /// executes its program as any process of that user would.
    pub fn spawn_as(mut command: Command, identity: Option<Identity>) -> io::Result<Self> {
        let (pid_in, pid_out) = pipe()?;
        let (go_in, go_out) = pipe()?;
        let (child_pid_out, child_go_in, child_go_out) =
            (pid_out.as_raw_fd(), go_in.as_raw_fd(), go_out.as_raw_fd());
        let hold = move || {
            // SAFETY: no preconditions.
            let pid = unsafe { libc::getpid() }.to_ne_bytes();
            call("write", || {
                // SAFETY: the kernel reads `pid.len()` bytes.
                unsafe { libc::write(child_pid_out, pid.as_ptr().cast(), pid.len()) }
            })?;
            // The child has a copy of the writing end. While that is open, the child would wait for ever if the
            // tracer died.
            // SAFETY: the copy is the child's own, and nothing uses it any more.
            unsafe { libc::close(child_go_out) };
            let mut go = [0u8; 1];
            // SAFETY: the kernel writes at most one byte.
            match call("read", || unsafe { libc::read(child_go_in, go.as_mut_ptr().cast(), 1) })? {
                // The parent closed its end, and may be dead. An error here would make the standard library report
                // to the parent, and abort with a message if that fails.
                // SAFETY: no preconditions.
                0 => unsafe { libc::_exit(0) },
                _ => identity.as_ref().map_or(Ok(()), take_on),
            }
        };
        // SAFETY: the closure runs between fork and exec and makes only system calls; it neither
        // allocates nor takes locks.
        unsafe { command.pre_exec(hold) };
        // spawn() returns after the child's exec, so it has a thread of its own.
        let (sender, spawned) = mpsc::channel();
        std::thread::Builder::new().name("probe".into()).spawn(move || {
            let child = command.spawn();
            // The child's ends must stay open until it has forked. If there is no child, closing them wakes the
            // parent.
            drop(pid_out);
            drop(go_in);
            if let Err(SendError(Ok(mut unwanted))) = sender.send(child) {
                let _ = unwanted.wait();
            }
        })?;
        let mut pid = [0; size_of::<u32>()];
        let read = attempt("read", || rustix::io::read(&pid_in, &mut pid))?;
        if read != pid.len() {
            return match spawned.recv() {
                Ok(Err(error)) => Err(error),
                _ => Err(io::Error::other("the child ended before it ran")),
            };
        }
        Ok(Self { pid: u32::from_ne_bytes(pid), spawned, release: go_out })
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child execute its program. Fails with the error of the child's `execve`.
    pub fn release(self) -> io::Result<Child> {
        attempt("write", || rustix::io::write(&self.release, &[1]))?;
        let panicked = |_| Err(io::Error::other("the spawning thread panicked"));
        self.spawned.recv().unwrap_or_else(panicked)
    }
}

/// Takes on an identity, and keeps no capabilities that its user does not get from the program.
fn take_on(identity: &Identity) -> io::Result<()> {
    identity.assume()?;
    let none = CapabilitySet::empty();
    // Clearing the inheritable set clears the ambient set, too. Root gets its capabilities back from the program.
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    attempt("capset", || set_capabilities(None, sets))
}

/// A pipe that is closed on exec: its reading and its writing end.
pub(super) fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    attempt("pipe2", io::pipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    #[test]
    fn a_child_that_is_dropped_leaves_no_zombie() {
        let held = HeldChild::spawn(Command::new("true")).unwrap();
        let process = PathBuf::from(format!("/proc/{}", held.pid()));
        assert!(process.exists());
        drop(held);
        let begin = Instant::now();
        while process.exists() {
            assert!(begin.elapsed() < Duration::from_secs(30), "nobody has waited for it");
            std::thread::yield_now();
        }
    }
}
