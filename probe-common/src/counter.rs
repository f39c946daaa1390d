//! Counters of CPUs, read where a call is entered and where it returns.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most counters that a call is told with.
pub const COUNTERS: usize = 4;

/// The perf event arrays that counters are read from: one for each counter, with an event for each CPU.
pub const MAPS: [&str; COUNTERS] = ["COUNTERS_0", "COUNTERS_1", "COUNTERS_2", "COUNTERS_3"];

/// The array of generations, by CPU: which of the events that the CPU has had are in [`MAPS`]. Odd while they are
/// being replaced.
pub const GENERATIONS: &str = "COUNTER_GENERATIONS";

/// In the place of a count that nobody knows.
pub const UNKNOWN: u64 = u64::MAX;

/// A CPU's counter, as it was at a moment: as the kernel gives it (`struct bpf_perf_event_value`). Zero if it
/// could not be read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Count {
    /// How often its event had happened.
    pub count: u64,
    /// For how long it had been switched on, in nanoseconds.
    pub enabled: u64,
    /// For how long of that it had counted.
    pub running: u64,
}

impl Count {
    const fn since(&self, earlier: &Self) -> u64 {
        let running = self.running.wrapping_sub(earlier.running);
        let is_whole = running == self.enabled.wrapping_sub(earlier.enabled);
        let is_read = earlier.running != 0 && self.running > earlier.running;
        if is_read && is_whole { self.count.wrapping_sub(earlier.count) } else { UNKNOWN }
    }
}

/// A CPU's counters, as they were at a moment.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Counted {
    /// Whose they are: the CPU (low half), and its generation (high half).
    pub source: u64,
    /// Each of them. On the wire, there are no more than the trace has.
    pub counts: [Count; COUNTERS],
}

impl Counted {
    /// How many bytes so many counters take, at most [`COUNTERS`].
    pub const fn bytes(counters: usize) -> usize {
        if counters == 0 { 0 } else { size_of::<u64>() + counters * size_of::<Count>() }
    }

    /// Whose the counters of a CPU are.
    #[inline(always)]
    pub const fn source(cpu: u32, generation: u32) -> u64 {
        cpu as u64 | (generation as u64) << 32
    }

    /// What the `n`th has counted since an earlier moment; [`UNKNOWN`] unless it is the same CPU's counter, was
    /// read at both, and has counted all the time in between.
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
    use super::{COUNTERS, Count, Counted, UNKNOWN};

    const EARLIER: Count = Count { count: 700, enabled: 90, running: 80 };
    const LATER: Count = Count { count: 705, enabled: 100, running: 90 };

    /// What the counter at a place has counted, where all others could not be read.
    fn since(later: (u64, Count), earlier: (u64, Count), n: usize) -> u64 {
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
            assert_eq!(since(Count { count: 700, ..LATER }, EARLIER), 0);
            for later in [
                Count { enabled: 101, ..LATER },
                // It has stopped, as when its CPU was offline.
                Count { enabled: 90, running: 80, ..LATER },
                Count::default(),
            ] {
                assert_eq!(since(later, EARLIER), UNKNOWN, "{later:?}");
            }
            let unread = Count::default();
            assert_eq!(since(LATER, unread), UNKNOWN);
            assert_eq!(since(Count { enabled: 90, ..LATER }, unread), UNKNOWN);
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
