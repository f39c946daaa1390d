//! What a counter says.

use std::ops::AddAssign;
use std::time::Duration;

/// A count, and for how long it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// How often the event happened while it was counted.
    pub value: u64,
    /// For how long the counter was enabled; for a thread's, while the thread ran.
    pub enabled: Duration,
    /// For how long of that it counted. Less, where more events want a counter of the CPU than it has.
    pub running: Duration,
}

impl Reading {
    pub(super) fn new(value: u64, enabled: u64, running: u64) -> Self {
        let (enabled, running) = (Duration::from_nanos(enabled), Duration::from_nanos(running));
        Self { value, enabled, running }
    }

    /// What the count would have been, had it been counted all the time. `None` if it was not at all,
    /// although it was enabled.
    pub fn scaled(&self) -> Option<u64> {
        scaled(self.value, self.enabled, self.running)
    }
}

/// What a count would have been, had it been counted all the time.
pub(super) fn scaled(value: u64, enabled: Duration, running: Duration) -> Option<u64> {
    if enabled == running {
        return Some(value);
    }
    let scaled = u128::from(value) * enabled.as_nanos();
    let scaled = scaled.checked_div(running.as_nanos())?;
    Some(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// A count of one of the places of a [`Scope`](super::Scope).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaceReading {
    /// The thread, where it is one that is counted.
    pub thread: Option<u32>,
    /// The CPU, where it is one that is counted.
    pub cpu: Option<u32>,
    /// The count.
    pub reading: Reading,
}

/// Of all places together. Times add up, too: two CPUs count two seconds in one.
impl AddAssign for Reading {
    fn add_assign(&mut self, other: Self) {
        self.value = self.value.wrapping_add(other.value);
        self.enabled += other.enabled;
        self.running += other.running;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_to_the_time_they_were_asked_for() {
        let scaled = |value, enabled, running| Reading::new(value, enabled, running).scaled();
        assert_eq!(scaled(10, 100, 50), Some(20));
        assert_eq!(scaled(10, 100, 100), Some(10));
        assert_eq!(scaled(7, 3, 2), Some(10), "whole events");
        assert_eq!(scaled(0, 0, 0), Some(0), "not enabled yet");
        assert_eq!(scaled(0, 100, 0), None, "never counted");
        assert_eq!(scaled(u64::MAX / 2, u64::MAX, 1 << 60), Some(u64::MAX), "no overflow");
    }

    #[test]
    fn places_add_up() {
        let mut sum = Reading::default();
        sum += Reading::new(1, 10, 5);
        sum += Reading::new(2, 20, 20);
        assert_eq!(sum, Reading::new(3, 30, 25));
    }
}
