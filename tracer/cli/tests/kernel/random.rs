//! Choices that differ from run to run.

use std::time::SystemTime;

/// The numbers of a seed.
pub(crate) struct Random(u64);

impl Random {
    /// Another seed for each run. Tests print it when they fail.
    pub(crate) fn seed() -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64
    }

    pub(crate) fn of(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        // Xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}
