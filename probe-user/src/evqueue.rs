//! One CPU's queue: its perf events, and the rings that they write.

use crate::backward::{Backward, Output, Unsound};
use crate::consumer::{Consumer, Loss, Malformed, MalformedReason};
use crate::counts::{KindCounts, QueueCounts};
use crate::drain::{self, Drain, Drained, Seen};
use crate::error::OpenError;
use crate::ring::page::RingPages;
use crate::sys::perf_event::{PerfEvent, WakeAt};
use probe_common::limits::{KINDS, RECORD_ALIGN};
use probe_common::slot::SlotHead;
use probe_common::{BlockPrefix, RecordKind};
use std::collections::VecDeque;
use std::io;
use std::mem::offset_of;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use zerocopy::FromBytes;

/// One CPU's perf event and its ring.
///
/// An event does not survive that its CPU goes offline. When the CPU comes back, the queue gets a new
/// one, and consumes what is left in the old ring first.
#[derive(Debug)]
pub struct EvQueue {
    cpu: u32,
    is_online: bool,
    ring: EventRing,
    /// Rings of events that are no more, oldest first.
    retired: VecDeque<EventRing>,
    /// Outputs that the kernel had no room for in rings that are gone.
    past_lost: u64,
    seen: Seen,
    /// Records that never came into a ring, since their CPU went offline.
    recovered: KindCounts,
    tail: Tail,
}

/// What dumps have found in the rings of a CPU, where these are overwritten.
#[derive(Debug, Default)]
struct Tail {
    /// Records that were there, whether or not the consumer wanted them, and that their programs have counted.
    found: KindCounts,
    /// Those that were emitted alone, so that nobody has.
    alone: KindCounts,
    /// Records that were overwritten before a dump.
    overwritten: KindCounts,
    /// Bytes of ring that were.
    overwritten_bytes: u64,
    /// Records that dumps have found and not given.
    left: u64,
}

/// A record that a dump has found, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) time: u64,
    /// Which queue it is of, as whoever looks numbers them.
    pub(crate) queue: u32,
    /// Which of the queue's rings, oldest first.
    ring: u16,
    /// Bytes from the first record of its block.
    offset: u16,
    output: Output,
}

/// A perf event that programs write to, and the ring that they find it by.
#[derive(Debug)]
pub(crate) struct EventRing {
    event: PerfEvent,
    /// Shares the ring, and wakes with every record.
    eager: Option<PerfEvent>,
    way: Way,
}

/// How programs are to write rings.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Writing {
    /// On behind what is there, as far as there is room.
    Forward(WakeAt),
    /// Before what is there, over what is oldest.
    Backward,
}

/// A ring that is written so, and how far it was read.
#[derive(Debug)]
enum Way {
    Forward(Drain<RingPages>),
    Backward(Backward<RingPages>),
}

impl EventRing {
    /// Opens the event of a CPU, maps its ring and enables it, in this order: an event that a map
    /// slot leads to has to have room. `None` if the CPU is offline.
    pub(crate) fn open(
        cpu: u32,
        bytes: usize,
        writing: Writing,
    ) -> Result<Option<Self>, OpenError> {
        let opened = match writing {
            Writing::Forward(wake_at) => PerfEvent::bpf_output(cpu, wake_at),
            Writing::Backward => PerfEvent::backward_output(cpu),
        };
        let event = match opened {
            Ok(event) => event,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            Err(source) => return Err(OpenError::Event { cpu, source }),
        };
        let map = |source| OpenError::Map { cpu, bytes, source };
        let way = match writing {
            Writing::Forward(_) => {
                let pages = RingPages::map(event.as_fd(), bytes).map_err(map)?;
                let tail = pages.tail();
                Way::Forward(Drain::new(cpu, pages, tail))
            }
            Writing::Backward => {
                let pages = RingPages::map_overwritten(event.as_fd(), bytes).map_err(map)?;
                Way::Backward(Backward::new(pages))
            }
        };
        event.enable().map_err(|source| OpenError::Enable { cpu, source })?;
        Ok(Some(Self { event, eager: None, way }))
    }

