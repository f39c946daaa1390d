//! One CPU's queue: its perf event, its ring, and the drain.

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
    /// What is consumed is noted before the consumer sees it, so that it is consumed once even if
    /// the consumer panics.
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
        let quarter = self.pages.geometry().size() as u64 / 4;
        let start = self.tail;
        while self.tail != head && self.tail.wrapping_sub(start) < budget as u64 {
            self.drain_record(head, consumer)?;
            // The producer gets room back before we are through.
            if self.tail.wrapping_sub(self.published) >= quarter {
                self.publish();
            }
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

    /// Consumes the perf record at the tail.
    #[inline]
    fn drain_record<C: Consumer>(&mut self, head: u64, consumer: &mut C) -> ControlFlow<()> {
        let Some(available) = self.pages.geometry().available(self.tail, head) else {
            return self.skip_to(head, MalformedReason::Positions, consumer);
        };
        let header = self.pages.bytes(self.tail, Header::LEN, &mut self.scratch);
        let Some((header, size)) = Header::read(header, available) else {
            return self.skip_to(head, MalformedReason::RecordSize, consumer);
        };
        let after = self.tail.wrapping_add(size as u64);
        let record = self.pages.bytes(self.tail, size, &mut self.scratch);
        match PerfRecord::read(header, record) {
            PerfRecord::Sample(block) => match Records::new(block) {
                Ok(records) => {
                    let mut block = Block {
                        cpu: self.cpu,
                        records: records.resume(self.in_block),
                        size,
                        at: &mut self.in_block,
                        counts: &mut self.counts,
                    };
                    block.drain(consumer)?;
                    self.tail = after;
                    self.in_block = 0;
                    ControlFlow::Continue(())
                }
                Err(error) => self.skip_to(after, MalformedReason::Block(error), consumer),
            },
            PerfRecord::Lost(count) => {
                self.tail = after;
                self.counts.lost = self.counts.lost.wrapping_add(count);
                consumer.lost(Loss { cpu: self.cpu, count })
            }
            PerfRecord::Other => {
                self.tail = after;
                ControlFlow::Continue(())
            }
            PerfRecord::Malformed => self.skip_to(after, MalformedReason::RecordBody, consumer),
        }
    }

    #[cold]
    fn skip_to<C: Consumer>(
        &mut self,
        position: u64,
        reason: MalformedReason,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let bytes = position.wrapping_sub(self.tail);
        self.tail = position;
        self.in_block = 0;
        self.counts.malformed += 1;
        consumer.malformed(Malformed { cpu: self.cpu, bytes, reason })
    }
}

impl AsFd for EvQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// A block that is being consumed.
struct Block<'q> {
    cpu: u32,
    records: Records<'q>,
    /// Bytes of ring that the block's perf record takes.
    size: usize,
    at: &'q mut usize,
    counts: &'q mut QueueCounts,
}

impl Block<'_> {
    #[inline]
    fn drain<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        while let Some(record) = self.records.next() {
            *self.at = self.records.offset();
            match record {
                Ok(record) => {
                    self.counts.records += 1;
                    consumer.record(self.cpu, record)?;
                }
                Err(error) => {
                    self.counts.malformed += 1;
                    consumer.malformed(Malformed {
                        cpu: self.cpu,
                        bytes: self.size as u64,
                        reason: MalformedReason::Block(error),
                    })?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}
