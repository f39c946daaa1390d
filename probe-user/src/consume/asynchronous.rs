//! The pipe on a tokio runtime.

use crate::consume::item::{Collector, Item};
use crate::consume::ordered::OrderedPipe;
use crate::error::{PollError, TallyError};
use crate::ledger::balance::Ledger;
use crate::pipe::driving::Drive;
use crate::pipe::evpipe::{EvPipe, Progress};
use crate::queue::consumer::Consumer;
use futures_core::Stream;
use probe_sys::runtime::{self, Readable};
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A pipe that a runtime can wait for: an [`EvPipe`] or an [`OrderedPipe`].
pub trait Pipe: Drive + AsFd {}

impl Pipe for EvPipe {}

impl Pipe for OrderedPipe {}

/// A pipe that waits asynchronously. It drains like the underlying pipe.
///
/// ```no_run
/// # use probe_user::{AsyncEvPipe, EvHandlers, EvPipe};
/// # async fn example(pipe: EvPipe) -> Result<(), Box<dyn std::error::Error>> {
/// let mut handlers = EvHandlers::new();
/// let mut pipe = AsyncEvPipe::new(pipe)?;
/// tokio::spawn(async move { pipe.run(&mut handlers).await });
/// # Ok(())
/// # }
/// ```
///
/// With `pipe.ordered(window)?`, it delivers the records of all CPUs in time order.
#[derive(Debug)]
pub struct AsyncEvPipe<P: Pipe = EvPipe> {
    pipe: P,
    /// The epoll instance of the pipe, through a descriptor that the runtime owns.
    ready: Readable,
    /// Whether other tasks run before the next drain.
    yields: bool,
}

impl<P: Pipe> AsyncEvPipe<P> {
    /// Registers the pipe with the runtime.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left, or the epoll instance of the runtime does not accept the pipe's.
    ///
    /// # Panics
    ///
    /// If called outside of a runtime with I/O enabled.
    pub fn new(mut pipe: P) -> io::Result<Self> {
        pipe.tick()?;
        let ready = runtime::readable(pipe.as_fd().try_clone_to_owned()?)?;
        // Registering the descriptor takes the readiness of its rings.
        pipe.look_again();
        Ok(Self { pipe, ready, yields: false })
    }

    /// Waits until there are records, and drains once. Cancelling this loses nothing.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait, or to pause a ring for a dump.
    pub async fn poll<C: Consumer>(&mut self, consumer: &mut C) -> Result<Progress, PollError> {
        if std::mem::take(&mut self.yields) {
            tokio::task::yield_now().await;
        }
        let progress = std::future::poll_fn(|cx| self.poll_drain(cx, consumer)).await?;
        // A CPU that emits without pause must not keep other tasks from running. They run before the next drain: nobody
        // could cancel this one any more.
        self.yields = progress.pending;
        Ok(progress)
    }

    /// Drains whenever there are records, until `consumer` breaks. Cancelling this loses nothing.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait, or to pause a ring for a dump.
    pub async fn run<C: Consumer>(&mut self, consumer: &mut C) -> Result<(), PollError> {
        while self.poll(consumer).await?.flow.is_continue() {}
        Ok(())
    }

    /// The underlying pipe.
    pub fn get_ref(&self) -> &P {
        &self.pipe
    }

    /// Takes the pipe out of the runtime.
    pub fn into_inner(mut self) -> P {
        // The runtime may have taken the readiness of a ring since the last drain.
        self.pipe.look_again();
        self.pipe
    }

    fn poll_drain<C: Consumer>(
        &mut self,
        cx: &mut Context<'_>,
        consumer: &mut C,
    ) -> Poll<Result<Progress, PollError>> {
        self.pipe.check(consumer)?;
        loop {
            // The last drain left something that has no wakeup to come.
            if self.pipe.is_pending() {
                let progress = self.pipe.drain_once(consumer)?;
                if progress.records > 0 || progress.flow.is_break() {
                    return Poll::Ready(Ok(progress));
                }
                if progress.pending {
                    // The pipe holds records until they can be ordered. Let other tasks run meanwhile.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            if self.pipe.follow(consumer) {
                continue;
            }
            let mut guard = ready!(self.ready.poll_read_ready_mut(cx))?;
            // This takes the readiness of our own epoll instance first, and then that of the runtime: whatever
            // arrives later makes both ready again.
            let waited = self.pipe.wait(Some(Duration::ZERO));
            guard.clear_ready();
            waited?;
            let progress = self.pipe.drain_once(consumer)?;
            if progress.records > 0 || progress.flow.is_break() {
                return Poll::Ready(Ok(progress));
            }
        }
    }
}

/// The records of a pipe as an asynchronous stream, which never ends by itself.
///
/// Records that are not taken from the stream stay in the rings, except for a bounded number of items. A stream that
/// always has another item lets others run now and then, so a timer beside it in a `select!` fires on time.
#[derive(Debug)]
pub struct RecordStream<P: Pipe = EvPipe> {
    pipe: AsyncEvPipe<P>,
    collector: Collector,
    /// How many items were returned since others could run.
    in_a_row: u32,
}

/// How many items a stream returns before it lets others run.
const IN_A_ROW: u32 = 128;

impl<P: Pipe> RecordStream<P> {
    /// Registers the pipe with the runtime.
    ///
    /// # Errors
    ///
    /// As [`AsyncEvPipe::new`].
    ///
    /// # Panics
    ///
    /// As [`AsyncEvPipe::new`].
    pub fn new(pipe: P) -> io::Result<Self> {
        Ok(Self { pipe: AsyncEvPipe::new(pipe)?, collector: Collector::default(), in_a_row: 0 })
    }

    /// Returns the next item. Cancelling this loses nothing.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait, or to pause a ring for a dump.
    pub async fn next(&mut self) -> Result<Item, PollError> {
        std::future::poll_fn(|cx| self.poll_item(cx)).await
    }

    /// Takes the pipe out of the runtime, and returns it with the items that were taken out of its rings but not by
    /// you. For the pipe, their records are handled.
    pub fn into_parts(self) -> (P, Vec<Item>) {
        (self.pipe.into_inner(), self.collector.into_items())
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Result<Item, PollError>> {
        loop {
            if self.in_a_row == IN_A_ROW {
                // Tokio's own budget is no use here: where it is spent, a timer in the same `select!` cannot fire either.
                self.in_a_row = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some(item) = self.collector.pop() {
                self.in_a_row += 1;
                return Poll::Ready(Ok(item));
            }
            if self.pipe.poll_drain(cx, &mut self.collector)?.is_pending() {
                // Losses, failures and changes of CPUs come without records.
                let Some(item) = self.collector.pop() else { return Poll::Pending };
                self.in_a_row += 1;
                return Poll::Ready(Ok(item));
            }
        }
    }
}

impl RecordStream {
    /// Accounts for every record so far, as [`EvPipe::ledger`]. Records that you have not taken are unread.
    ///
    /// # Errors
    ///
    /// As [`EvPipe::ledger`].
    pub fn ledger(&self) -> Result<Ledger, TallyError> {
        self.pipe.get_ref().ledger().map(|ledger| self.collector.corrected(ledger))
    }
}

impl<P: Pipe + Unpin> Stream for RecordStream<P> {
    type Item = Result<Item, PollError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_item(cx).map(Some)
    }
}
