//! Records that outlive the ring: copied once, into shared chunks of memory.

use crate::flight::Dump;
use crate::ledger::balance::Ledger;
use crate::queue::consumer::Consumer;
use crate::queue::notices::{CpuChange, Failure, Loss, Malformed};
use bytes::{Bytes, BytesMut};
use probe_common::{RawRecord, Record, RecordKind};
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// A record copied out of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnedRecord {
    /// The CPU that emitted it.
    pub cpu: u32,
    /// The layout of the payload.
    pub kind: RecordKind,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub time: u64,
    /// The payload. Many payloads share one chunk of memory, which is freed when the last of them is dropped.
    pub payload: Bytes,
}

impl OwnedRecord {
    /// Reads the payload as a `T` by value, and returns it with the tail after it. Returns `None` if the record has
    /// another kind or is too short.
    pub fn read<T: Record>(&self) -> Option<(T, &[u8])> {
        if self.kind != T::KIND {
            return None;
        }
        T::read_from_prefix(&self.payload).ok()
    }
}

/// An item of a stream of records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Item {
    /// A record.
    Record(OwnedRecord),
    /// Records that a full ring lost before the next record of that CPU.
    Lost(Loss),
    /// Records that failed for another reason than a full ring.
    Failed(Failure),
    /// Bytes that were skipped.
    Malformed(Malformed),
    /// A CPU went online or offline.
    CpuChanged {
        /// The CPU.
        cpu: u32,
        /// What became of it.
        state: CpuState,
    },
}

/// What became of a CPU: a [`CpuChange`] that outlives its drain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuState {
    /// It is online and now has a queue.
    Covered,
    /// It is offline. Its records are still in its ring, or in its open block, which it sends when it is online again.
    Offline,
    /// It is online but has no queue. Its records fail, and the failures are counted.
    Uncovered {
        /// Why it has no queue.
        why: String,
    },
    /// Another consumer has taken over the CPU. What was sent before that is still delivered.
    TakenOver,
}

impl From<CpuChange<'_>> for CpuState {
    fn from(change: CpuChange<'_>) -> Self {
        match change {
            CpuChange::Covered { .. } => Self::Covered,
            CpuChange::Offline { .. } => Self::Offline,
            CpuChange::Uncovered { error, .. } => Self::Uncovered { why: error.to_string() },
            CpuChange::TakenOver { .. } => Self::TakenOver,
        }
    }
}

/// How many items are taken out of the rings ahead of the reader. What a slow reader does not take stays in the
/// rings, which count what they lose.
const AHEAD: usize = 1024;

/// The size of a chunk of memory for payloads, in bytes. A longer payload gets a chunk of its own.
const CHUNK: usize = 64 << 10;

/// The consumer behind the iterator and the stream. It copies the records that it receives.
#[derive(Debug)]
pub(crate) struct Collector {
    items: VecDeque<Item>,
    chunk: BytesMut,
    /// How many items are taken before the reader takes some.
    ahead: usize,
    /// Whether the records of a dump arrive. Those that are not taken are never delivered.
    is_in_dump: bool,
}

impl Default for Collector {
    fn default() -> Self {
        let (items, chunk) = (VecDeque::new(), BytesMut::new());
        Self { items, chunk, ahead: AHEAD, is_in_dump: false }
    }
}

impl Collector {
    pub(crate) fn pop(&mut self) -> Option<Item> {
        self.items.pop_front()
    }

    /// Takes as many items as there are from now on.
    pub(crate) fn take_all(&mut self) {
        self.ahead = usize::MAX;
    }

    /// What nobody has taken.
    pub(crate) fn into_items(self) -> Vec<Item> {
        self.items.into()
    }

    /// Corrects the ledger of the pipe, in which all collected records are handled: they are unread until somebody takes
    /// them.
    pub(crate) fn corrected(&self, mut ledger: Ledger) -> Ledger {
        for item in &self.items {
            if let Item::Record(record) = item {
                ledger.not_delivered(record.cpu, record.kind);
            }
        }
        ledger
    }

    fn push(&mut self, item: Item) -> ControlFlow<()> {
        self.items.push_back(item);
        match self.is_in_dump || self.items.len() < self.ahead {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }
}

impl Consumer for Collector {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        if self.chunk.capacity() < record.payload.len() {
            self.chunk = BytesMut::with_capacity(CHUNK.max(record.payload.len()));
        }
        self.chunk.extend_from_slice(record.payload);
        let payload = self.chunk.split().freeze();
        let RawRecord { kind, time, .. } = record;
        self.push(Item::Record(OwnedRecord { cpu, kind, time, payload }))
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.push(Item::Lost(loss))
    }

    fn failed(&mut self, failure: Failure) -> ControlFlow<()> {
        self.push(Item::Failed(failure))
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.push(Item::Malformed(malformed))
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        self.items.push_back(Item::CpuChanged { cpu: change.cpu(), state: change.into() });
    }

    fn dump(&mut self, _: Dump) {
        self.is_in_dump = true;
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        self.is_in_dump = false;
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenError;
    use std::ops::ControlFlow::{Break, Continue};

    #[test]
    fn changes_of_cpus_are_items_in_their_place() {
        let mut collector = Collector::default();
        let record = RawRecord { kind: RecordKind::user(0), time: 1, payload: b"x" };
        assert!(collector.record(0, record).is_continue());
        let error = &OpenError::NoCpu { online: vec![3] };
        let changes = [
            CpuChange::Covered { cpu: 1 },
            CpuChange::Offline { cpu: 2 },
            CpuChange::Uncovered { cpu: 3, error },
            CpuChange::TakenOver { cpu: 4 },
        ];
        changes.into_iter().for_each(|change| collector.cpu_changed(change));
        assert!(matches!(collector.pop(), Some(Item::Record(_))));
        let why = error.to_string();
        let uncovered = CpuState::Uncovered { why };
        let states = [CpuState::Covered, CpuState::Offline, uncovered, CpuState::TakenOver];
        for (cpu, state) in (1..).zip(states) {
            assert_eq!(collector.pop(), Some(Item::CpuChanged { cpu, state }));
        }
        assert_eq!(collector.pop(), None);
    }

    #[test]
    fn a_bounded_number_is_taken_ahead() {
        let mut collector = Collector::default();
        let record = RawRecord { kind: RecordKind::user(0), time: 1, payload: b"" };
        let flows: Vec<_> = (0..AHEAD).map(|_| collector.record(0, record)).collect();
        assert!(flows[..AHEAD - 1].iter().all(|flow| *flow == Continue(())));
        assert_eq!(flows[AHEAD - 1], Break(()));
        collector.take_all();
        assert_eq!(collector.record(0, record), Continue(()));
    }
}
