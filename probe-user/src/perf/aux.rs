//! The AUX area of an event: bulk data beside its ring, as hardware traces have it (Intel PT, Arm SPE and ETM).

use super::error::PerfError;
use super::event::Event;
use super::opened;
use super::place::Place;
use super::record::{Body, Layout, Record, SampleType};
use super::sample_ring::SampleRing;
use crate::error::forked;
use crate::ring::page::{AuxPages, RingPages};
use crate::sys::memory::page_size;
use crate::sys::perf_event::{Flags, PerfEvent};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Pages of the ring that tells of the area: of 4 KiB, 2,000 pieces of data.
const RING_PAGES: usize = 32;

bitflags::bitflags! {
    /// What the kernel says of a piece of data: `PERF_AUX_FLAG_*` in `include/uapi/linux/perf_event.h`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AuxFlags: u64 {
        /// There was no room for all of it: the rest is lost.
        const TRUNCATED = 1 << 0;
        /// It is of an area that is overwritten.
        const OVERWRITE = 1 << 1;
        /// It has gaps.
        const PARTIAL = 1 << 2;
        /// Another one has disturbed it.
        const COLLISION = 1 << 3;
        /// Others, which tell the format.
        const _ = !0;
    }
}

/// How an AUX area is used. Sizes are powers of two, of a page at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuxMode {
    /// All data is read, piece by piece ([`AuxTrace::next_piece`]), and what there is no room for is not written:
    /// so many bytes.
    Full(usize),
    /// The newest so many bytes are there when one looks ([`AuxTrace::snapshot`]); older ones are overwritten.
    Snapshot(usize),
}

/// An event with an AUX area, on a CPU; or of threads, all of whose data is in one ([`AuxTraces`]).
///
/// Which events have one, and what their data means, is a matter of the hardware. A child that is forked does not have
/// the area: there, it has no pieces, and no snapshot can be taken.
///
/// [`AuxTraces`]: super::AuxTraces
#[derive(Debug)]
pub struct AuxTrace {
    // Unmapped first.
    area: AuxPages,
    ring: SampleRing,
    layout: Layout,
    /// The first has the area, the others share it.
    events: Vec<PerfEvent>,
    /// Of the ring.
    place: Place,
    mode: AuxMode,
    /// Of the area, up to where its bytes have been given.
    given: u64,
    flagged: Flagged,
    skipped: u64,
    lost_records: u64,
}

/// Data of an AUX area, oldest first: where the area wraps, in two pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxPiece<'a> {
    /// Where it begins, in bytes of all that the event ever wrote.
    pub position: u64,
    /// The data.
    pub bytes: &'a [u8],
    /// The rest of it.
    pub wrapped: &'a [u8],
    /// What the kernel says of it.
    pub flags: AuxFlags,
}

impl AuxPiece<'_> {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.wrapped.len()
    }

    /// Whether it has none: there was no room for any.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it, in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        [self.bytes, self.wrapped].concat()
    }
}

impl AuxTrace {
    /// Opens an event on a CPU, with an AUX area. It is [off](Self::enable).
    ///
    /// # Errors
    ///
    /// If the event cannot be opened, has no AUX area, or the area cannot be had: of a size that is none, or too
    /// large for what may be locked (`kernel.perf_event_mlock_kb`, `RLIMIT_MEMLOCK`).
    pub fn open(event: &Event, cpu: u32, mode: AuxMode) -> Result<Self, PerfError> {
        Self::open_at(event, &Place::on_cpu(cpu), mode, Flags::empty())
    }

