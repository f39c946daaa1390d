//! The drain of one ring: delivers what is between its tail and its head to a consumer.

use crate::queue::consumer::Consumer;
use crate::queue::contents::Contents;
use crate::queue::cursor::{Cursor, Reader, Seen};
use crate::queue::notices::MalformedReason;
use probe_sys::ring::RingMemory;
use probe_sys::ring::page::Scratch;
use probe_sys::ring::perf_record::Header;
use std::ops::ControlFlow;

/// A ring and the cursor into it.
#[derive(Debug)]
pub(crate) struct Drain<M> {
    memory: M,
    scratch: Scratch,
    cursor: Cursor,
    /// The tail that was last published to the writer.
    published: u64,
}

/// How a drain ended.
#[derive(Debug)]
pub(crate) struct Drained {
    pub(crate) flow: ControlFlow<()>,
    /// More was available than the budget allowed or the consumer wanted.
    pub(crate) more: bool,
}

impl<M: RingMemory> Drain<M> {
    /// Starts reading at position `tail`.
    pub(crate) fn new(cpu: u32, memory: M, tail: u64) -> Self {
        let cursor = Cursor::new(cpu, tail);
        Self { memory, scratch: Scratch::default(), cursor, published: tail }
    }

    /// Reads these contents instead of blocks.
    pub(crate) fn of(mut self, contents: Contents) -> Self {
        self.cursor.contents = contents;
        self
    }

    /// Whether there is anything to read.
    pub(crate) fn has_records(&self) -> bool {
        self.memory.head() != self.cursor.tail
    }

    /// The number of outputs that the ring reported as lost.
    pub(crate) fn lost(&self) -> u64 {
        self.cursor.lost
    }

    /// The memory that the records come from.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Starts again at position `tail`, with the same memory.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn restart(&mut self, tail: u64) -> &mut M {
        (self.cursor, self.published) = (Cursor::new(self.cursor.cpu, tail), tail);
        &mut self.memory
    }

    /// Delivers everything that is available now to `consumer`, up to `budget` bytes of ring, or until the
    /// consumer breaks.
    ///
    /// Progress is kept even if the consumer panics, so that each record is consumed once.
    pub(crate) fn run<C: Consumer>(
        &mut self,
        seen: &mut Seen,
        consumer: &mut C,
        budget: usize,
    ) -> Drained {
        // Load the head once: otherwise, a producer that keeps up with the drain would keep it here forever.
        let head = self.memory.head();
        if head == self.cursor.tail {
            // If the consumer panicked at the last record, the tail is not published yet. A ring full of
            // consumed records would stay full forever.
            self.publish();
            return Drained { flow: ControlFlow::Continue(()), more: false };
        }
        let flow = self.drain_to(head, seen, consumer, budget);
        self.publish();
        Drained { flow, more: self.cursor.tail != head }
    }

    fn drain_to<C: Consumer>(
        &mut self,
        head: u64,
        seen: &mut Seen,
        consumer: &mut C,
        budget: usize,
    ) -> ControlFlow<()> {
        let quarter = self.memory.geometry().size() / 4;
        let end = self.cursor.tail.wrapping_add(budget as u64);
        while self.cursor.tail != head && (end.wrapping_sub(self.cursor.tail) as i64) > 0 {
            let left = end.wrapping_sub(self.cursor.tail) as usize;
            self.drain_stretch(head, quarter.min(left), seen, consumer)?;
            // Hand room back to the producer before the drain is complete.
            self.publish();
        }
        ControlFlow::Continue(())
    }

    /// Consumes perf records from the cursor on, until at least `stretch` bytes are consumed or the ring
    /// wraps.
    fn drain_stretch<C: Consumer>(
        &mut self,
        head: u64,
        stretch: usize,
        seen: &mut Seen,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let Self { memory, scratch, cursor, .. } = self;
        let start = cursor.tail;
        let mut reader = Reader { cursor, seen, consumer };
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
            // Not a sample, or a sample that wraps.
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
        if self.cursor.tail != self.published {
            self.memory.publish_tail(self.cursor.tail);
            self.published = self.cursor.tail;
        }
    }
}

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod sequences;
#[cfg(test)]
mod tests;
