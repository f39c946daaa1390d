//! Handing a descriptor to tokio's reactor.

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor for readability.
///
/// # Errors
///
/// If the runtime's epoll rejects the descriptor.
///
/// # Panics
///
/// Outside of a runtime with I/O enabled.
pub fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the AsyncFd owns the descriptor, which stays open and the same for as long as it lives.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }
        .map_err(|error| io::Error::other(error.to_string()))
}
