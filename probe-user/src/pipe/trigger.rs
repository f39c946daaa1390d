//! Requesting a dump from a flight recorder.

use probe_sys::eventfd::EventFd;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Requests a dump from a pipe opened with [`Options::overwrite`](crate::Options::overwrite). It works from any
/// thread, handler or signal handler; [`EvPipe::trigger`](crate::EvPipe::trigger) returns it.
///
/// Clones share one state. Pulling the trigger several times before the dump begins requests one dump.
#[derive(Clone, Debug)]
pub struct Trigger {
    event: Arc<EventFd>,
}

impl Trigger {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { event: Arc::new(EventFd::new()?) })
    }

    /// Requests a dump, and wakes the thread that runs the pipe. Async-signal-safe.
    pub fn pull(&self) {
        self.event.raise();
    }

    /// Whether the trigger was pulled since the last call.
    pub(crate) fn take(&self) -> bool {
        self.event.take()
    }
}

/// Readable while a dump is requested.
impl AsFd for Trigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
