//! The head of a scratch slot. User space reads it to recover what an offline CPU left in the slot.

use crate::block::BlockPrefix;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The number of different kinds that a block may hold before it is sent. Every additional kind
/// makes the block slower to tally.
pub const BLOCK_KINDS: usize = 4;

/// The head of a slot; the records of its block follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SlotHead {
    /// The number of claims on the slot so far, without those that programs withdrew because another program had
    /// claimed the slot, too. The slot is free if this equals `given_back`.
    pub claims: u64,
    /// The number of times that the slot was given back. Only the program that holds the slot writes this.
    pub given_back: u64,
    /// The bytes of records in the block.
    pub fill: u32,
    /// The sequence number of the next block.
    pub seq: u32,
    /// The time of the block, if it has one.
    pub time: u64,
    /// The kinds in the block, and the number of records of each.
    pub kinds: [KindCount; BLOCK_KINDS],
    /// Not used. The records after the prefix are 8-aligned.
    pub reserved: u32,
    /// The prefix that the block has once it is sent.
    pub prefix: BlockPrefix,
}

/// A number of records of one kind, in a single word that is read just as it was written. (Reading
/// two separately written halves as one word waits for the processor's store buffer.)
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct KindCount(u32);

impl KindCount {
    /// No record of any kind.
    pub const NONE: Self = Self(0);

    /// One record of the kind at `index`.
    #[inline(always)]
    pub const fn one(index: u32) -> Self {
        Self((index + 1) << 16 | 1)
    }

    /// Whether this counts records of the kind at `index`.
    #[inline(always)]
    pub const fn is_of(self, index: u32) -> bool {
        self.0 >> 16 == index + 1
    }

    /// One record more. A block has no room for enough records to overflow the count.
    #[inline(always)]
    #[must_use]
    pub const fn and_one(self) -> Self {
        Self(self.0 + 1)
    }

    /// The word, for a function that takes only numbers.
    #[inline(always)]
    pub const fn word(self) -> u32 {
        self.0
    }

    /// The inverse of [`word`](Self::word).
    #[inline(always)]
    pub const fn of_word(word: u32) -> Self {
        Self(word)
    }

    /// The kind's index and the number of records, or `None` for no records.
    #[inline(always)]
    pub const fn get(self) -> Option<(u32, u32)> {
        match (self.0 >> 16).checked_sub(1) {
            Some(index) => Some((index, self.0 & 0xffff)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_and_its_count_are_one_word() {
        assert_eq!(KindCount::NONE.get(), None);
        let count = KindCount::one(0).and_one().and_one();
        assert_eq!(count.get(), Some((0, 3)));
        assert!(count.is_of(0) && !count.is_of(1));
        assert_eq!(KindCount::one(255).get(), Some((255, 1)));
    }
}
