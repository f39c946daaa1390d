//! The drain of one ring: what is between its tail and its head, given to a consumer.
//!
//! Nothing in the ring is believed. Bytes that are not what they have to be are skipped and counted,
//! and the drain goes on behind them, or, where nothing tells where that is, at the head.

use crate::batch::Batch;
use crate::consumer::{Consumer, Loss, Malformed, MalformedReason};
use crate::counts::{Given, QueueCounts};
use crate::ring::RingMemory;
use crate::ring::page::Scratch;
use crate::ring::perf_record::{Header, PerfRecord};
use probe_common::{BlockError, Records};
use std::ops::ControlFlow;

/// One ring, and how far it is consumed.
#[derive(Debug)]
pub(crate) struct Drain<M> {
    cpu: u32,
    memory: M,
    scratch: Scratch,
    /// Up to where records are consumed; what the writer knows of it is `published`.
    tail: u64,
    published: u64,
    /// How far the block at `tail` is consumed, where a consumer stopped in the middle of it.
    in_block: usize,
    /// How many outputs the ring said were lost.
    lost: u64,
}

/// What the drains of a CPU's rings have seen so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) counts: QueueCounts,
    /// The records that were given to the consumer, by kind.
    pub(crate) given: Given,
}

/// How a drain ended.
#[derive(Debug)]
pub(crate) struct Drained {
    pub(crate) flow: ControlFlow<()>,
    /// There was more than the budget, or than the consumer wanted.
    pub(crate) more: bool,
}

impl<M: RingMemory> Drain<M> {
    /// Reads from position `tail` on.
    pub(crate) fn new(cpu: u32, memory: M, tail: u64) -> Self {
        let scratch = Scratch::new();
        Self { cpu, memory, scratch, tail, published: tail, in_block: 0, lost: 0 }
    }

    /// Whether there is something to read.
    pub(crate) fn has_records(&self) -> bool {
        self.memory.head() != self.tail
    }

    /// How many outputs the ring said were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Where the records come from.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Begins anew at position `tail`, with the same memory.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn restart(&mut self, tail: u64) -> &mut M {
        (self.tail, self.published, self.in_block, self.lost) = (tail, tail, 0, 0);
        &mut self.memory
    }

    /// Gives everything that is there now to `consumer`, up to `budget` bytes of ring, or until it
    /// breaks.
    ///
    /// What is consumed is noted even if the consumer panics, so that it is consumed once.
    pub(crate) fn run<C: Consumer>(
        &mut self,
        seen: &mut Seen,
        consumer: &mut C,
        budget: usize,
    ) -> Drained {
        // Read once: a producer that keeps up with us would otherwise hold us here for ever.
        let head = self.memory.head();
        if head == self.tail {
            // A consumer that panicked at the last record has left it to us: a ring that is full of
            // what is consumed would stay so for ever.
            self.publish();
            return Drained { flow: ControlFlow::Continue(()), more: false };
        }
        let flow = self.drain_to(head, seen, consumer, budget);
        self.publish();
        Drained { flow, more: self.tail != head }
    }

    fn drain_to<C: Consumer>(
        &mut self,
        head: u64,
        seen: &mut Seen,
        consumer: &mut C,
        budget: usize,
    ) -> ControlFlow<()> {
        let quarter = self.memory.geometry().size() / 4;
        let end = self.tail.wrapping_add(budget as u64);
        while self.tail != head && (end.wrapping_sub(self.tail) as i64) > 0 {
            let left = end.wrapping_sub(self.tail) as usize;
            self.drain_stretch(head, quarter.min(left), seen, consumer)?;
            // The producer gets room back before we are through.
            self.publish();
        }
        ControlFlow::Continue(())
    }

    /// Consumes perf records from the tail on, until `stretch` bytes are consumed, or more, or the
    /// ring wraps.
    fn drain_stretch<C: Consumer>(
        &mut self,
        head: u64,
        stretch: usize,
        seen: &mut Seen,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let Self { cpu, memory, scratch, tail, in_block, lost, .. } = self;
        let mut reader = Reader { cpu: *cpu, tail, in_block, lost, seen, consumer };
        let start = *reader.tail;
        let Some(available) = memory.geometry().available(start, head) else {
            return reader.skip_to(head, MalformedReason::Positions);
        };
        let piece = memory.piece(start, available);
        let limit = piece.len().min(stretch);
        let mut at = 0;
        while at < limit {
            if let Some(end) = reader.consume_batch(piece, limit, at, start)? {
                at = end;
                continue;
            }
            // Something else than a sample, or the one that wraps.
            let rest = &piece[at..];
            let Some((header, size)) = Header::read(rest, available - at) else {
                return reader.skip_to(head, MalformedReason::RecordSize);
            };
            let record = match rest.get(..size) {
                Some(record) => record,
                None => memory.bytes(start.wrapping_add(at as u64), size, scratch),
            };
            at += size;
            reader.consume_one(header, record)?;
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn publish(&mut self) {
        if self.tail != self.published {
            self.memory.publish_tail(self.tail);
            self.published = self.tail;
        }
    }
}

/// Consumes the perf records of one queue.
struct Reader<'q, C> {
    cpu: u32,
    tail: &'q mut u64,
    in_block: &'q mut usize,
    lost: &'q mut u64,
    seen: &'q mut Seen,
    consumer: &'q mut C,
}

