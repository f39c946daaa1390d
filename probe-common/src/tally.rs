//! The eBPF side's counts of emitted records, per CPU and kind.

use crate::limits::KINDS;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Why a record was not sent: the errors of `bpf_perf_event_output`, and the pipe's own errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum FailureClass {
    /// `ENOSPC`: the ring has no room, is paused, or is not mapped. The kernel counts these as lost,
    /// too.
    NoSpace = 0,
    /// `ENOENT`: the map has no event for this CPU.
    NoEvent = 1,
    /// `EOPNOTSUPP`: the event is not enabled, or belongs to another CPU.
    NotActive = 2,
    /// `E2BIG`: the CPU's id is past the end of the map, or the record is longer than
    /// [`MAX_EMIT`](crate::limits::MAX_EMIT).
    TooBig = 3,
    /// `EBUSY`: the kernel was already in three outputs on this CPU.
    Busy = 4,
    /// `EFAULT`.
    Fault = 5,
    /// All scratch slots of this CPU were taken: see [`DEPTH`](crate::limits::DEPTH).
    Nested = 6,
    /// Any other errno.
    Other = 7,
}

impl FailureClass {
    /// How many classes there are.
    pub const COUNT: usize = 8;

    /// All classes, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::NoSpace,
        Self::NoEvent,
        Self::NotActive,
        Self::TooBig,
        Self::Busy,
        Self::Fault,
        Self::Nested,
        Self::Other,
    ];

    /// The class of a negative errno, as helpers return it.
    #[inline]
    pub const fn of(errno: i64) -> Self {
        match errno {
            -28 => Self::NoSpace,
            -2 => Self::NoEvent,
            -95 => Self::NotActive,
            -7 => Self::TooBig,
            -16 => Self::Busy,
            -14 => Self::Fault,
            _ => Self::Other,
        }
    }

    /// A description for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSpace => "ring full",
            Self::NoEvent => "no event for the CPU",
            Self::NotActive => "event not active",
            Self::TooBig => "too big",
            Self::Busy => "nested in the kernel",
            Self::Fault => "fault",
            Self::Nested => "nested too deep",
            Self::Other => "other error",
        }
    }
}

/// What was counted for one kind, in records.
///
/// A record is counted when its block is sent or fails. Until then it is in an open block, and not
/// counted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct KindTally {
    /// Records that the kernel accepted.
    pub sent: u64,
    /// Records that the kernel refused, or that found no slot, indexed by [`FailureClass`].
    pub failed: [u64; FailureClass::COUNT],
}

impl KindTally {
    /// Adds what one bank has counted.
    pub fn add(&mut self, bank: Bank, records: u64) {
        let sum = match bank {
            Bank::SentFirst | Bank::SentNested => &mut self.sent,
            Bank::Failed(class) => &mut self.failed[class as usize],
        };
        *sum = sum.wrapping_add(records);
    }

    /// Records that failed for any reason.
    pub fn failed(&self) -> u64 {
        self.failed.iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }

    /// Records that were sent or failed. This is a sum and not a separate count. A reader that runs while a
    /// program counts therefore sees no record as both or neither.
    pub fn attempted(&self) -> u64 {
        self.sent.wrapping_add(self.failed())
    }

    /// What was counted since the tally was `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            sent: self.sent.wrapping_sub(earlier.sent),
            failed: difference(&self.failed, &earlier.failed),
        }
    }

    /// Records that failed for one reason.
    pub fn failed_for(&self, class: FailureClass) -> u64 {
        self.failed[class as usize]
    }
}

fn difference<const N: usize>(now: &[u64; N], earlier: &[u64; N]) -> [u64; N] {
    core::array::from_fn(|at| now[at].wrapping_sub(earlier[at]))
}

impl core::ops::AddAssign for KindTally {
    fn add_assign(&mut self, other: Self) {
        self.sent = self.sent.wrapping_add(other.sent);
        for (sum, n) in self.failed.iter_mut().zip(other.failed) {
            *sum = sum.wrapping_add(n);
        }
    }
}

/// One CPU's counts of the outputs that the kernel refused. Each output is a block of one or more
/// records. Programs add to it atomically.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct OutputTally {
    /// Records in the outputs that failed with [`FailureClass::NoSpace`].
    pub lost_records: u64,
    /// Outputs that failed, indexed by [`FailureClass`].
    pub failed: [u64; FailureClass::COUNT],
}

/// One CPU's counts of one sort, in records. Indexed by [`RecordKind::index`](crate::RecordKind::index).
///
/// Every program adds to a bank atomically, except to [`Bank::SentFirst`].
pub type TallyBank = [u64; KINDS as usize];

/// What a bank counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bank {
    /// Records of the first slot that the kernel accepted. Only the program that holds the slot counts here.
    SentFirst,
    /// Records of all other slots that the kernel accepted.
    SentNested,
    /// Records that failed.
    Failed(FailureClass),
}

impl Bank {
    /// All banks, in the order of their indexes in the map.
    pub fn all() -> impl Iterator<Item = Self> {
        let failed = FailureClass::ALL.into_iter().map(Self::Failed);
        [Self::SentFirst, Self::SentNested].into_iter().chain(failed)
    }

    /// The index of the bank in the map.
    #[inline(always)]
    pub const fn index(self) -> u32 {
        match self {
            Self::SentFirst => 0,
            Self::SentNested => 1,
            Self::Failed(class) => 2 + class as u32,
        }
    }
}

impl OutputTally {
    /// What was counted since the tally was `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            lost_records: self.lost_records.wrapping_sub(earlier.lost_records),
            failed: difference(&self.failed, &earlier.failed),
        }
    }

    /// Outputs that failed for one reason. Those with [`FailureClass::NoSpace`] are the outputs that the
    /// kernel counts as lost.
    pub fn failed_for(&self, class: FailureClass) -> u64 {
        self.failed[class as usize]
    }
}

impl core::ops::AddAssign for OutputTally {
    fn add_assign(&mut self, other: Self) {
        self.lost_records = self.lost_records.wrapping_add(other.lost_records);
        for (sum, n) in self.failed.iter_mut().zip(other.failed) {
            *sum = sum.wrapping_add(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TALLY_BANKS;
    use std::vec::Vec;

    #[test]
    fn classes_index_their_counters() {
        for (at, class) in FailureClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, at);
        }
    }

    #[test]
    fn banks_are_in_the_order_of_their_indexes() {
        let indexes: Vec<u32> = Bank::all().map(Bank::index).collect();
        assert_eq!(indexes, (0..TALLY_BANKS).collect::<Vec<_>>());
    }
}
