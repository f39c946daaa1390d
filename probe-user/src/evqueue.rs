//! One CPU's queue: its perf event, its ring, and the drain.

use crate::batch::Batch;
use crate::consumer::{Consumer, Loss, Malformed, MalformedReason};
use crate::error::OpenError;
use crate::ring::page::{RingPages, Scratch};
use crate::ring::perf_record::{Header, PerfRecord};
use crate::sys::perf_event::{PerfEvent, WakeAt};
use probe_common::Records;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

/// One CPU's perf event and its ring.
#[derive(Debug)]
pub struct EvQueue {
    cpu: u32,
    event: PerfEvent,
    /// Shares the ring, and wakes with every record.
    eager: Option<PerfEvent>,
    pages: RingPages,
    scratch: Scratch,
    /// Up to where records are consumed; what the kernel knows of it is `published`.
    tail: u64,
    published: u64,
    /// How far the block at `tail` is consumed, where a consumer stopped in the middle of it.
    in_block: usize,
    counts: QueueCounts,
}

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
}

impl std::ops::AddAssign for QueueCounts {
    fn add_assign(&mut self, other: Self) {
        self.records += other.records;
        self.lost += other.lost;
        self.malformed += other.malformed;
    }
}

/// How a drain of one queue ended.
#[derive(Debug)]
pub(crate) struct Drained {
    pub(crate) flow: ControlFlow<()>,
    /// There was more than the budget, or than the consumer wanted.
    pub(crate) more: bool,
}

impl EvQueue {
    /// Opens the event of a CPU, maps its ring and enables it, in this order: an event that a map
    /// slot leads to has to have room. `None` if the CPU is offline.
    pub(crate) fn open(cpu: u32, bytes: usize, wake_at: WakeAt) -> Result<Option<Self>, OpenError> {
        let event = match PerfEvent::bpf_output(cpu, wake_at) {
            Ok(event) => event,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            Err(source) => return Err(OpenError::Event { cpu, source }),
        };
        let pages = RingPages::map(event.as_fd(), bytes).map_err(|source| OpenError::Map {
            cpu,
            bytes,
            source,
        })?;
        event.enable().map_err(|source| OpenError::Enable { cpu, source })?;
        let tail = pages.tail();
        Ok(Some(Self {
            cpu,
            event,
            eager: None,
            pages,
            scratch: Scratch::new(),
            tail,
            published: tail,
            in_block: 0,
            counts: QueueCounts::default(),
        }))
    }