impl<C: Consumer> Reader<'_, C> {
    /// Consumes the records in `piece`, whose positions count from `start`, from `at` on. Gives where
    /// they end, or `None` if there are none.
    #[inline]
    fn consume_batch(
        &mut self,
        piece: &[u8],
        limit: usize,
        at: usize,
        start: u64,
    ) -> ControlFlow<(), Option<usize>> {
        let Seen { counts, given } = &mut *self.seen;
        let batch = Batch::new(piece, limit, at, *self.in_block, given);
        if batch.is_empty() {
            return ControlFlow::Continue(None);
        }
        let taking = Taking { batch, start, tail: self.tail, in_block: self.in_block, counts };
        let (flow, end) = taking.give(self.cpu, self.consumer);
        self.end_batch(flow, end, start).map_continue(Some)
    }

    /// Goes on behind a block that is malformed.
    #[inline]
    fn end_batch(
        &mut self,
        flow: ControlFlow<()>,
        end: Result<usize, (BlockError, usize)>,
        start: u64,
    ) -> ControlFlow<(), usize> {
        let at = match end {
            Ok(at) => at,
            Err((error, at)) => {
                // Even if the consumer breaks: one that breaks after every batch would come no further.
                let after = start.wrapping_add(at as u64);
                self.skip_to(after, MalformedReason::Block(error))?;
                at
            }
        };
        flow.map_continue(|()| at)
    }

    /// Consumes the perf record at the tail, whatever it is.
    #[cold]
    fn consume_one(&mut self, header: Header, record: &[u8]) -> ControlFlow<()> {
        let start = *self.tail;
        let after = start.wrapping_add(record.len() as u64);
        match PerfRecord::read(header, record) {
            PerfRecord::Sample(block) => match Records::new(block) {
                Ok(records) => {
                    let Seen { counts, given } = &mut *self.seen;
                    let batch = Batch::of_block(records, *self.in_block, record.len(), given);
                    let (tail, in_block) = (&mut *self.tail, &mut *self.in_block);
                    let taking = Taking { batch, start, tail, in_block, counts };
                    let (flow, end) = taking.give(self.cpu, self.consumer);
                    self.end_batch(flow, end, start).map_continue(drop)
                }
                Err(error) => self.skip_to(after, MalformedReason::Block(error)),
            },
            PerfRecord::Lost(count) => {
                self.go_to(after);
                *self.lost = self.lost.wrapping_add(count);
                self.seen.counts.lost = self.seen.counts.lost.wrapping_add(count);
                self.consumer.lost(Loss { cpu: self.cpu, count, records: None })
            }
            PerfRecord::Other => {
                self.go_to(after);
                ControlFlow::Continue(())
            }
            PerfRecord::Malformed => self.skip_to(after, MalformedReason::RecordBody),
        }
    }

    #[cold]
    fn skip_to(&mut self, position: u64, reason: MalformedReason) -> ControlFlow<()> {
        let bytes = position.wrapping_sub(*self.tail);
        self.go_to(position);
        self.seen.counts.malformed += 1;
        self.seen.counts.malformed_bytes = self.seen.counts.malformed_bytes.wrapping_add(bytes);
        self.consumer.malformed(Malformed { cpu: self.cpu, bytes, reason })
    }

    fn go_to(&mut self, position: u64) {
        *self.tail = position;
        *self.in_block = 0;
    }
}

/// Notes what was taken out of a batch, whatever the consumer does, panicking included.
struct Taking<'q, 'r> {
    batch: Batch<'r>,
    /// What the batch's positions count from.
    start: u64,
    tail: &'q mut u64,
    in_block: &'q mut usize,
    counts: &'q mut QueueCounts,
}

impl Taking<'_, '_> {
    /// Gives the batch to a consumer, to its end: where that is, or what is wrong with the block there
    /// and where it ends.
    #[inline]
    fn give<C: Consumer>(
        mut self,
        cpu: u32,
        consumer: &mut C,
    ) -> (ControlFlow<()>, Result<usize, (BlockError, usize)>) {
        let flow = self.give_all(cpu, consumer);
        let end = match self.batch.error() {
            None => Ok(self.batch.at()),
            Some(error) => Err((error, self.batch.end())),
        };
        (flow, end)
    }

    #[inline]
    fn give_all<C: Consumer>(&mut self, cpu: u32, consumer: &mut C) -> ControlFlow<()> {
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
        *self.tail = self.start.wrapping_add(self.batch.at() as u64);
        *self.in_block = self.batch.consumed();
        self.counts.records += self.batch.close();
    }
}

/// Gives the records of a block that is in no ring, 8-aligned, to `consumer`.
pub(crate) fn give_block<C: Consumer>(
    cpu: u32,
    block: &[u8],
    seen: &mut Seen,
    consumer: &mut C,
) -> ControlFlow<()> {
    let (tail, in_block) = (&mut 0, &mut 0);
    let Seen { counts, given } = seen;
    let (flow, error) = match Records::new(block) {
        Ok(records) => {
            let batch = Batch::of_block(records, 0, block.len(), given);
            let taking = Taking { batch, start: 0, tail, in_block, counts };
            let (flow, end) = taking.give(cpu, consumer);
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

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod sequences;
#[cfg(test)]
mod tests;
