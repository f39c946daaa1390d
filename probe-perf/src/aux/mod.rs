//! The AUX area of an event: bulk data beside its ring, used by hardware traces (Intel PT, Arm SPE and ETM).

mod traces;

pub use traces::AuxTraces;

use crate::error::PerfError;
use crate::event::Event;
use crate::record::{Body, Layout, Record, SampleType};
use crate::record_ring::RecordRing;
use crate::target::Site;
use probe_sys::hint::forked;
use probe_sys::memory::page_size;
use probe_sys::perf_event::{Flags, PerfEvent};
use probe_sys::ring::AuxPages;
use probe_sys::ring::page::{RingPages, rounded_up};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The pages of the ring that describes the area. With 4 KiB each, they have room for 2,000 pieces of data.
const RING_PAGES: usize = 32;

bitflags::bitflags! {
    /// The kernel's flags of a piece of data: `PERF_AUX_FLAG_*` in `include/uapi/linux/perf_event.h`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AuxFlags: u64 {
        /// There was no room for all of the data: the rest is lost.
        const TRUNCATED = 1 << 0;
        /// The data is from an area that is overwritten.
        const OVERWRITE = 1 << 1;
        /// The data has gaps.
        const PARTIAL = 1 << 2;
        /// Another trace interfered.
        const COLLISION = 1 << 3;
        /// Other flags, which describe the format.
        const _ = !0;
    }
}

/// How an AUX area is used. Sizes are in bytes, and rounded up to a power of two of at least two pages (one for
/// snapshots).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuxMode {
    /// All data is read, piece by piece ([`AuxTrace::next_piece`]). Data for which there is no room is lost.
    Full(usize),
    /// The newest data is available on request ([`AuxTrace::snapshot`]). It overwrites older data.
    Snapshot(usize),
}

/// An event with an AUX area, on a CPU, or of threads that share an area ([`AuxTraces`]).
///
/// The hardware determines which events have an area, and what their data means. A forked child does not have the area:
/// there are no pieces, and taking a snapshot fails.
#[derive(Debug)]
pub struct AuxTrace {
    // Unmapped first.
    area: AuxPages,
    ring: RecordRing,
    layout: Layout,
    /// The first event has the area, and the others share it.
    events: Vec<PerfEvent>,
    /// The site of the ring.
    site: Site,
    mode: AuxMode,
    /// The position in the area up to which data has been passed to the caller.
    taken: u64,
    newest_flags: NewestFlags,
    skipped: u64,
    lost_records: u64,
}

/// Data of an AUX area, oldest first, in two parts where the area wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxPiece<'a> {
    /// The position of its start, counted in bytes since the event was opened. `None` in a snapshot if the hardware
    /// reports only its position in the area, and has wrapped.
    pub position: Option<u64>,
    /// The data.
    pub bytes: &'a [u8],
    /// The second part, if the data wraps.
    pub wrapped: &'a [u8],
    /// The kernel's flags.
    pub flags: AuxFlags,
}

impl AuxPiece<'_> {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.wrapped.len()
    }

    /// Whether there are no bytes, because there was no room for any.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies both parts.
    pub fn to_vec(&self) -> Vec<u8> {
        [self.bytes, self.wrapped].concat()
    }
}

impl AuxTrace {
    /// Opens an event on a CPU, with an AUX area. It is [disabled](Self::enable).
    ///
    /// # Errors
    ///
    /// If the event cannot be opened or has no AUX area, or if the size is invalid or exceeds the limits of locked memory
    /// (`kernel.perf_event_mlock_kb`, `RLIMIT_MEMLOCK`).
    pub fn open(event: &Event, cpu: u32, mode: AuxMode) -> Result<Self, PerfError> {
        Self::open_at(event, &Site::on_cpu(cpu), mode, Flags::empty())
    }

