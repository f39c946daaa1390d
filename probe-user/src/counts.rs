//! What a queue has seen, in numbers.

use probe_common::RecordKind;
use probe_common::limits::KINDS;

/// What a queue has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Records given to the consumer.
    pub records: u64,
    /// Outputs that the kernel had no room for, as far as the ring tells.
    pub lost: u64,
    /// How often malformed bytes were skipped.
    pub malformed: u64,
    /// How many bytes of ring were skipped then.
    pub malformed_bytes: u64,
}

impl std::ops::AddAssign for QueueCounts {
    fn add_assign(&mut self, other: Self) {
        self.records += other.records;
        self.lost += other.lost;
        self.malformed += other.malformed;
        self.malformed_bytes += other.malformed_bytes;
    }
}

/// Records that were given to the consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    /// How many of which kind.
    pub(crate) kinds: KindCounts,
    /// How many of those were emitted alone: nobody has counted them before.
    pub(crate) alone: KindCounts,
}

impl Given {
    /// So many more of a kind, emitted alone or not.
    #[inline]
    pub(crate) fn add(&mut self, kind: RecordKind, count: u64, alone: bool) {
        self.kinds.add(kind, count);
        if alone {
            self.alone.add(kind, count);
        }
    }
}

/// How many records of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KindCounts {
    /// Indexed by [`RecordKind::index`].
    by_kind: Box<[u64]>,
    /// Those of kinds that have no index.
    other: u64,
}

impl Default for KindCounts {
    fn default() -> Self {
        Self { by_kind: vec![0; KINDS as usize].into_boxed_slice(), other: 0 }
    }
}

impl KindCounts {
    #[inline]
    pub(crate) fn add(&mut self, kind: RecordKind, count: u64) {
        let index = kind.index().map(|index| index as usize);
        match index.and_then(|index| self.by_kind.get_mut(index)) {
            Some(counted) => *counted += count,
            None => self.other += count,
        }
    }

    /// Says how many there are of one kind that has an index.
    pub(crate) fn set(&mut self, kind: RecordKind, count: u64) {
        let index = kind.index().map(|index| index as usize);
        if let Some(counted) = index.and_then(|index| self.by_kind.get_mut(index)) {
            *counted = count;
        }
    }

    /// How many of one kind.
    pub(crate) fn of(&self, kind: RecordKind) -> u64 {
        let index = kind.index().map(|index| index as usize);
        index.and_then(|index| self.by_kind.get(index)).copied().unwrap_or(0)
    }

    /// The kinds of which there are any, and how many.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RecordKind, u64)> {
        let kinds = (0..KINDS).filter_map(RecordKind::at);
        kinds.zip(self.by_kind.iter().copied()).filter(|&(_, count)| count > 0)
    }

    /// Records of kinds that nobody can emit through the pipe.
    pub(crate) fn other(&self) -> u64 {
        self.other
    }
}