    /// Opens a second event that writes into the same ring and wakes with every record, and lends
    /// it.
    pub(crate) fn open_eager(&mut self) -> io::Result<BorrowedFd<'_>> {
        let eager = PerfEvent::bpf_output(self.cpu, WakeAt::Events(1))?;
        eager.set_output(self.event.as_fd())?;
        eager.enable()?;
        let eager: &PerfEvent = self.eager.insert(eager);
        Ok(eager.as_fd())
    }

    /// Whether there is something to read.
    pub(crate) fn has_records(&self) -> bool {
        self.pages.head() != self.tail
    }

    /// The CPU.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// What the queue has seen so far.
    pub fn counts(&self) -> QueueCounts {
        self.counts
    }

    /// How many outputs the kernel had no room for since the queue was opened, whether or not the
    /// ring has told so yet (`PERF_FORMAT_LOST`). `None` before kernel 6.0, which cannot say.
    pub fn kernel_lost(&self) -> Option<u64> {
        let eager = match &self.eager {
            Some(eager) => eager.lost().ok().flatten()?,
            None => 0,
        };
        Some(self.event.lost().ok().flatten()? + eager)
    }

    /// No longer takes records.
    pub(crate) fn disable(&self) {
        for event in self.eager.iter().chain([&self.event]) {
            // It fails only if the event is gone, which is as good.
            let _ = event.disable();
        }
    }

    /// Gives everything that is there now to `consumer`, up to `budget` bytes of ring, or until it
    /// breaks.
    ///
    /// What is consumed is noted even if the consumer panics, so that it is consumed once.
    pub(crate) fn drain<C: Consumer>(&mut self, consumer: &mut C, budget: usize) -> Drained {
        // Read once: a producer that keeps up with us would otherwise hold us here for ever.
        let head = self.pages.head();
        if head == self.tail {
            return Drained { flow: ControlFlow::Continue(()), more: false };
        }
        let flow = self.drain_to(head, consumer, budget);
        self.publish();
        Drained { flow, more: self.tail != head }
    }

    fn drain_to<C: Consumer>(
        &mut self,
        head: u64,
        consumer: &mut C,
        budget: usize,
    ) -> ControlFlow<()> {
        let quarter = self.pages.geometry().size() / 4;
        let end = self.tail.wrapping_add(budget as u64);
        while self.tail != head && (end.wrapping_sub(self.tail) as i64) > 0 {
            let left = end.wrapping_sub(self.tail) as usize;
            self.drain_stretch(head, quarter.min(left), consumer)?;
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
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let Self { cpu, pages, scratch, tail, in_block, counts, .. } = self;
        let mut reader = Reader { cpu: *cpu, tail, in_block, counts, consumer };
        let start = *reader.tail;
        let Some(available) = pages.geometry().available(start, head) else {
            return reader.skip_to(head, MalformedReason::Positions);
        };
        let piece = pages.piece(start, available);
        let limit = piece.len().min(stretch);
        let mut at = 0;
        while at < limit {
            let batch = Batch::new(piece, limit, at, *reader.in_block);
            if !batch.is_empty() {
                at = reader.consume(batch, start)?;
                continue;
            }
            // Something else than a sample, or the one that wraps.
            let rest = &piece[at..];
            let Some((header, size)) = Header::read(rest, available - at) else {
                return reader.skip_to(head, MalformedReason::RecordSize);
            };
            let record = match rest.get(..size) {
                Some(record) => record,
                None => pages.bytes(start.wrapping_add(at as u64), size, scratch),
            };
            at += size;
            reader.consume_one(header, record)?;
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn publish(&mut self) {
        if self.tail != self.published {
            self.pages.publish_tail(self.tail);
            self.published = self.tail;
        }
    }
}

impl AsFd for EvQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Consumes the perf records of one queue.
struct Reader<'q, C> {
    cpu: u32,
    tail: &'q mut u64,
    in_block: &'q mut usize,
    counts: &'q mut QueueCounts,
    consumer: &'q mut C,
}

impl<C: Consumer> Reader<'_, C> {
    /// Consumes the records of a batch whose positions count from `start`. Gives where it ended.
    #[inline]
    fn consume(&mut self, batch: Batch<'_>, start: u64) -> ControlFlow<(), usize> {
        let mut taking =
            Taking { batch, start, tail: self.tail, in_block: self.in_block, counts: self.counts };
        let flow = give(self.cpu, &mut taking.batch, self.consumer);
        let (error, at, end) = (taking.batch.error(), taking.batch.at(), taking.batch.end());
        drop(taking);
        flow?;
        match error {
            Some(error) => {
                let after = start.wrapping_add(end as u64);
                self.skip_to(after, MalformedReason::Block(error))?;
                ControlFlow::Continue(end)
            }
            None => ControlFlow::Continue(at),
        }
    }

    /// Consumes the perf record at the tail, whatever it is.
    #[cold]
    fn consume_one(&mut self, header: Header, record: &[u8]) -> ControlFlow<()> {
        let start = *self.tail;
        let after = start.wrapping_add(record.len() as u64);
        match PerfRecord::read(header, record) {
            PerfRecord::Sample(block) => match Records::new(block) {
                Ok(records) => {
                    let batch = Batch::of_block(records, *self.in_block, record.len());
                    self.consume(batch, start).map_continue(drop)
                }
                Err(error) => self.skip_to(after, MalformedReason::Block(error)),
            },
            PerfRecord::Lost(count) => {
                *self.tail = after;
                self.counts.lost = self.counts.lost.wrapping_add(count);
                self.consumer.lost(Loss { cpu: self.cpu, count })
            }
            PerfRecord::Other => {
                *self.tail = after;
                ControlFlow::Continue(())
            }
            PerfRecord::Malformed => self.skip_to(after, MalformedReason::RecordBody),
        }
    }

    #[cold]
    fn skip_to(&mut self, position: u64, reason: MalformedReason) -> ControlFlow<()> {
        let bytes = position.wrapping_sub(*self.tail);
        *self.tail = position;
        *self.in_block = 0;
        self.counts.malformed += 1;
        self.consumer.malformed(Malformed { cpu: self.cpu, bytes, reason })
    }
}

/// Gives a batch to a consumer, to its end.
#[inline]
fn give<C: Consumer>(cpu: u32, batch: &mut Batch<'_>, consumer: &mut C) -> ControlFlow<()> {
    consumer.batch(cpu, batch)?;
    for record in batch {
        consumer.record(cpu, record)?;
    }
    ControlFlow::Continue(())
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

impl Drop for Taking<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        *self.tail = self.start.wrapping_add(self.batch.at() as u64);
        *self.in_block = self.batch.consumed();
        self.counts.records += self.batch.taken();
    }
}