    /// The same, at a place, with these flags.
    pub(super) fn open_at(
        event: &Event,
        place: &Place,
        mode: AuxMode,
        flags: Flags,
    ) -> Result<Self, PerfError> {
        let (opened, layout) = open(event, place, flags)?;
        let failed = |source| {
            let (event, place) = (event.described(), place.to_string());
            PerfError::Aux { event, place, source }
        };
        let ring_bytes = RING_PAGES * page_size();
        let ring = RingPages::map(opened.as_fd(), ring_bytes).map_err(failed)?;
        let (bytes, is_writable) = match mode {
            AuxMode::Full(bytes) => (bytes, true),
            AuxMode::Snapshot(bytes) => (bytes, false),
        };
        let area = ring.map_aux(opened.as_fd(), bytes, is_writable).map_err(failed)?;
        let (ring, events) = (SampleRing::new(ring), vec![opened]);
        let place = place.of_ring();
        let (given, flagged, skipped, lost_records) = (0, Flagged::default(), 0, 0);
        Ok(Self { area, ring, layout, events, place, mode, given, flagged, skipped, lost_records })
    }

    /// Has the event at another place write into this area, too.
    pub(super) fn share(
        &mut self,
        event: &Event,
        place: &Place,
        flags: Flags,
    ) -> Result<(), PerfError> {
        let (opened, _) = open(event, place, flags)?;
        opened::share(&opened, &self.events[0], event, place)?;
        self.events.push(opened);
        Ok(())
    }

    /// The events that write into it.
    pub(super) fn events(&self) -> &[PerfEvent] {
        &self.events
    }

    /// The CPU, unless it is that of a thread wherever it runs.
    pub fn cpu(&self) -> Option<u32> {
        self.place.cpu
    }

    /// The thread, if it is that of one wherever it runs.
    pub fn thread(&self) -> Option<u32> {
        self.place.thread
    }

    /// Switches it on. An event that finds no room at all is switched off by the kernel: when there is room again,
    /// it has to be switched on again.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to: the CPU is gone, or another one has the hardware.
    pub fn enable(&self) -> io::Result<()> {
        self.events.iter().try_for_each(PerfEvent::enable)
    }

    /// Switches it off. What it has written is all in the area then.
    ///
    /// # Errors
    ///
    /// If the CPU is gone.
    pub fn disable(&self) -> io::Result<()> {
        self.events.iter().try_for_each(PerfEvent::disable)
    }

