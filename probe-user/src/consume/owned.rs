//! Records that outlive the ring: copied once, into shared chunks of memory.

use crate::error::PollError;
use crate::pipe::evpipe::EvPipe;
use crate::queue::consumer::Consumer;
use crate::queue::notices::{Loss, Malformed};
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
    /// Bytes that were skipped.
    Malformed(Malformed),
}

/// How many items are taken out of the rings ahead of the reader. What a slow reader does not take stays in the
/// rings, which count what they lose.
const AHEAD: usize = 1024;

/// The size of a chunk of memory for payloads, in bytes. A longer payload gets a chunk of its own.
const CHUNK: usize = 64 << 10;

/// The consumer behind the streams. It copies the records that it receives.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    items: VecDeque<Item>,
    chunk: BytesMut,
}

impl Collector {
    pub(crate) fn pop(&mut self) -> Option<Item> {
        self.items.pop_front()
    }

    fn push(&mut self, item: Item) -> ControlFlow<()> {
        self.items.push_back(item);
        if self.items.len() < AHEAD { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
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

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.push(Item::Malformed(malformed))
    }
}

/// The records of a pipe as a blocking iterator, which never ends by itself.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pipe: probe_user::EvPipe = todo!();
/// for item in probe_user::OwnedRecords::new(pipe).take(10) {
///     println!("{:?}", item?);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OwnedRecords {
    pipe: EvPipe,
    collector: Collector,
}

impl OwnedRecords {
    /// Creates an iterator over the records of `pipe`.
    pub fn new(pipe: EvPipe) -> Self {
        Self { pipe, collector: Collector::default() }
    }

    /// Returns the pipe. Items that were already taken out of the rings are dropped.
    pub fn into_pipe(self) -> EvPipe {
        self.pipe
    }
}

impl Iterator for OwnedRecords {
    type Item = Result<Item, PollError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.collector.pop() {
                return Some(Ok(item));
            }
            if let Err(error) = self.pipe.poll(None, &mut self.collector) {
                return Some(Err(error));
            }
        }
    }
}
