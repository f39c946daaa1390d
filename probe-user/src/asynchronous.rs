//! The pipe on a tokio runtime.

use crate::consumer::Consumer;
use crate::error::PollError;
use crate::evpipe::{EvPipe, Progress};
use crate::ordered::OrderedPipe;
use crate::owned::{Collector, Item};
use crate::sys::runtime;
use futures_core::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;

/// A pipe that a runtime can wait for: an [`EvPipe`], or an [`OrderedPipe`].
pub trait Pipe: sealed::Drain {}

impl Pipe for EvPipe {}

impl Pipe for OrderedPipe {}

pub(crate) mod sealed {
    use super::{Consumer, EvPipe, OrderedPipe, PollError, Progress};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    /// What waiting takes. The descriptor is that of an epoll instance which the pipe owns.
    pub trait Drain: AsRawFd {
        fn is_pending(&self) -> bool;
        fn take_readiness(&mut self) -> Result<(), PollError>;
        fn drain<C: Consumer>(&mut self, consumer: &mut C) -> Progress;
    }

    macro_rules! forwarded {
        ($($pipe:ty),*) => {$(
            impl Drain for $pipe {
                fn is_pending(&self) -> bool {
                    self.is_pending()
                }

                fn take_readiness(&mut self) -> Result<(), PollError> {
                    self.wait(Some(Duration::ZERO))
                }

                fn drain<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
                    self.drain(consumer)
                }
            }
        )*};
    }

    forwarded!(EvPipe, OrderedPipe);
}

/// A pipe whose waiting is asynchronous. The drain is the same.
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
/// With `pipe.ordered(window)?` it gives the records of all CPUs by time.
#[derive(Debug)]
pub struct AsyncEvPipe<P: Pipe = EvPipe> {
    pipe: AsyncFd<P>,
}

impl<P: Pipe> AsyncEvPipe<P> {
    /// Registers the pipe with the runtime.
    ///
    /// # Errors
    ///
    /// If the runtime's own epoll does not take it.
    ///
    /// # Panics
    ///
    /// Outside of a runtime with I/O enabled.
    pub fn new(pipe: P) -> io::Result<Self> {
        Ok(Self { pipe: runtime::register(pipe)? })
    }

    /// Waits until there are records, and drains once. To cancel it loses nothing.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub async fn poll<C: Consumer>(&mut self, consumer: &mut C) -> Result<Progress, PollError> {
        let progress = std::future::poll_fn(|cx| self.poll_drain(cx, consumer)).await?;
        if progress.pending {
            // A CPU that emits without pause must not keep the other tasks from running.
            tokio::task::yield_now().await;
        }
        Ok(progress)
    }

    /// Drains whenever there are records, until `consumer` breaks. To cancel it loses nothing.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub async fn run<C: Consumer>(&mut self, consumer: &mut C) -> Result<(), PollError> {
        while self.poll(consumer).await?.flow.is_continue() {}
        Ok(())
    }

    /// The pipe.
    pub fn get_ref(&self) -> &P {
        self.pipe.get_ref()
    }

    /// Takes the pipe out of the runtime.
    pub fn into_inner(self) -> P {
        self.pipe.into_inner()
    }

    fn poll_drain<C: Consumer>(
        &mut self,
        cx: &mut Context<'_>,
        consumer: &mut C,
    ) -> Poll<Result<Progress, PollError>> {
        loop {
            // The last drain has left something: it has no wakeup to come.
            if self.pipe.get_ref().is_pending() {
                let progress = self.pipe.get_mut().drain(consumer);
                if progress.records > 0 || progress.flow.is_break() {
                    return Poll::Ready(Ok(progress));
                }
                if progress.pending {
                    // It holds them until they can be ordered. Others may run meanwhile.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            let mut guard = ready!(self.pipe.poll_read_ready_mut(cx))?;
            // Takes the readiness of our own epoll, and then the runtime's: whatever comes later
            // makes both ready again.
            let waited = guard.get_inner_mut().take_readiness();
            guard.clear_ready();
            waited?;
            let progress = guard.get_inner_mut().drain(consumer);
            if progress.records > 0 || progress.flow.is_break() {
                return Poll::Ready(Ok(progress));
            }
        }
    }
}

/// The records of a pipe as an asynchronous stream, which never ends by itself.
///
/// What is not taken from the stream stays in the rings, but for a bounded number of items.
#[derive(Debug)]
pub struct RecordStream<P: Pipe = EvPipe> {
    pipe: AsyncEvPipe<P>,
    collector: Collector,
}

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
        Ok(Self { pipe: AsyncEvPipe::new(pipe)?, collector: Collector::default() })
    }

    /// The next item. To cancel it loses nothing.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub async fn next(&mut self) -> Result<Item, PollError> {
        std::future::poll_fn(|cx| self.poll_item(cx)).await
    }

    /// Takes the pipe out of the runtime. Items that were taken out of the rings already are
    /// dropped.
    pub fn into_inner(self) -> P {
        self.pipe.into_inner()
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Result<Item, PollError>> {
        loop {
            if let Some(item) = self.collector.pop() {
                return Poll::Ready(Ok(item));
            }
            let _ = ready!(self.pipe.poll_drain(cx, &mut self.collector))?;
        }
    }
}

impl<P: Pipe + Unpin> Stream for RecordStream<P> {
    type Item = Result<Item, PollError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_item(cx).map(Some)
    }
}
