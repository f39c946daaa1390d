//! `eventfd(2)`.

use super::call;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A descriptor that is readable once it was raised.
#[derive(Debug)]
pub(crate) struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = call("eventfd", || unsafe {
            libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)
        })?;
        // SAFETY: the kernel has just opened it for us.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Makes it readable, until somebody takes that. May be called from a signal handler.
    pub(crate) fn raise(&self) {
        let one = 1u64;
        // It fails only where the counter would overflow: it is readable, then.
        let _ = call("write", || {
            // SAFETY: the kernel reads 8 bytes.
            unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) }
        });
    }

    /// Whether it was raised since it was taken last.
    pub(crate) fn take(&self) -> bool {
        let mut count = 0u64;
        // It fails where there is nothing to take.
        let read = call("read", || {
            // SAFETY: the kernel writes 8 bytes.
            unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) }
        });
        read.is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
