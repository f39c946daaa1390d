//! `eventfd(2)`.

use crate::attempt;
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A flag that epoll waits for: its descriptor is readable while the flag is raised.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

/// Checks that this process can have this many more descriptors now.
///
/// # Errors
///
/// `EMFILE` or `ENFILE` if it cannot.
pub fn check_room(descriptors: usize) -> io::Result<()> {
    let opened = (0..descriptors).map(|_| EventFd::new()).collect::<io::Result<Vec<_>>>();
    opened.map(drop)
}

impl EventFd {
    /// Creates a flag that is not raised.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self { fd: attempt("eventfd", || rustix::event::eventfd(0, flags))? })
    }

    /// Raises the flag. Signal handlers may call this.
    pub fn raise(&self) {
        // This fails only where the counter would overflow, and then the descriptor is readable.
        let _ = attempt("write", || rustix::io::write(&self.fd, &1u64.to_ne_bytes()));
    }

    /// Lowers the flag. Returns whether it was raised.
    pub fn take(&self) -> bool {
        let mut count = [0; size_of::<u64>()];
        // This fails with EAGAIN if the flag is not raised.
        attempt("read", || rustix::io::read(&self.fd, &mut count)).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
