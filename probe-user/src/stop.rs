//! Stopping a pipe that runs.

use crate::sys::epoll::Epoll;
use crate::sys::eventfd::EventFd;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells [`EvPipe::run`](crate::EvPipe::run) to stop, from any thread or signal handler.
///
/// Clones are the same stop. Once stopped, it stays stopped.
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
    /// A new one, not stopped.
    ///
    /// # Errors
    ///
    /// If there is no descriptor left for it (`EMFILE`, `ENFILE`).
    pub fn new() -> io::Result<Self> {
        let shared = Shared { stopped: AtomicBool::new(false), event: EventFd::new()? };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Stops, and wakes whoever runs. Async-signal-safe.
    pub fn stop(&self) {
        // ORDERING: whoever sees the flag sees what was done before the stop.
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.event.raise();
    }

    /// Waits until it is stopped.
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

    /// Whether it was stopped.
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

/// What can wait for a stop, too.
pub(crate) trait Waits {
    fn epoll(&self) -> &Epoll;
}

/// A pipe that waits for a stop for as long as this lives, and no longer, even if a consumer panics:
/// a stop that is waited for twice is refused, and one that is forgotten keeps waking.
pub(crate) struct Watching<'p, P: Waits> {
    pub(crate) pipe: &'p mut P,
    stop: &'p Stop,
}

impl<'p, P: Waits> Watching<'p, P> {
    pub(crate) fn new(pipe: &'p mut P, stop: &'p Stop) -> io::Result<Self> {
        pipe.epoll().add(stop.as_fd())?;
        Ok(Self { pipe, stop })
    }
}

impl<P: Waits> Drop for Watching<'_, P> {
    fn drop(&mut self) {
        // Nobody else has removed it.
        let _ = self.pipe.epoll().remove(self.stop.as_fd());
    }
}