    /// Opens an event at a site, with flags.
    pub(super) fn open_at(
        event: &Event,
        site: &Site,
        mode: AuxMode,
        flags: Flags,
    ) -> Result<Self, PerfError> {
        let (opened, layout) = open(event, site, flags)?;
        let (bytes, least, is_writable) = match mode {
            // Kernel 5.10 refuses an area of a single page, unless it is overwritten.
            AuxMode::Full(bytes) => (bytes, 2 * page_size(), true),
            AuxMode::Snapshot(bytes) => (bytes, page_size(), false),
        };
        // The kernel refuses a size that cannot be rounded up.
        let bytes = rounded_up(bytes).map_or(bytes, |bytes| bytes.max(least));
        let mapped = RingPages::map(opened.as_fd(), RING_PAGES * page_size())
            .and_then(|ring| Ok((ring.map_aux(opened.as_fd(), bytes, is_writable)?, ring)));
        let (area, ring) = mapped.map_err(|cause| PerfError::Aux {
            event: format!("{} {site}", event.described()),
            cause,
        })?;
        Ok(Self {
            area,
            ring: RecordRing::new(ring),
            layout,
            events: vec![opened],
            site: site.of_ring(),
            mode,
            taken: 0,
            newest_flags: NewestFlags::default(),
            skipped: 0,
            lost_records: 0,
        })
    }

    /// Opens the event at another site, writing into this area.
    pub(super) fn share(
        &mut self,
        event: &Event,
        site: &Site,
        flags: Flags,
    ) -> Result<(), PerfError> {
        let (opened, _) = open(event, site, flags)?;
        site.share_ring(&opened, &self.events[0], event)?;
        self.events.push(opened);
        Ok(())
    }

    /// The events that write into the area.
    pub(super) fn events(&self) -> &[PerfEvent] {
        &self.events
    }

    /// The size of the area in bytes, after rounding up.
    pub fn size(&self) -> usize {
        self.area.geometry().size()
    }

    /// The CPU; `None` for a thread on any CPU.
    pub fn cpu(&self) -> Option<u32> {
        self.site.cpu
    }

    /// The thread, if the area is that of one thread on any CPU.
    pub fn thread(&self) -> Option<u32> {
        self.site.thread
    }