    /// Opens a second event that writes into the same ring and wakes with every record, and lends
    /// it.
    pub(crate) fn open_eager(&mut self, cpu: u32) -> io::Result<BorrowedFd<'_>> {
        let eager = PerfEvent::bpf_output(cpu, WakeAt::Events(1))?;
        eager.set_output(self.event.as_fd())?;
        eager.enable()?;
        let eager: &PerfEvent = self.eager.insert(eager);
        Ok(eager.as_fd())
    }

    /// Takes nothing from here on, or takes what comes again.
    pub(crate) fn pause(&self, paused: bool) -> io::Result<()> {
        self.event.pause_output(paused)
    }

    /// The second event, if there is one.
    pub(crate) fn eager(&self) -> Option<BorrowedFd<'_>> {
        self.eager.as_ref().map(AsFd::as_fd)
    }

    fn has_records(&self) -> bool {
        match &self.way {
            Way::Forward(drain) => drain.has_records(),
            Way::Backward(backward) => backward.has_more(),
        }
    }

    /// How many outputs the ring said were lost.
    fn told_lost(&self) -> u64 {
        match &self.way {
            Way::Forward(drain) => drain.lost(),
            Way::Backward(_) => 0,
        }
    }

    /// A ring that is overwritten is not drained: a dump looks at it.
    fn run<C: Consumer>(&mut self, seen: &mut Seen, consumer: &mut C, budget: usize) -> Drained {
        match &mut self.way {
            Way::Forward(drain) => drain.run(seen, consumer, budget),
            Way::Backward(_) => Drained { flow: ControlFlow::Continue(()), more: false },
        }
    }

    /// How many outputs the kernel had no room for, whether or not the ring has told so yet.
    fn kernel_lost(&self) -> Option<u64> {
        let eager = match &self.eager {
            Some(eager) => eager.lost().ok().flatten()?,
            None => 0,
        };
        Some(self.event.lost().ok().flatten()? + eager)
    }

    /// How many of them the ring has not told of.
    fn owed(&self) -> u64 {
        self.kernel_lost().map_or(0, |lost| lost.saturating_sub(self.told_lost()))
    }

    fn disable(&self) {
        for event in self.eager.iter().chain([&self.event]) {
            // It fails only if the event is gone, which is as good.
            let _ = event.disable();
        }
    }
}

impl AsFd for EventRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl EvQueue {
    pub(crate) fn new(cpu: u32, ring: EventRing) -> Self {
        Self {
            cpu,
            is_online: true,
            ring,
            retired: VecDeque::new(),
            past_lost: 0,
            seen: Seen::default(),
            recovered: KindCounts::default(),
            tail: Tail::default(),
        }
    }

    /// See [`EventRing::open_eager`].
    pub(crate) fn open_eager(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.ring.open_eager(self.cpu)
    }

    /// The CPU is online again: goes on with a new event, which is in the maps already.
    pub(crate) fn go_online(&mut self, ring: EventRing) {
        self.is_online = true;
        self.retired.push_back(std::mem::replace(&mut self.ring, ring));
    }

    /// The CPU is offline: its event will never write again.
    pub(crate) fn go_offline(&mut self) {
        self.is_online = false;
    }

    /// Whether the CPU is online, as far as is known.
    pub fn is_online(&self) -> bool {
        self.is_online
    }

    /// Whether there is something to read.
    pub(crate) fn has_records(&self) -> bool {
        !self.retired.is_empty() || self.ring.has_records() || self.tail.left > 0
    }

    pub(crate) fn ring(&self) -> &EventRing {
        &self.ring
    }

    /// How many records of each kind were overwritten before a dump.
    pub(crate) fn overwritten(&self) -> &KindCounts {
        &self.tail.overwritten
    }

    /// How many bytes of ring were.
    pub(crate) fn overwritten_bytes(&self) -> u64 {
        self.tail.overwritten_bytes
    }

    /// The CPU.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// What the queue has seen so far.
    pub fn counts(&self) -> QueueCounts {
        self.seen.counts
    }

    /// How many records of each kind it has given to the consumer.
    pub(crate) fn kinds(&self) -> &KindCounts {
        &self.seen.given.kinds
    }

    /// What the eBPF side has sent, or was about to, and has not counted: of each kind, what was emitted alone and has
    /// been read, and what never came into a ring.
    pub(crate) fn uncounted(&self) -> impl Iterator<Item = (RecordKind, u64)> {
        self.seen.given.alone.iter().chain(self.tail.alone.iter()).chain(self.recovered.iter())
    }

    /// How many outputs the kernel had no room for since the queue was opened, whether or not the
    /// ring has told so yet (`PERF_FORMAT_LOST`). `None` before kernel 6.0, which cannot say.
    pub fn kernel_lost(&self) -> Option<u64> {
        let rings = self.retired.iter().chain([&self.ring]).map(EventRing::kernel_lost);
        Some(rings.sum::<Option<u64>>()? + self.past_lost)
    }

    /// No longer takes records.
    pub(crate) fn disable(&self) {
        self.ring.disable();
    }

    /// Gives everything that is there now to `consumer`, up to `budget` bytes of ring, or until it
    /// breaks.
    pub(crate) fn drain<C: Consumer>(&mut self, consumer: &mut C, budget: usize) -> Drained {
        while let Some(old) = self.retired.front_mut() {
            let drained = old.run(&mut self.seen, consumer, budget);
            if drained.flow.is_break() || drained.more {
                return Drained { more: true, ..drained };
            }
            let owed = old.owed();
            self.forget_oldest();
            if let ControlFlow::Break(()) = self.tell_owed(owed, consumer) {
                return Drained { flow: ControlFlow::Break(()), more: true };
            }
        }
        self.ring.run(&mut self.seen, consumer, budget)
    }

    /// Has done with the oldest ring of an event that is no more.
    fn forget_oldest(&mut self) {
        if let Some(old) = self.retired.pop_front() {
            self.past_lost += old.kernel_lost().unwrap_or(old.told_lost());
        }
    }

