//! What every way to consume needs of a pipe, and the loop that all pipes run.

use crate::error::PollError;
use crate::pipe::evpipe::Progress;
use crate::pipe::stop::Stop;
use crate::queue::consumer::Consumer;
use probe_sys::epoll::Epoll;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::Duration;

/// A pipe that a thread or a runtime can wait for and drain.
pub trait Drive {
    /// The epoll instance that is readable when there is something to drain.
    fn epoll(&self) -> &Epoll;

    /// Whether this process has opened the pipe. One that was forked from it shares the epoll instance.
    fn is_here(&self) -> bool;

    /// Waits for a stop no more. A forked child leaves the epoll instance alone.
    fn forget(&self, stop: &Stop) {
        if self.is_here() {
            // This cannot fail: it was added, and nothing else removes it.
            let _ = self.epoll().remove(stop.as_fd());
        }
    }

    /// Checks that the pipe can deliver the records that a consumer expects.
    fn check<C: Consumer>(&self, consumer: &C) -> Result<(), PollError>;

    /// Whether the last drain left something that has no wakeup to come, or there was no drain yet.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "only a runtime asks"))]
    fn is_pending(&self) -> bool;

    /// Makes the epoll instance readable at intervals if nothing else wakes it: a runtime has no timeout of its own.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "only a runtime asks"))]
    fn tick(&mut self) -> io::Result<()>;

    /// Looks for changes of CPUs if the last drain has left that to a later one. A runtime does so before it waits, because it
    /// sees only once that the epoll instance is readable. Returns whether there is something to drain now.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "only a runtime asks"))]
    fn follow<C: Consumer>(&mut self, consumer: &mut C) -> bool;

    /// Has the next wait end at once, because somebody else may have taken the readiness of the rings.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "only a runtime does"))]
    fn look_again(&mut self);

    /// Waits until the epoll instance is readable. This takes the readiness, so a drain has to follow. Does not wait
    /// if something is pending.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), PollError>;

    /// Passes what is in the rings now to `consumer`.
    fn drain_once<C: Consumer>(&mut self, consumer: &mut C) -> Result<Progress, PollError>;

    /// As [`drain_once`](Self::drain_once), if nobody but [`wait`](Self::wait) has taken the readiness of the rings
    /// since the last drain.
    fn drain_waited<C: Consumer>(&mut self, consumer: &mut C) -> Result<Progress, PollError> {
        self.drain_once(consumer)
    }

    /// Passes everything emitted before the call to `consumer`.
    fn drain_all<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()>;

    /// Waits, and drains once.
    fn poll<C: Consumer>(
        &mut self,
        timeout: Option<Duration>,
        consumer: &mut C,
    ) -> Result<Progress, PollError> {
        self.check(consumer)?;
        self.wait(timeout)?;
        self.drain_once(consumer)
    }

    /// Drains whenever there are records, until `stop` is stopped or `consumer` breaks. Returns which of them it was: after a
    /// stop, the consumer may break, too.
    fn run<C: Consumer>(
        &mut self,
        stop: &Stop,
        consumer: &mut C,
    ) -> Result<ControlFlow<()>, PollError> {
        self.check(consumer)?;
        let watching = Watching::new(self, stop)?;
        while !stop.is_stopped() {
            watching.pipe.wait(None)?;
            let flow = watching.pipe.drain_waited(consumer)?.flow;
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(watching.pipe.drain_all(consumer))
    }
}

/// Makes a pipe wait for a stop, too, for as long as this guard lives, even if a consumer panics. Adding a stop twice
/// is refused, and one that is left behind keeps waking the pipe.
struct Watching<'p, P: Drive + ?Sized> {
    pipe: &'p mut P,
    stop: &'p Stop,
}

impl<'p, P: Drive + ?Sized> Watching<'p, P> {
    fn new(pipe: &'p mut P, stop: &'p Stop) -> io::Result<Self> {
        pipe.epoll().add(stop.as_fd())?;
        Ok(Self { pipe, stop })
    }
}

impl<P: Drive + ?Sized> Drop for Watching<'_, P> {
    fn drop(&mut self) {
        self.pipe.forget(self.stop);
    }
}
