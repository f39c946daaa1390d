//! One CPU's queue: its perf events and their rings.

use crate::queue::consumer::Consumer;
use crate::queue::counts::{DumpCounts, QueueCounts, Received};
use crate::queue::cursor::{self, Seen};
use crate::queue::drain::Drained;
use crate::queue::event_ring::EventRing;
use crate::queue::notices::Loss;
use probe_common::limits::RECORD_ALIGN;
use probe_common::slot::SlotHead;
use probe_common::{BlockPrefix, RecordKind};
use probe_sys::control_page::ControlPage;
use std::collections::VecDeque;
use std::io;
use std::mem::offset_of;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use zerocopy::FromBytes;

/// One CPU's perf event and its ring.
///
/// An event does not survive its CPU going offline. When the CPU is online again, the queue gets a new event.
/// It consumes what is left in the old ring first.
#[derive(Debug)]
pub struct EvQueue {
    pub(crate) cpu: u32,
    source: Source,
    pub(crate) ring: EventRing,
    /// Rings of events that no longer exist, oldest first.
    pub(crate) retired: VecDeque<EventRing>,
    /// Outputs that the kernel had no room for in rings that no longer exist.
    past_lost: u64,
    pub(crate) seen: Seen,
    /// What dumps have found, if the rings are overwritten.
    pub(crate) dumped: DumpCounts,
    /// Whether a block was recovered that the consumer has not received, or not to its end.
    is_block_left: bool,
    /// Whether a record was taken out of the ring, but not delivered.
    is_undelivered: bool,
    /// Where the consumer that has taken over the CPU says what it has written to the ring itself.
    page: Option<Arc<ControlPage>>,
}

/// What still writes to a queue, as far as the pipe knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Online,
    Offline,
    /// Nothing: programs write to the ring of another consumer.
    TakenOver,
}

impl EvQueue {
    pub(crate) fn new(cpu: u32, ring: EventRing) -> Self {
        Self {
            cpu,
            source: Source::Online,
            ring,
            retired: VecDeque::new(),
            past_lost: 0,
            seen: Seen::default(),
            dumped: DumpCounts::default(),
            is_block_left: false,
            is_undelivered: false,
            page: None,
        }
    }

    /// See [`EventRing::open_eager`].
    pub(crate) fn open_eager(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.ring.open_eager(self.cpu)
    }

    /// The CPU is online again: continues with a new event, which is already in the maps.
    pub(crate) fn go_online(&mut self, ring: EventRing) {
        self.source = Source::Online;
        self.retired.push_back(std::mem::replace(&mut self.ring, ring));
        self.limit_retired();
    }

    /// The CPU is offline: its event will never write again.
    pub(crate) fn go_offline(&mut self) {
        if !self.is_taken_over() {
            self.source = Source::Offline;
        }
    }

    /// Another consumer has taken over the CPU: its programs never write to this queue again.
    pub(crate) fn hand_over(&mut self, page: Option<Arc<ControlPage>>) {
        self.source = Source::TakenOver;
        self.page = page;
    }

    /// Whether the CPU is online, as far as the pipe knows, and sends its records to this queue.
    pub fn is_online(&self) -> bool {
        self.source == Source::Online
    }

    /// Whether another consumer has taken over the CPU, as far as the pipe knows.
    pub fn is_taken_over(&self) -> bool {
        self.source == Source::TakenOver
    }

    /// Whether there is anything to read.
    pub(crate) fn has_records(&self) -> bool {
        !self.retired.is_empty()
            || self.ring.has_records()
            || self.dumped.left > 0
            || self.is_block_left
            || self.is_undelivered
    }

    pub(crate) fn ring(&self) -> &EventRing {
        &self.ring
    }

    /// The CPU.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// What the queue has seen so far.
    pub fn counts(&self) -> QueueCounts {
        self.seen.counts
    }

    /// Counts a record as unread that was taken out of the ring, but not delivered.
    pub(crate) fn not_delivered(&mut self, kind: RecordKind) {
        self.seen.received.given.take_back(kind);
        self.seen.counts.records -= 1;
        self.is_undelivered = true;
    }

    /// Counts records as malformed that were delivered, but are no records of their kind.
    pub(crate) fn reject(&mut self, records: u64) {
        self.seen.counts.malformed += records;
        self.seen.publish();
    }