    /// Finds what has come into the rings since the last dump: no program may write there now. Oldest
    /// first; `queue` is the number that they get. `sent` is asked how many records of a kind this CPU has
    /// sent in all, if that is known.
    pub(crate) fn find<C: Consumer>(
        &mut self,
        queue: u32,
        places: &mut Vec<Place>,
        sent: impl Fn(RecordKind) -> Option<u64>,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let Self { cpu, ring, retired, seen, tail, .. } = self;
        let mut malformed = |bytes, reason| {
            seen.counts.malformed += 1;
            seen.counts.malformed_bytes += bytes;
            consumer.malformed(Malformed { cpu: *cpu, bytes, reason })
        };
        for (number, ring) in retired.iter_mut().chain([ring]).enumerate() {
            let Way::Backward(ring) = &mut ring.way else { continue };
            let found = ring.look();
            tail.overwritten_bytes += found.overwritten;
            if found.malformed > 0 {
                malformed(found.malformed, MalformedReason::RecordSize)?;
            }
            for &output in found.outputs.iter().rev() {
                let result = ring.records(output, |record, is_alone, offset| {
                    let found = if is_alone { &mut tail.alone } else { &mut tail.found };
                    found.add(record.kind, 1);
                    tail.left += 1;
                    let (ring, offset) = (number as u16, offset as u16);
                    places.push(Place { time: record.time, queue, ring, offset, output });
                });
                let reason = match result {
                    Ok(()) => continue,
                    Err(Unsound::Body) => MalformedReason::RecordBody,
                    Err(Unsound::Block(error)) => MalformedReason::Block(error),
                };
                malformed(output.size as u64, reason)?;
            }
        }
        if tail.overwritten_bytes > 0 {
            for kind in (0..KINDS).filter_map(RecordKind::at) {
                let gone = sent(kind).map(|sent| sent.saturating_sub(tail.found.of(kind)));
                tail.overwritten.set(kind, gone.unwrap_or(0));
            }
        }
        ControlFlow::Continue(())
    }

    /// Gives a record that was [found](Self::find).
    pub(crate) fn give<C: Consumer>(&mut self, place: &Place, consumer: &mut C) -> ControlFlow<()> {
        let at = usize::from(place.ring);
        let ring = self.retired.get_mut(at).unwrap_or(&mut self.ring);
        let Way::Backward(ring) = &mut ring.way else { return ControlFlow::Continue(()) };
        let Some(record) = ring.record(place.output, place.offset.into()) else {
            return ControlFlow::Continue(());
        };
        // Before the consumer sees it, which may panic.
        self.tail.left -= 1;
        self.seen.given.kinds.add(record.kind, 1);
        self.seen.counts.records += 1;
        consumer.record(self.cpu, record)
    }

    /// All that was found is given.
    pub(crate) fn end_dump(&mut self) {
        while !self.retired.is_empty() {
            self.forget_oldest();
        }
    }

    /// Tells of `owed` outputs that were lost after the last record that came.
    fn tell_owed<C: Consumer>(&mut self, owed: u64, consumer: &mut C) -> ControlFlow<()> {
        if owed == 0 {
            return ControlFlow::Continue(());
        }
        self.seen.counts.lost += owed;
        consumer.lost(Loss { cpu: self.cpu, count: owed, records: None })
    }

    /// Tells of what was lost and the ring has not told of, which it does only when a later record
    /// fits: once nobody emits any more. Where the kernel cannot say, `lost` is asked how many outputs
    /// were lost on this CPU in all.
    pub(crate) fn settle<C: Consumer>(
        &mut self,
        lost: impl FnOnce() -> Option<u64>,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let lost = self.kernel_lost().or_else(lost).unwrap_or(0);
        self.tell_owed(lost.saturating_sub(self.seen.counts.lost), consumer)
    }

    /// Gives the block that a CPU has left open which is offline, or emits no more: `slot` is the
    /// first scratch slot of that CPU.
    pub(crate) fn recover<C: Consumer>(
        &mut self,
        slot: &mut [u8],
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let Ok((head, rest)) = SlotHead::mut_from_prefix(slot) else {
            return ControlFlow::Continue(());
        };
        let words = head.fill as usize / RECORD_ALIGN;
        if words == 0 || words * RECORD_ALIGN > rest.len() {
            return ControlFlow::Continue(());
        }
        for (index, count) in head.kinds.iter().map_while(|kind| kind.get()) {
            if let Some(kind) = RecordKind::at(index) {
                self.recovered.add(kind, u64::from(count));
            }
        }
        head.prefix = BlockPrefix::new(words as u16, 0, head.seq);
        let at = offset_of!(SlotHead, prefix);
        let end = size_of::<SlotHead>() + words * RECORD_ALIGN;
        drain::give_block(self.cpu, &slot[at..end], &mut self.seen, consumer)
    }
}

impl AsFd for EvQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
