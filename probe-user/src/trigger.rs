//! Asking a flight recorder for a dump.

use crate::sys::eventfd::EventFd;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Asks a pipe that is opened with [`Options::overwrite`](crate::Options::overwrite) for a dump, from any
/// thread, handler or signal handler: [`EvPipe::trigger`](crate::EvPipe::trigger) has it.
///
/// Clones are the same trigger. Who pulls it several times before the dump begins gets one.
#[derive(Clone, Debug)]
pub struct Trigger {
    event: Arc<EventFd>,
}

impl Trigger {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { event: Arc::new(EventFd::new()?) })
    }

    /// Asks for a dump, and wakes whoever runs the pipe. Async-signal-safe.
    pub fn pull(&self) {
        self.event.raise();
    }

    /// Whether it was pulled since it was taken last.
    pub(crate) fn take(&self) -> bool {
        self.event.take()
    }
}

/// Readable while there is a dump to take.
impl AsFd for Trigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
