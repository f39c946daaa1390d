//! Starting a process that waits before it executes its program.

use super::call;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::JoinHandle;

/// A child that has forked and waits for [`release`](Self::release) before it executes.
///
/// Dropped without it, the child ends without having executed anything.
#[derive(Debug)]
pub(crate) struct HeldChild {
    pid: u32,
    release: OwnedFd,
    spawning: JoinHandle<io::Result<Child>>,
}

impl HeldChild {
    /// Forks, and waits until the child is there.
    pub(crate) fn spawn(mut command: Command) -> io::Result<Self> {
        let (pid_in, pid_out) = pipe()?;
        let (go_in, go_out) = pipe()?;
        let (child_pid_out, child_go_in, child_go_out) =
            (pid_out.as_raw_fd(), go_in.as_raw_fd(), go_out.as_raw_fd());
        let hold = move || {
            // SAFETY: no preconditions.
            let pid = unsafe { libc::getpid() }.to_ne_bytes();
            call("write", || {
                // SAFETY: the kernel reads as many bytes as `pid` has.
                unsafe { libc::write(child_pid_out, pid.as_ptr().cast(), pid.len()) }
            })?;
            // The child has a copy of the writing end: while it is open, the tracer's death would
            // leave the child waiting for ever.
            // SAFETY: the copy is the child's own, and nothing uses it any more.
            unsafe { libc::close(child_go_out) };
            let mut go = [0u8; 1];
            // SAFETY: the kernel writes at most one byte.
            match call("read", || unsafe { libc::read(child_go_in, go.as_mut_ptr().cast(), 1) })? {
                // The other end was closed: nobody wants this program any more, and nobody may be there to be
                // told so, which the standard library would abort for, and say so.
                // SAFETY: no preconditions.
                0 => unsafe { libc::_exit(0) },
                _ => Ok(()),
            }
        };
        // SAFETY: the closure runs between fork and exec and makes only system calls; it neither
        // allocates nor takes locks.
        unsafe { command.pre_exec(hold) };
        // spawn() returns after the child's exec, so it has a thread of its own.
        let spawning = std::thread::Builder::new().name("probe".into()).spawn(move || {
            let child = command.spawn();
            // The child's end, which must stay open until it has forked; closing it here wakes the
            // parent if there is no child.
            drop(pid_out);
            drop(go_in);
            child
        })?;
        let mut pid = [0u8; 4];
        let read = call("read", || {
            // SAFETY: the kernel writes at most as many bytes as `pid` has.
            unsafe { libc::read(pid_in.as_raw_fd(), pid.as_mut_ptr().cast(), pid.len()) }
        })?;
        if read as usize != pid.len() {
            return match spawning.join() {
                Ok(Err(error)) => Err(error),
                _ => Err(io::Error::other("the child ended before it ran")),
            };
        }
        Ok(Self { pid: u32::from_ne_bytes(pid), release: go_out, spawning })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child execute its program; the error is the one of its `execve`.
    pub(crate) fn release(self) -> io::Result<Child> {
        call("write", || {
            // SAFETY: the kernel reads one byte.
            unsafe { libc::write(self.release.as_raw_fd(), [1u8].as_ptr().cast(), 1) }
        })?;
        self.spawning
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the spawning thread panicked")))
    }
}

/// A pipe that is closed on exec: its reading and its writing end.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the kernel writes two descriptors.
    call("pipe2", || unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the kernel has just opened it for us.
    let reading = unsafe { OwnedFd::from_raw_fd(fds[0]) };
    // SAFETY: as above.
    let writing = unsafe { OwnedFd::from_raw_fd(fds[1]) };
    Ok((reading, writing))
}
