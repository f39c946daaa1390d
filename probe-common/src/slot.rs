//! A scratch slot, as far as user space reads it: what a CPU that went offline has left in there.

use crate::block::BlockPrefix;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How many different kinds a block may have before it is sent: with each one more, it takes longer
/// to tally.
pub const BLOCK_KINDS: usize = 4;

/// What a slot begins with; the records of its block follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SlotHead {
    /// How many programs have claimed the slot so far, without those that found that another one had claimed
    /// it, too, and have withdrawn. Nobody holds it if as many have given it back.
    pub claims: u64,
    /// How many of them had it, and have given it back. Only who has it writes this.
    pub given_back: u64,
    /// Bytes of records in the block.
    pub fill: u32,
    /// The next block's sequence number.
    pub seq: u32,
    /// The time of the block, where it has one.
    pub time: u64,
    /// How many records of which kinds are in the block.
    pub kinds: [KindCount; BLOCK_KINDS],
    /// How long the block may become, in bytes of records: what the consumer wanted when it began. While it is
    /// empty, this says nothing.
    pub limit: u32,
    /// What the block begins with once it is sent.
    pub prefix: BlockPrefix,
}

/// How many records of a kind: in one word, which is read as it was written. (Two halves that are
/// read as one wait for the processor's store buffer.)
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

    /// Whether it counts records of the kind at `index`.
    #[inline(always)]
    pub const fn is_of(self, index: u32) -> bool {
        self.0 >> 16 == index + 1
    }

    /// With one record more. There is no room in a block for as many as would overflow.
    #[inline(always)]
    #[must_use]
    pub const fn and_one(self) -> Self {
        Self(self.0 + 1)
    }

    /// The word, for a function that takes numbers only.
    #[inline(always)]
    pub const fn word(self) -> u32 {
        self.0
    }

    /// What [`word`](Self::word) was of.
    #[inline(always)]
    pub const fn of_word(word: u32) -> Self {
        Self(word)
    }

    /// The kind's index, and how many; `None` for none.
    #[inline(always)]
    pub const fn get(self) -> Option<(u32, u32)> {
        match self.0 {
            0 => None,
            word => Some(((word >> 16) - 1, word & 0xffff)),
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
