//! Handing a descriptor to tokio's reactor.

use crate::asynchronous::Pipe;
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a pipe's descriptor for readability.
pub(crate) fn register<P: Pipe>(pipe: P) -> io::Result<AsyncFd<P>> {
    // SAFETY: the descriptor is that of the epoll instance which the pipe owns: it is the same for
    // as long as the pipe lives, and the AsyncFd owns the pipe.
    unsafe { AsyncFd::register_with_interest(pipe, Interest::READABLE) }
        .map_err(|error| io::Error::other(error.to_string()))
}
