//! Per-CPU counters, read where a call is entered and where it returns.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The most counters that a call can be measured with.
pub const COUNTERS: usize = 4;

/// The perf event arrays that the programs read: one for each counter, with an event for each CPU.
pub const MAPS: [&str; COUNTERS] = ["COUNTERS_0", "COUNTERS_1", "COUNTERS_2", "COUNTERS_3"];

/// The array of generations, indexed by CPU: it tells which of the CPU's successive events are in [`MAPS`]. The number
/// is odd while they are being replaced.
pub const GENERATIONS: &str = "COUNTER_GENERATIONS";

/// Stands for a count that is unknown.
pub const UNKNOWN: u64 = u64::MAX;

/// A CPU's counter at one moment, as the kernel gives it (`struct bpf_perf_event_value`). All zero if it could not
/// be read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CounterValue {
    /// How often the event had occurred.
    pub count: u64,
    /// How long the event had been enabled, in nanoseconds.
    pub enabled: u64,
    /// How long of that it had been counting, in nanoseconds.
    pub running: u64,
}

impl CounterValue {
    const fn since(&self, earlier: &Self) -> u64 {
        let running = self.running.wrapping_sub(earlier.running);
        let is_whole = running == self.enabled.wrapping_sub(earlier.enabled);
        let is_read = earlier.running != 0 && self.running > earlier.running;
        if is_read && is_whole { self.count.wrapping_sub(earlier.count) } else { UNKNOWN }
    }
}

/// A CPU's counters at one moment.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Counted {
    /// Which counters they are: the CPU (low half) and its generation (high half).
    pub source: u64,
    /// The counters. On the wire, there are only as many as the trace uses.
    pub counts: [CounterValue; COUNTERS],
}

impl Counted {
    /// Size in bytes of the given number of counters, at most [`COUNTERS`].
    pub const fn bytes(counters: usize) -> usize {
        if counters == 0 { 0 } else { size_of::<u64>() + counters * size_of::<CounterValue>() }
    }

    /// Identifies the counters of a CPU and generation.
    #[inline(always)]
    pub const fn source(cpu: u32, generation: u32) -> u64 {
        cpu as u64 | (generation as u64) << 32
    }

    /// What the `n`th counter has counted since an earlier moment. [`UNKNOWN`] unless it belongs to the same CPU and
    /// generation, was read at both moments, and was counting all the time in between.
    #[inline(always)]
    pub const fn since(&self, earlier: &Self, n: usize) -> u64 {
        let is_settled = self.source >> 32 & 1 == 0;
        if self.source == earlier.source && is_settled {
            self.counts[n].since(&earlier.counts[n])
        } else {
            UNKNOWN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNTERS, Counted, CounterValue, UNKNOWN};

    const EARLIER: CounterValue = CounterValue { count: 700, enabled: 90, running: 80 };
    const LATER: CounterValue = CounterValue { count: 705, enabled: 100, running: 90 };

    /// The count of the counter at an index, where all others could not be read.
    fn since(later: (u64, CounterValue), earlier: (u64, CounterValue), n: usize) -> u64 {
        let [mut returned, mut entered] =
            [later, earlier].map(|(source, _)| Counted { source, ..Counted::default() });
        returned.counts[n] = later.1;
        entered.counts[n] = earlier.1;
        for other in (0..COUNTERS).filter(|&other| other != n) {
            assert_eq!(returned.since(&entered, other), UNKNOWN);
        }
        returned.since(&entered, n)
    }

    #[test]
    fn a_count_is_known_if_all_of_it_was_counted() {
        for n in 0..COUNTERS {
            let since = |later, earlier| since((1, later), (1, earlier), n);
            assert_eq!(since(LATER, EARLIER), 5);
            assert_eq!(since(CounterValue { count: 700, ..LATER }, EARLIER), 0);
            for later in [
                CounterValue { enabled: 101, ..LATER },
                // It has stopped, as when its CPU was offline.
                CounterValue { enabled: 90, running: 80, ..LATER },
                CounterValue::default(),
            ] {
                assert_eq!(since(later, EARLIER), UNKNOWN, "{later:?}");
            }
            let unread = CounterValue::default();
            assert_eq!(since(LATER, unread), UNKNOWN);
            assert_eq!(since(CounterValue { enabled: 90, ..LATER }, unread), UNKNOWN);
            assert_eq!(since(unread, unread), UNKNOWN);
        }
    }

    #[test]
    fn a_count_is_known_of_the_same_events_alone() {
        let known = |later, earlier| since((later, LATER), (earlier, EARLIER), 0) != UNKNOWN;
        let source = Counted::source;
        assert!(known(source(3, 0), source(3, 0)) && known(source(3, 2), source(3, 2)));
        assert!(!known(source(3, 0), source(0, 0)));
        // Its events have been replaced, or are being replaced.
        assert!(!known(source(3, 2), source(3, 0)));
        assert!(!known(source(3, 1), source(3, 0)));
        assert!(!known(source(3, 1), source(3, 1)));
    }

    #[test]
    fn no_more_counters_travel_than_there_are() {
        assert_eq!([0, 1, 2].map(Counted::bytes), [0, 32, 56]);
        assert_eq!(Counted::bytes(COUNTERS), size_of::<Counted>());
    }
}
