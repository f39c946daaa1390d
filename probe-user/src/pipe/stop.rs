//! Stopping a running pipe.

use probe_sys::epoll::Epoll;
use probe_sys::eventfd::EventFd;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops [`EvPipe::run`](crate::EvPipe::run) from any thread or signal handler.
///
/// Clones share one state. Once stopped, it stays stopped. A forked process shares the descriptor, but not the state,
/// so use the stop in only one of the two.
#[derive(Clone, Debug)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stopped: AtomicBool,
    event: EventFd,
}

impl Stop {
    /// Creates a stop that is not stopped.
    ///
    /// # Errors
    ///
    /// If there is no descriptor left (`EMFILE`, `ENFILE`).
    pub fn new() -> io::Result<Self> {
        let shared = Shared { stopped: AtomicBool::new(false), event: EventFd::new()? };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Stops the pipe, and wakes the thread that runs it. Async-signal-safe.
    pub fn stop(&self) {
        // ORDERING: a thread that sees the flag also sees what was done before the stop.
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.event.raise();
    }

    /// Waits for a call to [`stop`](Self::stop).
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub fn wait(&self) -> io::Result<()> {
        let epoll = Epoll::new()?;
        epoll.add(self.as_fd())?;
        while !self.is_stopped() {
            epoll.wait(None)?;
        }
        Ok(())
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        // ORDERING: pairs with the store in stop().
        self.shared.stopped.load(Ordering::Acquire)
    }
}

/// Readable once stopped.
impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}
