//! The counters of a queue.

use probe_common::RecordKind;
use probe_common::limits::KINDS;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a queue has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Records delivered to the consumer.
    pub records: u64,
    /// Outputs that the kernel had no room for, as far as they have been reported.
    pub lost: u64,
    /// How often malformed bytes were skipped, and how many records were shorter than their type.
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
    /// Records that dumps have found but not delivered.
    pub(crate) left: u64,
}

/// What a queue has received. One thread counts; others may read at any time.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The records that were delivered to the consumer.
    pub(crate) given: KindCounts,
    /// Records that were recovered from scratch memory, because their CPU went offline. The eBPF side has not
    /// counted them.
    pub(crate) recovered: KindCounts,
    /// Records that were overwritten before a dump.
    pub(crate) overwritten: KindCounts,
    /// Bytes of ring that were overwritten before a dump.
    pub(crate) overwritten_bytes: Count,
    lost: Count,
    pub(crate) malformed: Count,
    malformed_bytes: Count,
}

impl Received {
    /// Lets other threads know the counts as well.
    pub(crate) fn publish(&self, counts: &QueueCounts) {
        let QueueCounts { records: _, lost, malformed, malformed_bytes } = *counts;
        self.lost.set(lost);
        self.malformed.set(malformed);
        self.malformed_bytes.set(malformed_bytes);
    }

    /// The counts as of the last time that they were [published](Self::publish), and the records delivered by now.
    pub(crate) fn counts(&self) -> QueueCounts {
        let records = self.given.iter().map(|(_, count)| count).sum::<u64>() + self.given.other();
        let (lost, malformed) = (self.lost.get(), self.malformed.get());
        QueueCounts { records, lost, malformed, malformed_bytes: self.malformed_bytes.get() }
    }
}

/// A number that one thread changes and others may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds to the number. Only the thread that counts calls this.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        // ORDERING: nothing else depends on the number. As nobody else changes it, it needs no atomic addition.
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    pub(crate) fn set(&self, count: u64) {
        // ORDERING: as above.
        self.0.store(count, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        // ORDERING: as above.
        self.0.load(Relaxed)
    }
}

/// The number of records of each kind. One thread counts; others may read.
#[derive(Debug)]
pub(crate) struct KindCounts {
    /// Indexed by [`RecordKind::index`].
    by_kind: Box<[Count]>,
    /// Records of kinds that have no index.
    other: Count,
}

impl Default for KindCounts {
    fn default() -> Self {
        let by_kind = (0..KINDS).map(|_| Count::default()).collect();
        Self { by_kind, other: Count::default() }
    }
}

impl PartialEq for KindCounts {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter()) && self.other() == other.other()
    }
}

impl KindCounts {
    #[inline]
    pub(crate) fn add(&self, kind: RecordKind, count: u64) {
        self.counted(kind).unwrap_or(&self.other).add(count);
    }

    /// Subtracts one that was added before.
    pub(crate) fn take_back(&self, kind: RecordKind) {
        let count = self.counted(kind).unwrap_or(&self.other);
        count.set(count.get() - 1);
    }

    #[inline]
    fn counted(&self, kind: RecordKind) -> Option<&Count> {
        self.by_kind.get(kind.index()? as usize)
    }

    /// Sets the count of a kind. Does nothing if the kind has no index.
    pub(crate) fn set(&self, kind: RecordKind, count: u64) {
        if let Some(counted) = self.counted(kind) {
            counted.set(count);
        }
    }

    /// The count of a kind, or 0 if the kind has no index.
    pub(crate) fn of(&self, kind: RecordKind) -> u64 {
        self.counted(kind).map_or(0, Count::get)
    }

    /// The kinds with a count above 0, and their counts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RecordKind, u64)> {
        let kinds = (0..KINDS).filter_map(RecordKind::at);
        kinds.zip(self.by_kind.iter().map(Count::get)).filter(|&(_, count)| count > 0)
    }

    /// Records of kinds that no program can emit through the pipe.
    pub(crate) fn other(&self) -> u64 {
        self.other.get()
    }
}
