//! `epoll(7)`.

use super::call;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// An epoll instance. Who is ready is of no interest here, only that somebody is.
#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = call("epoll_create1", || unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just opened it for us.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Waits for `fd` to become readable, too.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the kernel reads `event`.
        call("epoll_ctl", || unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event)
        })
        .map(drop)
    }

    /// No longer waits for `fd`.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: the event is ignored.
        call("epoll_ctl", || unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd.as_raw_fd(),
                std::ptr::null_mut(),
            )
        })
        .map(drop)
    }

    /// Waits until somebody is ready, and takes that readiness; `None` waits for ever. Whether
    /// anybody was ready.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        // More than are ever added would only leave some for the next call.
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let ready = call("epoll_wait", || {
            let milliseconds = match (timeout, deadline) {
                (Some(timeout), _) if timeout.is_zero() => 0,
                (Some(_), Some(deadline)) => {
                    // Rounded up: a wait must not end before its time and spin.
                    let left = deadline.saturating_duration_since(Instant::now());
                    i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
                }
                _ => -1,
            };
            // SAFETY: the kernel writes at most as many events as there is room for.
            unsafe {
                libc::epoll_wait(
                    self.fd.as_raw_fd(),
                    events.as_mut_ptr(),
                    events.len() as i32,
                    milliseconds,
                )
            }
        })?;
        Ok(ready > 0)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
