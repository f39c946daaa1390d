//! The counters of a queue.

use probe_common::RecordKind;
use probe_common::limits::KINDS;

/// What a queue has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Records delivered to the consumer.
    pub records: u64,
    /// Outputs that the kernel had no room for, as far as they have been reported.
    pub lost: u64,
    /// How often malformed bytes were skipped.
    pub malformed: u64,
    /// How many bytes were skipped as malformed.
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

/// What dumps have found in a CPU's overwritten rings.
#[derive(Debug, Default)]
pub(crate) struct DumpCounts {
    /// Records that dumps have found, whether or not the consumer received them.
    pub(crate) found: KindCounts,
    /// Records that were overwritten before a dump.
    pub(crate) overwritten: KindCounts,
    /// Bytes of ring that were overwritten before a dump.
    pub(crate) overwritten_bytes: u64,
    /// Records that dumps have found but not delivered.
    pub(crate) left: u64,
}

/// The number of records of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KindCounts {
    /// Indexed by [`RecordKind::index`].
    by_kind: Box<[u64]>,
    /// Records of kinds that have no index.
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
        match self.counted(kind) {
            Some(counted) => *counted += count,
            None => self.other += count,
        }
    }

    #[inline]
    fn counted(&mut self, kind: RecordKind) -> Option<&mut u64> {
        self.by_kind.get_mut(kind.index()? as usize)
    }

    /// Sets the count of a kind. Does nothing if the kind has no index.
    pub(crate) fn set(&mut self, kind: RecordKind, count: u64) {
        if let Some(counted) = self.counted(kind) {
            *counted = count;
        }
    }

    /// The count of a kind, or 0 if the kind has no index.
    pub(crate) fn of(&self, kind: RecordKind) -> u64 {
        kind.index().and_then(|index| self.by_kind.get(index as usize)).copied().unwrap_or(0)
    }

    /// The kinds with a count above 0, and their counts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RecordKind, u64)> {
        let kinds = (0..KINDS).filter_map(RecordKind::at);
        kinds.zip(self.by_kind.iter().copied()).filter(|&(_, count)| count > 0)
    }

    /// Records of kinds that no program can emit through the pipe.
    pub(crate) fn other(&self) -> u64 {
        self.other
    }
}