    /// The next piece of data, if there is one: its bytes are the caller's until the next call, and the kernel's
    /// again then. What is in an area that is overwritten has no pieces.
    ///
    /// Nothing in the ring is believed: what claims bytes that cannot be there is skipped, and
    /// [counted](Self::skipped).
    pub fn next_piece(&mut self) -> Option<AuxPiece<'_>> {
        self.next_piece_and(|_| ())
    }

    /// The same, and gives all records of the ring up to there to `besides`: those of data
    /// ([`Body::Aux`]), of when hardware begins to trace a thread ([`Body::ItraceStart`]), and what else decoders need.
    /// Their times are of perf's own clock.
    pub fn next_piece_and(&mut self, mut besides: impl FnMut(&Record<'_>)) -> Option<AuxPiece<'_>> {
        let AuxMode::Full(_) = self.mode else { return None };
        if !self.area.are_here() {
            return None;
        }
        self.ring.pages_mut().publish_aux_tail(self.given);
        let Claim { position, len, flags } = self.next_claim(&mut besides)?;
        self.skipped += position.wrapping_sub(self.given);
        self.given = position.wrapping_add(len as u64);
        let (bytes, wrapped) = self.area.bytes(position, len);
        Some(AuxPiece { position, bytes, wrapped, flags })
    }

    /// Gives the newest data to `take`, while the event is off: oldest first, as much as there is, and at most
    /// what the area has room for. Then it is on.
    ///
    /// Where the hardware tells its place in the area alone, and not how often it has been around, it has been if
    /// there is anything behind that place.
    ///
    /// The flags are those of all pieces that the data has, as far as the ring had room to tell of them: so
    /// [look](Self::look) now and then. Of hardware that tells its place alone, they are those of all that it ever wrote.
    ///
    /// # Errors
    ///
    /// If the event cannot be switched off, or on again; or this process was forked from the one that opened it.
    pub fn snapshot<T>(&mut self, take: impl FnOnce(AuxPiece<'_>) -> T) -> io::Result<T> {
        self.snapshot_and(take, |_| ())
    }

    /// The same, and gives all records of the ring to `besides` before, as [`look`](Self::look).
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Self::snapshot).
    pub fn snapshot_and<T>(
        &mut self,
        take: impl FnOnce(AuxPiece<'_>) -> T,
        besides: impl FnMut(&Record<'_>),
    ) -> io::Result<T> {
        if !self.area.are_here() {
            return Err(forked());
        }
        self.disable()?;
        self.look(besides);
        let (head, size) = (self.ring.pages_mut().aux_head(), self.area.geometry().size());
        let has_wrapped = head >= size as u64 || {
            let (behind, _) = self.area.bytes(head, size - head as usize);
            behind.iter().any(|&byte| byte != 0)
        };
        let len = if has_wrapped { size } else { head as usize };
        let position = head.wrapping_sub(len as u64);
        let (bytes, wrapped) = self.area.bytes(position, len);
        let begin = (head >= size as u64).then_some(position);
        let flags = AuxFlags::OVERWRITE | self.flagged.behind(begin, len as u64);
        let taken = take(AuxPiece { position, bytes, wrapped, flags });
        self.enable()?;
        Ok(taken)
    }

    /// Reads what the ring of an area that is overwritten tells, so that it has room for more, and gives all records to
    /// `besides`, as [`next_piece_and`](Self::next_piece_and). Of an area that is read whole, it does nothing.
    pub fn look(&mut self, mut besides: impl FnMut(&Record<'_>)) {
        let AuxMode::Snapshot(_) = self.mode else { return };
        if !self.area.are_here() {
            return;
        }
        while let Some((end, _, flags)) = self.next_told(&mut besides) {
            self.flagged.note(AuxFlags::from_bits_retain(flags), end);
        }
    }

    /// How many bytes were written and cannot be told of, since the ring had no room to say where they are.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// How many bytes have been written behind what was given, that the ring has not told of, or not yet. Of an
    /// event that is off and has no [next piece](Self::next_piece), they are as good as skipped.
    pub fn untold(&mut self) -> u64 {
        match self.mode {
            AuxMode::Full(_) if self.area.are_here() => {
                self.ring.pages_mut().aux_head().wrapping_sub(self.given)
            }
            _ => 0,
        }
    }

    /// How many records the ring had no room for.
    pub fn lost_records(&self) -> u64 {
        self.lost_records
    }

    /// What the event counts: how many bytes it has written, for many. Some write data only when they are
    /// asked.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to read it.
    pub fn count(&self) -> io::Result<u64> {
        let mut sum = 0u64;
        for event in &self.events {
            let mut count = [0];
            event.read_words(&mut count)?;
            sum = sum.wrapping_add(count[0]);
        }
        Ok(sum)
    }

    /// Reads on in the ring, up to the next piece of data that it tells of.
    fn next_claim(&mut self, besides: &mut impl FnMut(&Record<'_>)) -> Option<Claim> {
        loop {
            let (offset, size, flags) = self.next_told(besides)?;
            let (head, room) = (self.ring.pages_mut().aux_head(), self.area.geometry().size());
            let claim = Claim::new(offset, size, flags);
            if let Some(claim) = claim.filter(|claim| claim.is_sound(self.given, head, room)) {
                return Some(claim);
            }
        }
    }

    /// Reads on in the ring, up to the next record of data: where it is, how much, and its flags, none of which is
    /// to be believed.
    fn next_told(&mut self, besides: &mut impl FnMut(&Record<'_>)) -> Option<(u64, u64, u64)> {
        self.ring.begin_turn();
        while let Some(taken) = self.ring.take() {
            let Ok(place) = taken else { continue };
            let bytes = self.ring.bytes(place);
            let Ok(record) = Record::with_header(place.header, bytes, &self.layout) else {
                continue;
            };
            besides(&record);
            match record.body {
                Body::Aux { offset, size, flags } => return Some((offset, size, flags)),
                Body::Lost { lost, .. } => self.lost_records += lost,
                _ => {}
            }
        }
        None
    }
}

impl AsFd for AuxTrace {
    /// Readable once there are pieces of data.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events[0].as_fd()
    }
}

/// Opens an event at a place, off, and says what its records have.
fn open(event: &Event, place: &Place, flags: Flags) -> Result<(PerfEvent, Layout), PerfError> {
    let mut attr = event.attr()?;
    let ids = SampleType::IDENTIFIER | SampleType::TID | SampleType::TIME | SampleType::CPU;
    attr.sample_type |= ids.bits();
    attr.flags |= (Flags::DISABLED | Flags::SAMPLE_ID_ALL | flags).bits();
    let opened = opened::open(&attr, place, &event.described())?;
    Ok((opened, Layout::of(&attr)))
}

/// Where the newest piece of data ends that has a flag, for each of them.
#[derive(Debug)]
struct Flagged([Option<u64>; u64::BITS as usize]);

impl Default for Flagged {
    fn default() -> Self {
        Self([None; u64::BITS as usize])
    }
}

impl Flagged {
    /// A piece that ends there has these flags.
    fn note(&mut self, flags: AuxFlags, end: u64) {
        for (bit, newest) in self.0.iter_mut().enumerate() {
            if flags.bits() & 1 << bit != 0 {
                *newest = Some(end);
            }
        }
    }

    /// The flags of the pieces that have some of the `len` bytes behind `begin`; `None`: of all pieces.
    fn behind(&self, begin: Option<u64>, len: u64) -> AuxFlags {
        let is_there =
            |end: u64| begin.is_none_or(|begin| (1..=len).contains(&end.wrapping_sub(begin)));
        let newest = self.0.iter().enumerate().filter(|(_, end)| end.is_some_and(is_there));
        AuxFlags::from_bits_retain(newest.fold(0, |flags, (bit, _)| flags | 1 << bit))
    }
}

/// What the ring says of a piece of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    position: u64,
    len: usize,
    flags: AuxFlags,
}

impl Claim {
    fn new(position: u64, len: u64, flags: u64) -> Option<Self> {
        let flags = AuxFlags::from_bits_retain(flags);
        Some(Self { position, len: usize::try_from(len).ok()?, flags })
    }

    /// Whether an area of this size can have it, that has been read up to `given`, and written up to `head`.
    fn is_sound(&self, given: u64, head: u64, size: usize) -> bool {
        let (before, unread) = (self.position.wrapping_sub(given), head.wrapping_sub(given));
        unread <= size as u64 && before <= unread && self.len as u64 <= unread - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_pieces_that_are_there() {
        let mut flagged = Flagged::default();
        flagged.note(AuxFlags::PARTIAL | AuxFlags::OVERWRITE, 100);
        flagged.note(AuxFlags::OVERWRITE, 150);
        flagged.note(AuxFlags::COLLISION, 120);
        let all = AuxFlags::PARTIAL | AuxFlags::COLLISION | AuxFlags::OVERWRITE;
        assert_eq!(flagged.behind(None, 0), all);
        assert_eq!(flagged.behind(Some(99), 51), all);
        assert_eq!(flagged.behind(Some(100), 50), AuxFlags::COLLISION | AuxFlags::OVERWRITE);
        assert_eq!(flagged.behind(Some(120), 30), AuxFlags::OVERWRITE);
        assert_eq!(flagged.behind(Some(150), 0), AuxFlags::empty());
    }

    #[test]
    fn claims_that_cannot_be_are_not_believed() {
        let claim = |position, len| Claim { position, len, flags: AuxFlags::empty() };
        for (position, len, is_sound) in [
            (100, 0, true),
            (100, 50, true),
            (120, 30, true),
            (100, 51, false),
            (99, 1, false),
            (151, 0, false),
            (u64::MAX, 1, false),
            (100, usize::MAX, false),
        ] {
            assert_eq!(claim(position, len).is_sound(100, 150, 64), is_sound, "{position}, {len}");
        }
        assert!(!claim(100, 1).is_sound(100, 165, 64), "more than there is room for");
        let wraps = u64::MAX - 9;
        assert!(claim(wraps, 20).is_sound(wraps, 10, 64));
    }
}