    /// Enables the event. The kernel disables an event that finds no room at all: enable it again once there is room.
    ///
    /// There is no data while the CPU is offline or another event uses the hardware, although the call succeeds. If only one
    /// event at a time can use the PMU, opening the second one fails.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub fn enable(&self) -> io::Result<()> {
        self.events.iter().try_for_each(PerfEvent::enable)
    }

    /// Disables the event. All data that it has written is then in the area.
    ///
    /// # Errors
    ///
    /// If the call fails. It does not if the CPU is offline.
    pub fn disable(&self) -> io::Result<()> {
        self.events.iter().try_for_each(PerfEvent::disable)
    }

    /// The next piece of data, if there is one. Its bytes are valid until the next call, which returns them to the kernel.
    /// An area that is overwritten has no pieces.
    ///
    /// Passes all records of the ring up to this piece to `besides`: those of data ([`Body::Aux`]), of threads that the
    /// hardware starts to trace ([`Body::ItraceStart`]), and others that decoders need. Their times are those of perf's own
    /// clock. The ring is not trusted: records of data that cannot exist are skipped and [counted](Self::skipped).
    pub fn next_piece(&mut self, mut besides: impl FnMut(&Record<'_>)) -> Option<AuxPiece<'_>> {
        let AuxMode::Full(_) = self.mode else { return None };
        if !self.area.are_here() {
            return None;
        }
        self.ring.pages_mut().publish_aux_tail(self.taken);
        loop {
            let Described { position, len, flags } = self.next_described(&mut besides)?;
            let (head, size) = (self.ring.pages_mut().aux_head(), self.size());
            if is_possible(position, len, self.taken, head, size) {
                self.skipped += position.wrapping_sub(self.taken);
                self.taken = position.wrapping_add(len);
                let (bytes, wrapped) = self.area.bytes(position, len as usize);
                return Some(AuxPiece { position: Some(position), bytes, wrapped, flags });
            }
        }
    }

    /// Disables the event, passes the newest data to `take`, oldest byte first, and enables the event. There are at most as
    /// many bytes as the area has. Before that, passes all records of the ring to `besides`, as
    /// [`read_records`](Self::read_records) does.
    ///
    /// Some hardware reports its position in the area, but not how often it has wrapped. It has, if there are bytes other
    /// than 0 behind that position.
    ///
    /// The flags are those of all pieces in the data, as far as the ring had room to describe them: call
    /// [`read_records`](Self::read_records) now and then. If the hardware reports only its position, they are those of all
    /// data that it ever wrote.
    ///
    /// # Errors
    ///
    /// If the event cannot be disabled or enabled, or if this process was forked from the one that opened it.
    pub fn snapshot<T>(
        &mut self,
        take: impl FnOnce(AuxPiece<'_>) -> T,
        besides: impl FnMut(&Record<'_>),
    ) -> io::Result<T> {
        if !self.area.are_here() {
            return Err(forked());
        }
        let paused = Paused { trace: self };
        paused.trace.disable()?;
        paused.trace.read_records(besides);
        let taken = take(paused.trace.newest());
        paused.trace.enable()?;
        Ok(taken)
    }

    /// The newest data, while nothing is written.
    fn newest(&mut self) -> AuxPiece<'_> {
        let (head, size) = (self.ring.pages_mut().aux_head(), self.size());
        let has_wrapped = head >= size as u64 || {
            let (behind, _) = self.area.bytes(head, size - head as usize);
            behind.iter().any(|&byte| byte != 0)
        };
        let len = if has_wrapped { size } else { head as usize };
        let (bytes, wrapped) = self.area.bytes(head.wrapping_sub(len as u64), len);
        let position = head.checked_sub(len as u64);
        let begin = position.filter(|_| head >= size as u64);
        let flags = AuxFlags::OVERWRITE | self.newest_flags.since(begin, len as u64);
        AuxPiece { position, bytes, wrapped, flags }
    }

    /// Empties the ring of an area that is overwritten, so that it has room for more records, and passes them to `besides`,
    /// as [`next_piece`](Self::next_piece) does. Does nothing for [`AuxMode::Full`].
    pub fn read_records(&mut self, mut besides: impl FnMut(&Record<'_>)) {
        let AuxMode::Snapshot(_) = self.mode else { return };
        if !self.area.are_here() {
            return;
        }
        while let Some(Described { position: end, flags, .. }) = self.next_described(&mut besides) {
            self.newest_flags.note(flags, end);
        }
    }

    /// How many bytes were skipped because the ring had no room for the record that describes them.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// How many bytes the area has after the last piece, without a record that describes them yet. If the event is disabled
    /// and has no [next piece](Self::next_piece), they will be skipped.
    pub fn undescribed(&mut self) -> u64 {
        let is_read = matches!(self.mode, AuxMode::Full(_)) && self.area.are_here();
        if is_read { self.ring.pages_mut().aux_head().wrapping_sub(self.taken) } else { 0 }
    }

    /// How many records were lost because the ring had no room.
    pub fn lost_records(&self) -> u64 {
        self.lost_records
    }

    /// The event's own count, which is the number of bytes written for many events. Some write data only when this is
    /// read.
    ///
    /// # Errors
    ///
    /// If the read fails.
    pub fn count(&self) -> io::Result<u64> {
        self.events.iter().try_fold(0u64, |sum, event| {
            let mut count = [0];
            event.read_words(&mut count)?;
            Ok(sum.wrapping_add(count[0]))
        })
    }

    /// Reads the ring up to the next record of data.
    fn next_described(&mut self, besides: &mut impl FnMut(&Record<'_>)) -> Option<Described> {
        self.ring.begin_slice();
        while let Some(taken) = self.ring.take() {
            let Ok(span) = taken else { continue };
            let bytes = self.ring.bytes(span);
            let Ok(record) = Record::with_header(span.header, bytes, &self.layout) else {
                continue;
            };
            besides(&record);
            match record.body {
                Body::Aux { offset: position, size: len, flags } => {
                    let flags = AuxFlags::from_bits_retain(flags);
                    return Some(Described { position, len, flags });
                }
                Body::Lost { lost, .. } => {
                    self.lost_records = self.lost_records.saturating_add(lost);
                }
                _ => {}
            }
        }
        None
    }
}

impl AsFd for AuxTrace {
    /// The descriptor becomes readable when data fills half of the area, or when data is lost for lack of room. A call of
    /// `poll` that reports this clears it, even if the data has not been read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events[0].as_fd()
    }
}

/// Opens an event at a site, disabled, and returns the layout of its records.
fn open(event: &Event, site: &Site, flags: Flags) -> Result<(PerfEvent, Layout), PerfError> {
    let mut attr = event.counting_attr(0)?;
    let ids = SampleType::IDENTIFIER | SampleType::TID | SampleType::TIME | SampleType::CPU;
    attr.sample_type |= ids.bits();
    attr.flags |= (Flags::DISABLED | Flags::SAMPLE_ID_ALL | flags).bits();
    let opened = site.open(&attr, &event.described())?;
    Ok((opened, Layout::of(&attr)))
}

/// A piece of data that the ring describes. It is not checked.
struct Described {
    position: u64,
    len: u64,
    flags: AuxFlags,
}

/// Whether a piece is possible in an area of this size that is read up to `taken` and written up to `head`.
fn is_possible(position: u64, len: u64, taken: u64, head: u64, size: usize) -> bool {
    let (before, unread) = (position.wrapping_sub(taken), head.wrapping_sub(taken));
    unread <= size as u64 && before <= unread && len <= unread - before
}

/// The end of the newest piece of data that has a flag, by the flag's bit.
#[derive(Debug, Default)]
struct NewestFlags(BTreeMap<u32, u64>);

impl NewestFlags {
    /// Records the flags of a piece that ends at `end`.
    fn note(&mut self, flags: AuxFlags, end: u64) {
        let bits = (0..u64::BITS).filter(|bit| flags.bits() & 1 << bit != 0);
        self.0.extend(bits.map(|bit| (bit, end)));
    }

    /// The flags of the pieces that overlap the `len` bytes from `begin` on; with `None`, of all pieces.
    fn since(&self, begin: Option<u64>, len: u64) -> AuxFlags {
        let is_there =
            |end: u64| begin.is_none_or(|begin| (1..=len).contains(&end.wrapping_sub(begin)));
        let newest = self.0.iter().filter(|(_, end)| is_there(**end));
        AuxFlags::from_bits_retain(newest.fold(0, |flags, (bit, _)| flags | 1 << bit))
    }
}

/// Enables the events of a trace when it is dropped, also after a panic, or if only some could be disabled.
struct Paused<'t> {
    trace: &'t mut AuxTrace,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        // The caller has an error already, or has enabled them.
        let _ = self.trace.enable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_pieces_in_the_area() {
        let mut newest = NewestFlags::default();
        newest.note(AuxFlags::PARTIAL | AuxFlags::OVERWRITE, 100);
        newest.note(AuxFlags::OVERWRITE, 150);
        newest.note(AuxFlags::COLLISION, 120);
        let all = AuxFlags::PARTIAL | AuxFlags::COLLISION | AuxFlags::OVERWRITE;
        assert_eq!(newest.since(None, 0), all);
        assert_eq!(newest.since(Some(99), 51), all);
        assert_eq!(newest.since(Some(100), 50), AuxFlags::COLLISION | AuxFlags::OVERWRITE);
        assert_eq!(newest.since(Some(120), 30), AuxFlags::OVERWRITE);
        assert_eq!(newest.since(Some(150), 0), AuxFlags::empty());
    }

    #[test]
    fn impossible_pieces_are_recognized() {
        for (position, len, expected) in [
            (100, 0, true),
            (100, 50, true),
            (120, 30, true),
            (100, 51, false),
            (99, 1, false),
            (151, 0, false),
            (u64::MAX, 1, false),
            (100, u64::MAX, false),
        ] {
            assert_eq!(is_possible(position, len, 100, 150, 64), expected, "{position}, {len}");
        }
        assert!(!is_possible(100, 1, 100, 165, 64), "the area has no room for this");
        let wraps = u64::MAX - 9;
        assert!(is_possible(wraps, 20, wraps, 10, 64));
    }
}
