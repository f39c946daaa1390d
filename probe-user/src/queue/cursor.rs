//! How far a ring is consumed, and the code that consumes it from there: batches of records, and what lies
//! between them.
//!
//! Nothing in the ring is trusted. Malformed bytes are skipped and counted. Reading continues after them, or
//! at the head if nothing shows where they end.

use crate::queue::batch::Batch;
use crate::queue::consumer::Consumer;
use crate::queue::contents::{Contents, RAW};
use crate::queue::counts::{QueueCounts, Received};
use crate::queue::notices::{Loss, Malformed, MalformedReason};
use probe_common::{BlockError, RawRecord, Records};
use probe_sys::ring::perf_record::{Header, PerfRecord};
use std::ops::ControlFlow;
use std::sync::Arc;

/// How far one ring is consumed.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) cpu: u32,
    pub(crate) contents: Contents,
    /// The position up to which perf records are consumed.
    pub(crate) tail: u64,
    /// How much of the block at `tail` is consumed, in bytes, if a consumer stopped in the middle of it.
    in_block: usize,
    /// The number of outputs that the ring reported as lost.
    pub(crate) lost: u64,
}

/// What the cursors of a CPU's rings have seen so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) counts: QueueCounts,
    /// What other threads may know of it.
    pub(crate) received: Arc<Received>,
}

impl Seen {
    /// Lets other threads know what was seen.
    pub(crate) fn publish(&self) {
        self.received.publish(&self.counts);
    }
}

impl Cursor {
    /// Starts at position `tail`: nothing from there on is consumed yet.
    pub(crate) fn new(cpu: u32, tail: u64) -> Self {
        Self { cpu, contents: Contents::Blocks, tail, in_block: 0, lost: 0 }
    }

    fn go_to(&mut self, position: u64) {
        self.tail = position;
        self.in_block = 0;
    }
}

/// Moves a cursor over the perf records of its ring and delivers them to a consumer.
pub(crate) struct Reader<'q, C> {
    pub(crate) cursor: &'q mut Cursor,
    pub(crate) seen: &'q mut Seen,
    pub(crate) consumer: &'q mut C,
}

impl<C: Consumer> Reader<'_, C> {
    /// Consumes the records of blocks in `piece` from offset `at` on. Offsets count from position `start`. Perf records
    /// that begin at `limit` or later are left alone. Returns the offset where the consumed records end, or
    /// `None` if there are none.
    #[inline]
    pub(crate) fn consume_batch(
        &mut self,
        piece: &[u8],
        limit: usize,
        at: usize,
        start: u64,
    ) -> ControlFlow<(), Option<usize>> {
        if self.cursor.contents == Contents::Raw {
            return ControlFlow::Continue(None);
        }
        let Seen { counts, received } = &mut *self.seen;
        let batch = Batch::new(piece, limit, at, self.cursor.in_block, &received.given);
        if batch.is_empty() {
            return ControlFlow::Continue(None);
        }
        let taking = Taking { batch, start, cursor: self.cursor, counts };
        let (flow, end) = taking.give(self.consumer);
        let at = match end {
            Ok(at) => at,
            Err((error, at)) => {
                // Skip the block even if the consumer breaks: a consumer that breaks after every batch would
                // otherwise never get past it.
                let after = start.wrapping_add(at as u64);
                self.skip_to(after, MalformedReason::Block(error))?;
                at
            }
        };
        flow.map_continue(|()| Some(at))
    }

    /// Consumes the perf record at the cursor, whatever its type. A sample with a block gets here only if it wraps,
    /// has no records or is malformed.
    #[cold]
    pub(crate) fn consume_one(&mut self, header: Header, record: &[u8]) -> ControlFlow<()> {
        let start = self.cursor.tail;
        let after = start.wrapping_add(record.len() as u64);
        match PerfRecord::read(header, record) {
            PerfRecord::Sample(bytes) if self.cursor.contents == Contents::Raw => {
                self.give_raw(bytes, after)
            }
            PerfRecord::Sample(block) => match Records::new(block) {
                Ok(_) => {
                    if self.consume_batch(record, record.len(), 0, start)?.is_none() {
                        self.cursor.go_to(after);
                    }
                    ControlFlow::Continue(())
                }
                Err(error) => self.skip_to(after, MalformedReason::Block(error)),
            },
            PerfRecord::Lost(count) => {
                self.cursor.go_to(after);
                self.cursor.lost = self.cursor.lost.wrapping_add(count);
                self.seen.counts.lost = self.seen.counts.lost.wrapping_add(count);
                self.consumer.lost(Loss { cpu: self.cursor.cpu, count, records: None })
            }
            PerfRecord::Other => {
                self.cursor.go_to(after);
                ControlFlow::Continue(())
            }
            PerfRecord::Malformed => self.skip_to(after, MalformedReason::RecordBody),
        }
    }

    /// Delivers a sample as one record, whatever it contains.
    fn give_raw(&mut self, payload: &[u8], after: u64) -> ControlFlow<()> {
        self.consumer.accepts()?;
        // Before the consumer sees the record, because it may panic.
        self.cursor.go_to(after);
        self.seen.counts.records += 1;
        self.seen.received.given.add(RAW, 1);
        self.consumer.record(self.cursor.cpu, RawRecord { kind: RAW, time: 0, payload })
    }

    /// Skips malformed bytes, up to a position.
    #[cold]
    pub(crate) fn skip_to(&mut self, position: u64, reason: MalformedReason) -> ControlFlow<()> {
        let bytes = position.wrapping_sub(self.cursor.tail);
        self.cursor.go_to(position);
        self.seen.counts.malformed += 1;
        self.seen.counts.malformed_bytes = self.seen.counts.malformed_bytes.wrapping_add(bytes);
        self.consumer.malformed(Malformed { cpu: self.cursor.cpu, bytes, reason })
    }
}

