//! Handing a descriptor to tokio's reactor.

use crate::process::Process;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that a runtime waits for.
#[derive(Debug)]
pub struct Readable {
    fd: ManuallyDrop<AsyncFd<OwnedFd>>,
    process: Process,
}

impl Deref for Readable {
    type Target = AsyncFd<OwnedFd>;

    fn deref(&self) -> &Self::Target {
        &self.fd
    }
}

impl DerefMut for Readable {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.fd
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        // A forked child shares the runtime's epoll instance, and would end the waiting of its parent.
        if self.process.is_this() {
            // SAFETY: the field is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.fd) }
        }
    }
}

/// Registers a descriptor for readability.
///
/// # Errors
///
/// If the runtime's epoll rejects the descriptor.
///
/// # Panics
///
/// Outside of a runtime with I/O enabled.
pub fn readable(fd: OwnedFd) -> io::Result<Readable> {
    // SAFETY: the AsyncFd owns the descriptor, which stays open and the same for as long as it lives.
    let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }
        .map_err(|error| io::Error::other(error.to_string()))?;
    Ok(Readable { fd: ManuallyDrop::new(fd), process: Process::this() })
}
