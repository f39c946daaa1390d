//! Latencies of calls, added up in the kernel in power-of-two buckets.

use core::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The per-CPU array of [`Histogram`]s, indexed by probe number.
pub const HISTOGRAMS: &str = "HISTOGRAMS";

/// The number of buckets: one for each bit of a duration.
pub const BUCKETS: usize = 64;

/// The durations of calls, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Histogram {
    /// Calls that took at least 2ⁿ ns and less than 2ⁿ⁺¹. A duration of 0 counts in the first bucket.
    pub buckets: [u64; BUCKETS],
    /// The sum of all durations, in nanoseconds.
    pub total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    /// The bucket of a duration.
    #[inline(always)]
    pub const fn bucket_of(nanoseconds: u64) -> usize {
        (nanoseconds | 1).ilog2() as usize
    }

    /// The shortest and the longest duration of a bucket, both inclusive.
    ///
    /// # Panics
    ///
    /// If there is no such bucket.
    pub fn times(bucket: usize) -> (u64, u64) {
        let first = 1u64 << bucket;
        (if bucket == 0 { 0 } else { first }, first - 1 + first)
    }

    /// The number of calls.
    pub fn calls(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The mean duration, or `None` if there were no calls.
    pub fn mean(&self) -> Option<u64> {
        self.total.checked_div(self.calls())
    }

    /// The buckets from the first to the last that has a call.
    pub fn used(&self) -> Range<usize> {
        let first = self.buckets.iter().position(|calls| *calls > 0);
        let last = self.buckets.iter().rposition(|calls| *calls > 0);
        first.zip(last).map_or(0..0, |(first, last)| first..last + 1)
    }

    /// The bucket of the given per mille of the calls, by duration: 500 is the median. `None` if there were no
    /// calls.
    pub fn permille(&self, permille: u64) -> Option<usize> {
        let calls = self.calls();
        // Of all calls, the one of this number, from 1; less than 2⁶⁴ of them fit in 2⁷⁴.
        let nth = (u128::from(calls) * u128::from(permille.min(1000))).div_ceil(1000).max(1);
        let mut seen = 0u128;
        self.used().find(|bucket| {
            seen += u128::from(self.buckets[*bucket]);
            seen >= nth
        })
    }

    /// Adds the calls of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(calls, more)| *calls += more);
        self.total += other.total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for time in times {
            histogram.buckets[Histogram::bucket_of(*time)] += 1;
            histogram.total += time;
        }
        histogram
    }

    #[test]
    fn every_time_is_in_its_bucket() {
        for (time, bucket) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (1023, 9), (1024, 10)] {
            assert_eq!(Histogram::bucket_of(time), bucket);
        }
        assert_eq!(Histogram::bucket_of(u64::MAX), 63);
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let (first, last) = Histogram::times(bucket);
            assert_eq!((Histogram::bucket_of(first), Histogram::bucket_of(last)), (bucket, bucket));
            assert_eq!(first, next);
            next = last.wrapping_add(1);
        }
        assert_eq!(next, 0);
    }

    #[test]
    fn what_is_said_of_calls_is_true_of_them() {
        let none = Histogram::default();
        assert_eq!(
            (none.calls(), none.mean(), none.permille(500), none.used()),
            (0, None, None, 0..0)
        );
        let one = of(&[700]);
        assert_eq!((one.calls(), one.mean(), one.used()), (1, Some(700), 9..10));
        assert!([0, 1, 500, 1000].iter().all(|permille| one.permille(*permille) == Some(9)));
        // Ninety-nine of 1 ns, one of 5: 99.0 % are not longer than 1 ns, 99.1 % are.
        let mut many = of(&[1; 99]);
        many.add(&of(&[5]));
        assert_eq!((many.calls(), many.mean(), many.used()), (100, Some(1), 0..3));
        assert_eq!(
            [500, 990, 991].map(|permille| many.permille(permille)),
            [Some(0), Some(0), Some(2)]
        );
    }
}