/// Commits what the consumer takes out of a batch, even if the consumer panics.
struct Taking<'q, 'r> {
    batch: Batch<'r>,
    /// The position that the batch's offsets count from.
    start: u64,
    cursor: &'q mut Cursor,
    counts: &'q mut QueueCounts,
}

impl Taking<'_, '_> {
    /// Passes the batch to a consumer. Returns the offset that was reached, or what is wrong with the block
    /// there and the offset where the block ends.
    #[inline]
    fn give<C: Consumer>(
        mut self,
        consumer: &mut C,
    ) -> (ControlFlow<()>, Result<usize, (BlockError, usize)>) {
        let flow = self.give_all(consumer);
        let end = match self.batch.error() {
            None => Ok(self.batch.at()),
            Some(error) => Err((error, self.batch.end())),
        };
        (flow, end)
    }

    #[inline]
    fn give_all<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        let cpu = self.cursor.cpu;
        consumer.accepts()?;
        consumer.batch(cpu, &mut self.batch)?;
        for record in &mut self.batch {
            consumer.record(cpu, record)?;
        }
        ControlFlow::Continue(())
    }
}

impl Drop for Taking<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        self.cursor.tail = self.start.wrapping_add(self.batch.at() as u64);
        self.cursor.in_block = self.batch.consumed();
        self.counts.records += self.batch.close();
    }
}

/// Delivers the records of an 8-aligned block that is not in a ring to `consumer`.
pub(crate) fn deliver_block<C: Consumer>(
    cpu: u32,
    block: &[u8],
    seen: &mut Seen,
    consumer: &mut C,
) -> ControlFlow<()> {
    let Seen { counts, received } = seen;
    let (flow, error) = match Records::new(block) {
        Ok(records) => {
            let batch = Batch::of_block(records, 0, block.len(), &received.given);
            let taking = Taking { batch, start: 0, cursor: &mut Cursor::new(cpu, 0), counts };
            let (flow, end) = taking.give(consumer);
            match end {
                Ok(_) => return flow,
                Err((error, _)) => (flow, error),
            }
        }
        Err(error) => (ControlFlow::Continue(()), error),
    };
    let (bytes, reason) = (block.len() as u64, MalformedReason::Block(error));
    counts.malformed += 1;
    counts.malformed_bytes += bytes;
    consumer.malformed(Malformed { cpu, bytes, reason })?;
    flow
}
