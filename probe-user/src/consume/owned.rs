//! A pipe as an iterator.

use crate::consume::item::{Collector, Item};
use crate::error::{PollError, TallyError};
use crate::ledger::balance::Ledger;
use crate::pipe::closing::Summary;
use crate::pipe::driving::Drive;
use crate::pipe::evpipe::EvPipe;
use crate::pipe::stop::Stop;
use crate::queue::consumer::Consumer;
use probe_common::RawRecord;
use probe_sys::hint::forked;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The records of a pipe as a blocking iterator. It ends only if it has a stop ([`until`](Self::until)).
///
/// A bounded number of records is taken out of the rings before you ask for them. [`ledger`](Self::ledger) and
/// [`close`](Self::close) count what you have not taken as unread.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pipe: probe_user::EvPipe = todo!();
/// for item in probe_user::OwnedRecords::new(pipe).take(10) {
///     println!("{:?}", item?);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OwnedRecords {
    pipe: EvPipe,
    collector: Collector,
    ending: Option<Ending>,
}

/// When an iterator ends.
#[derive(Debug)]
struct Ending {
    stop: Stop,
    /// Whether everything that was emitted before the stop has been collected.
    has_ended: bool,
}

impl OwnedRecords {
    /// Creates an iterator over the records of `pipe`, which never ends.
    pub fn new(pipe: EvPipe) -> Self {
        Self { pipe, collector: Collector::default(), ending: None }
    }

    /// Creates an iterator that ends once `stop` is stopped, after everything that was emitted before the stop. That of a flight
    /// recorder ends at once: its records come with a dump only.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait for the stop, or if this process was forked from the one that opened the pipe.
    pub fn until(pipe: EvPipe, stop: &Stop) -> io::Result<Self> {
        if !pipe.is_here() {
            return Err(forked());
        }
        pipe.epoll().add(stop.as_fd())?;
        let ending = Ending { stop: stop.clone(), has_ended: false };
        Ok(Self { ending: Some(ending), ..Self::new(pipe) })
    }

    /// The next item, if there is one within `timeout`. `None` if there is none by then, or the iterator has ended.
    ///
    /// # Errors
    ///
    /// As [`EvPipe::poll`].
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<Item>, PollError> {
        // A time too far away for the clock is none.
        self.next_before(Instant::now().checked_add(timeout))
    }

    /// Accounts for every record so far, as [`EvPipe::ledger`]. Records that you have not taken are unread.
    ///
    /// # Errors
    ///
    /// As [`EvPipe::ledger`].
    pub fn ledger(&self) -> Result<Ledger, TallyError> {
        self.pipe.ledger().map(|ledger| self.collector.corrected(ledger))
    }

    /// Returns the pipe, and the items that were taken out of its rings but not by you. For the pipe, their records are
    /// handled.
    pub fn into_parts(mut self) -> (EvPipe, Vec<Item>) {
        self.forget_stop();
        (self.pipe, self.collector.into_items())
    }

    /// Closes the pipe. What you have not taken is lost, and unread in the ledger.
    pub fn close(mut self) -> Summary {
        self.forget_stop();
        let summary = self.pipe.close(&mut Refusal);
        let ledger = summary.ledger.map(|ledger| self.collector.corrected(ledger));
        Summary { ledger, ..summary }
    }

    /// The next item before a time; `None` waits without a limit.
    fn next_before(&mut self, deadline: Option<Instant>) -> Result<Option<Item>, PollError> {
        loop {
            if let Some(item) = self.collector.pop() {
                return Ok(Some(item));
            }
            if let Some(Ending { stop, has_ended }) = &mut self.ending
                && stop.is_stopped()
            {
                if std::mem::replace(has_ended, true) {
                    return Ok(None);
                }
                // The rings bound how much that is.
                self.collector.take_all();
                let _ = self.pipe.drain_all(&mut self.collector);
                continue;
            }
            let left = deadline.map(|time| time.saturating_duration_since(Instant::now()));
            let _ = self.pipe.poll(left, &mut self.collector)?;
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(self.collector.pop());
            }
        }
    }

    fn forget_stop(&mut self) {
        if let Some(Ending { stop, .. }) = self.ending.take() {
            self.pipe.forget(&stop);
        }
    }
}

impl Iterator for OwnedRecords {
    type Item = Result<Item, PollError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_before(None).transpose()
    }
}

/// A consumer that takes nothing.
struct Refusal;

impl Consumer for Refusal {
    fn record(&mut self, _: u32, _: RawRecord<'_>) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn accepts(&mut self) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}
