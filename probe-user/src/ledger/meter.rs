//! Reads the counts of a pipe from outside.

use crate::error::TallyError;
use crate::ledger::accounts::Accounts;
use crate::ledger::balance::Ledger;
use crate::ledger::handed_over::HandedOver;
use crate::queue::counts::{QueueCounts, Received};
use crate::queue::evqueue::EvQueue;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What each queue of a pipe has received, by CPU. A CPU that goes online joins the list.
pub(crate) type Shared = Arc<Mutex<Vec<(u32, Arc<Received>)>>>;

/// Adds queues to the list.
pub(crate) fn share<'q>(shared: &Shared, queues: impl IntoIterator<Item = &'q EvQueue>) {
    let queues = queues.into_iter().map(|queue| (queue.cpu(), Arc::clone(queue.received())));
    // The list is whole even after a panic elsewhere: one entry is added to it at once.
    shared.lock().unwrap_or_else(PoisonError::into_inner).extend(queues);
}

/// Reads the counts of a pipe in any thread, while the pipe runs in another one: for metrics, or a progress display.
///
/// [`EvPipe::meter`](crate::EvPipe::meter) returns one. It neither waits for the consumer nor slows it down, so it also
/// shows that a consumer hangs. After the pipe is closed, it shows what the pipe had received, and what programs go on to
/// count.
///
/// # Examples
///
/// ```no_run
/// # use probe_user::{EvPipe, Stop, TallyError};
/// # fn export(_: &str, _: f64) {}
/// # fn example(mut pipe: EvPipe, mut handlers: probe_user::EvHandlers) -> Result<(), Box<dyn std::error::Error>> {
/// let mut meter = pipe.meter();
/// std::thread::spawn(move || {
///     loop {
///         std::thread::sleep(std::time::Duration::from_secs(10));
///         let rates = meter.rates()?;
///         export("records_handled_per_second", rates.handled);
///         export("records_failed_per_second", rates.failed);
///     }
///     # #[allow(unreachable_code)]
///     Ok::<_, TallyError>(())
/// });
/// pipe.run(&Stop::new()?, &mut handlers)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Meter {
    accounts: Option<Arc<Accounts>>,
    shared: Shared,
    /// The sums at the time of the last look at the rates.
    last: Sums,
}

/// How many records there were per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Rates {
    /// Records that programs sent or tried to send.
    pub attempted: f64,
    /// Records that were delivered to the consumer.
    pub handled: f64,
    /// Records that could not be sent, for whatever reason.
    pub failed: f64,
    /// The time that these are averages of.
    pub over: Duration,
}

/// The numbers of records at a time.
#[derive(Clone, Copy, Debug)]
struct Sums {
    at: Instant,
    attempted: u64,
    handled: u64,
    failed: u64,
}

impl Sums {
    fn of(ledger: &Ledger) -> Self {
        let (attempted, handled, failed) = (ledger.attempted(), ledger.handled(), ledger.failed());
        Self { at: Instant::now(), attempted, handled, failed }
    }

    fn rates_since(self, before: Self) -> Rates {
        let over = self.at.duration_since(before.at);
        let seconds = over.as_secs_f64().max(f64::MIN_POSITIVE);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        Rates {
            attempted: rate(self.attempted, before.attempted),
            handled: rate(self.handled, before.handled),
            failed: rate(self.failed, before.failed),
            over,
        }
    }
}

impl Meter {
    pub(crate) fn new(accounts: Option<Arc<Accounts>>, shared: Shared) -> Self {
        let last = Sums { at: Instant::now(), attempted: 0, handled: 0, failed: 0 };
        let mut this = Self { accounts, shared, last };
        if let Ok(ledger) = this.ledger() {
            this.last = Sums::of(&ledger);
        }
        this
    }

    /// Accounts for every record so far, as [`EvPipe::ledger`](crate::EvPipe::ledger), but seen from outside: what is
    /// in the rings counts as unread, and there is no count of the kernel ([`Ledger::is_confirmed`] is false).
    ///
    /// Records that an [`OrderedPipe`](crate::OrderedPipe), [`OwnedRecords`](crate::OwnedRecords) or a stream holds count
    /// as handled.
    ///
    /// # Errors
    ///
    /// If the pipe has no [`tally`](crate::EvPipe::tally), or it cannot be read.
    pub fn ledger(&self) -> Result<Ledger, TallyError> {
        let accounts = self.accounts.as_ref().ok_or(TallyError::NoTally)?;
        accounts.read_outside(self.received().into_iter())
    }

    /// What the queue of each CPU has seen so far, in ascending order of CPU. This needs no tally.
    pub fn counts(&self) -> Vec<(u32, QueueCounts)> {
        self.received().into_iter().map(|(cpu, received)| (cpu, received.counts())).collect()
    }

    /// How many records there were per second since the last call, or since [`EvPipe::meter`](crate::EvPipe::meter).
    ///
    /// # Errors
    ///
    /// As [`ledger`](Self::ledger).
    pub fn rates(&mut self) -> Result<Rates, TallyError> {
        let now = Sums::of(&self.ledger()?);
        Ok(now.rates_since(std::mem::replace(&mut self.last, now)))
    }

    /// Begins the ledger of the pipe where that of an earlier consumer ends, from which the pipe has taken over CPUs
    /// ([`Options::take_over`](crate::Options::take_over)). Without this, what programs sent to the earlier consumer while the
    /// pipe was being opened is unread in this ledger.
    pub fn begin_after(&self, earlier: &HandedOver) {
        if let Some(accounts) = &self.accounts {
            accounts.begin_at(&earlier.counted);
        }
    }

    fn received(&self) -> Vec<(u32, Arc<Received>)> {
        let mut all = self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort_by_key(|&(cpu, _)| cpu);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_per_second() {
        let at = Instant::now();
        let before = Sums { at, attempted: 100, handled: 90, failed: 10 };
        let later = at + Duration::from_secs(2);
        let now = Sums { at: later, attempted: 300, handled: 250, failed: 20 };
        let over = Duration::from_secs(2);
        let expected = Rates { attempted: 100.0, handled: 80.0, failed: 5.0, over };
        assert_eq!(now.rates_since(before), expected);
        // Twice at the same time, nothing has happened.
        let none = Rates { over: Duration::ZERO, ..Rates::default() };
        assert_eq!(now.rates_since(now), none);
    }
}
