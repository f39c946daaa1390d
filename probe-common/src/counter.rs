//! Counters of CPUs, read where a call is entered and where it returns.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The perf event array that counters are read from, one for each CPU.
pub const COUNTERS: &str = "COUNTERS";

/// In the place of a count that nobody knows.
pub const UNKNOWN: u64 = u64::MAX;

/// A CPU's counter, as it was at a moment. Zero but for the CPU if it could not be read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Counted {
    /// Which CPU's.
    pub cpu: u64,
    /// How often its event had happened. From here on, it is as the kernel gives it (`struct
    /// bpf_perf_event_value`).
    pub count: u64,
    /// For how long it had been switched on, in nanoseconds.
    pub enabled: u64,
    /// For how long of that it had counted.
    pub running: u64,
}

impl Counted {
    /// What has been counted since an earlier moment; [`UNKNOWN`] unless it is the same CPU's counter, was read
    /// at both, and has counted all the time in between.
    #[inline(always)]
    pub const fn since(&self, earlier: &Self) -> u64 {
        let running = self.running.wrapping_sub(earlier.running);
        let is_whole = running == self.enabled.wrapping_sub(earlier.enabled);
        let is_read = earlier.running != 0 && self.running > earlier.running;
        if self.cpu == earlier.cpu && is_read && is_whole {
            self.count.wrapping_sub(earlier.count)
        } else {
            UNKNOWN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, UNKNOWN};

    const EARLIER: Counted = Counted { cpu: 1, count: 700, enabled: 90, running: 80 };
    const LATER: Counted = Counted { cpu: 1, count: 705, enabled: 100, running: 90 };

    #[test]
    fn a_count_is_known_if_all_of_it_was_counted() {
        assert_eq!(LATER.since(&EARLIER), 5);
        assert_eq!(Counted { count: 700, ..LATER }.since(&EARLIER), 0);
        for later in [
            Counted { cpu: 0, ..LATER },
            Counted { enabled: 101, ..LATER },
            // It has stopped, as when its CPU was offline.
            Counted { enabled: 90, running: 80, ..LATER },
            Counted { cpu: 1, ..Counted::default() },
        ] {
            assert_eq!(later.since(&EARLIER), UNKNOWN, "{later:?}");
        }
        let unread = Counted { cpu: 1, ..Counted::default() };
        assert_eq!(LATER.since(&unread), UNKNOWN);
        assert_eq!(Counted { enabled: 90, ..LATER }.since(&unread), UNKNOWN);
        assert_eq!(unread.since(&unread), UNKNOWN);
    }
}