    /// The same, as other threads can read it.
    pub(crate) fn received(&self) -> &Arc<Received> {
        self.seen.publish();
        &self.seen.received
    }

    /// The number of outputs that the kernel had no room for since the queue was opened, whether or not the ring has
    /// reported them yet (`PERF_FORMAT_LOST`). `None` on kernels that do not report them (before 6.0, except Debian's
    /// 5.10).
    pub fn kernel_lost(&self) -> Option<u64> {
        let rings = self.retired.iter().chain([&self.ring]).map(EventRing::kernel_lost);
        let uncounted = self.page.as_ref().and_then(|page| Some(page.cpu(self.cpu)?.uncounted()));
        let lost = rings.sum::<Option<u64>>()? + self.past_lost;
        Some(lost.saturating_sub(uncounted.unwrap_or(0).into()))
    }

    /// Stops the output to the ring.
    pub(crate) fn disable(&self) {
        self.ring.disable();
    }

    /// Delivers everything that is available now to `consumer`, up to `budget` bytes of ring, or until the
    /// consumer breaks.
    pub(crate) fn drain<C: Consumer>(&mut self, consumer: &mut C, budget: usize) -> Drained {
        let drained = self.drain_rings(consumer, budget);
        self.seen.publish();
        drained
    }

    fn drain_rings<C: Consumer>(&mut self, consumer: &mut C, budget: usize) -> Drained {
        while let Some(old) = self.retired.front_mut() {
            let drained = old.run(&mut self.seen, consumer, budget);
            if drained.flow.is_break() || drained.more {
                return Drained { more: true, ..drained };
            }
            let unreported = old.unreported_lost();
            self.forget_oldest();
            let flow = self.report_lost(unreported, consumer);
            if flow.is_break() {
                return Drained { flow, more: true };
            }
        }
        self.ring.run(&mut self.seen, consumer, budget)
    }

    /// Drops the oldest retired ring, but keeps its count of lost outputs.
    pub(crate) fn forget_oldest(&mut self) {
        if let Some(old) = self.retired.pop_front() {
            self.past_lost += old.kernel_lost().unwrap_or(old.reported_lost());
        }
    }

    /// Reports outputs that were lost after the last record in a ring.
    fn report_lost<C: Consumer>(&mut self, count: u64, consumer: &mut C) -> ControlFlow<()> {
        if count == 0 {
            return ControlFlow::Continue(());
        }
        self.seen.counts.lost += count;
        consumer.lost(Loss { cpu: self.cpu, count, records: None })
    }

    /// Reports losses that the ring has not reported. A ring reports a loss only when a later record fits, so
    /// call this once no program emits any more. If the kernel does not count, `lost` returns the total
    /// number of outputs lost on this CPU.
    pub(crate) fn settle<C: Consumer>(
        &mut self,
        lost: Option<u64>,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let lost = self.kernel_lost().or(lost).unwrap_or(0);
        self.report_lost(lost.saturating_sub(self.seen.counts.lost), consumer)
    }

    /// Delivers the open block of a CPU that is offline or emits no more, unless the consumer has broken already. `slot` is the
    /// first scratch slot of that CPU.
    pub(crate) fn recover<C: Consumer>(
        &mut self,
        slot: &mut [u8],
        mut flow: ControlFlow<()>,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let Ok((head, rest)) = SlotHead::mut_from_prefix(slot) else {
            return flow;
        };
        let words = head.fill as usize / RECORD_ALIGN;
        if words == 0 || words * RECORD_ALIGN > rest.len() {
            return flow;
        }
        for (index, count) in head.kinds.iter().map_while(|kind| kind.get()) {
            if let Some(kind) = RecordKind::at(index) {
                self.seen.received.recovered.add(kind, u64::from(count));
            }
        }
        head.prefix = BlockPrefix::new(words as u16, 0, head.seq);
        let at = offset_of!(SlotHead, prefix);
        let end = size_of::<SlotHead>() + words * RECORD_ALIGN;
        if flow.is_continue() {
            flow = cursor::deliver_block(self.cpu, &slot[at..end], &mut self.seen, consumer);
        }
        self.is_block_left |= flow.is_break();
        flow
    }
}

impl AsFd for EvQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
