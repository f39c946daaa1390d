//! How fast records arrive, and what that means for the wakeups of CPUs.

use std::time::{Duration, Instant};

/// The most wakeups per second, from all CPUs together. A wakeup costs some 5 microseconds of the CPU that emits, and
/// as much of the consumer's.
const MOST_WAKEUPS: u64 = 12_000;

/// Lazy CPUs become eager if there are no more wakeups per second than this, with theirs. It is less than
/// [`MOST_WAKEUPS`], so that a steady rate does not make a CPU change its mode again and again.
const FEW_WAKEUPS: u64 = 8_000;

/// The number of wakeups over which the rate is measured. Fewer would make a random cluster look like a high rate.
const SAMPLE: u64 = 64;

/// The time over which the rate of a lazy CPU is measured, at least.
const SPAN: Duration = Duration::from_millis(8);

/// The number of records per sweep from which a CPU packs. Below that, sending each record costs less than the
/// interrupts that have blocks sent.
const WORTH_PACKING: u64 = 8;

/// The rate of records since the last decisions.
#[derive(Debug)]
pub(crate) struct Rate {
    /// Records that have woken the consumer, and since when they are counted.
    wakeups: u64,
    since: Instant,
    /// The same since the last decision about lazy CPUs.
    beside: u64,
    decided: Instant,
    interval: Duration,
}

/// The records that have woken the consumer in one measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wakeups {
    records: u64,
    are_too_many: bool,
}

impl Wakeups {
    /// Whether there are too many wakeups, and a CPU with this many of the records causes more than the average of
    /// the `active` CPUs that have any.
    pub(crate) fn are_too_many_from(&self, records: u64, active: usize) -> bool {
        self.are_too_many && records > 0 && records * active as u64 >= self.records
    }

    /// Whether a CPU with this many of the records packs when it becomes lazy.
    pub(crate) fn deserve_packing(&self, records: u64) -> bool {
        records >= self.records / 4
    }
}

/// The rate of each CPU, over a time.
#[derive(Debug)]
pub(crate) struct Pace {
    span: Duration,
    interval: Duration,
    /// The records of eager CPUs in this time.
    wakeups: u64,
}

impl Rate {
    /// `interval` is the time between two sweeps.
    pub(crate) fn new(interval: Duration) -> Self {
        let now = Instant::now();
        Self { wakeups: 0, since: now, beside: 0, decided: now, interval }
    }

    /// Counts records that have woken the consumer.
    pub(crate) fn woken(&mut self, records: u64) {
        self.wakeups += records;
        self.beside += records;
    }

    /// The wakeups of eager CPUs, if there were enough to tell their rate. Begins a new measurement.
    pub(crate) fn of_wakeups(&mut self) -> Option<Wakeups> {
        if self.wakeups < SAMPLE {
            return None;
        }
        let now = Instant::now();
        let records = std::mem::take(&mut self.wakeups);
        let span = now - std::mem::replace(&mut self.since, now);
        Some(Wakeups { records, are_too_many: per_second(records, span) > MOST_WAKEUPS })
    }

    /// Begins to measure the rate of lazy CPUs.
    pub(crate) fn restart(&mut self, now: Instant) {
        (self.beside, self.decided) = (0, now);
    }

    /// What to decide about lazy CPUs with, if enough time has passed since the last decision.
    pub(crate) fn pace(&mut self, now: Instant) -> Option<Pace> {
        let span = now - self.decided;
        // Between two sweeps of a CPU that packs, nothing may arrive although it emits.
        if span < SPAN.max(self.interval * 5 / 2) {
            return None;
        }
        let wakeups = self.beside;
        self.restart(now);
        Some(Pace { span, interval: self.interval, wakeups })
    }
}

impl Pace {
    /// Whether a lazy CPU with this many records may become eager. Counts its wakeups if it may.
    pub(crate) fn has_room_for(&mut self, records: u64) -> bool {
        let wakeups = self.wakeups + records;
        let has_room = per_second(wakeups, self.span) <= FEW_WAKEUPS;
        if has_room {
            self.wakeups = wakeups;
        }
        has_room
    }

    /// Whether a lazy CPU with this many records packs.
    pub(crate) fn deserves_packing(&self, records: u64) -> bool {
        u128::from(records) * self.interval.as_nanos()
            >= u128::from(WORTH_PACKING) * self.span.as_nanos()
    }
}

fn per_second(records: u64, span: Duration) -> u64 {
    let per_second = u128::from(records) * 1_000_000_000 / span.as_nanos().max(1);
    u64::try_from(per_second).unwrap_or(u64::MAX)
}
