//! The mapped pages of a ring: one control page (`struct perf_event_mmap_page` in
//! `include/uapi/linux/perf_event.h`), then the data area.
//!
//! The law of this file: the kernel writes only outside of `data_tail .. data_head`, so that bytes
//! between the two are ours to borrow, until the tail moves past them. Nothing borrows longer than
//! that: [`RingMemory::bytes`] borrows the pages, and moving the tail takes them mutably.
//!
//! Of a ring that is overwritten, nothing is ours until its output is paused and the programs have ended
//! that had begun to write; then all of it is, until it goes on. It has no tail.
#![allow(unsafe_code)]

use super::RingMemory;
use super::cursor::{Geometry, Span};
use crate::sys::memory::{Mapping, page_size};
use probe_common::control::{CONTROL_CPUS, CpuControl};
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// `offsetof(struct perf_event_mmap_page, data_head)`, fixed by the ABI.
const DATA_HEAD_AT: usize = 1024;
const DATA_TAIL_AT: usize = 1032;

/// A mapped ring.
#[derive(Debug)]
pub(crate) struct RingPages {
    mapping: Mapping,
    data_at: usize,
    geometry: Geometry,
}

impl RingPages {
    /// Maps the ring of an event, with a data area of `data_bytes`: a power of two pages.
    pub(crate) fn map(event: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Self> {
        Self::map_with(Mapping::new, event, data_bytes)
    }

    /// Maps the ring of an event that writes backward, so that the kernel overwrites it: what tells it to
    /// is that nobody could move a tail.
    pub(crate) fn map_overwritten(event: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Self> {
        Self::map_with(Mapping::read_only, event, data_bytes)
    }

    fn map_with(
        map: fn(BorrowedFd<'_>, usize) -> io::Result<Mapping>,
        event: BorrowedFd<'_>,
        data_bytes: usize,
    ) -> io::Result<Self> {
        let data_at = page_size();
        let geometry =
            Geometry::new(data_bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let mapping = map(event, data_at + data_bytes)?;
        Ok(Self { mapping, data_at, geometry })
    }

    /// Up to where we have read.
    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        // ORDERING: only we write it.
        self.control(DATA_TAIL_AT).load(Ordering::Relaxed)
    }

    #[inline]
    fn control(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped, and `at` is a place in it.
        let field = unsafe { self.mapping.address().add(at) }.cast();
        // SAFETY: it is an 8-aligned u64 that both sides access with single loads and stores.
        unsafe { AtomicU64::from_ptr(field.as_ptr()) }
    }

    #[inline]
    fn data(&self, range: std::ops::Range<usize>) -> &[u8] {
        debug_assert!(range.end <= self.geometry.size());
        // SAFETY: Geometry::span() gives offsets within the data area, which is mapped behind the
        // control page.
        let start = unsafe { self.mapping.address().add(self.data_at + range.start) };
        // SAFETY: as above, and for as long as `self` lives; the caller asks only for bytes between
        // the tail and the head, or of a ring that is paused: nobody writes them.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), range.len()) }
    }
}

impl RingMemory for RingPages {
    #[inline]
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    fn head(&self) -> u64 {
        // ORDERING: pairs with the kernel's smp_wmb() before it stores data_head, in
        // perf_output_put_handle(): who sees the head sees the data before it.
        self.control(DATA_HEAD_AT).load(Ordering::Acquire)
    }

    #[inline]
    fn publish_tail(&mut self, tail: u64) {
        // ORDERING: pairs with the control dependency from the kernel's load of data_tail to its
        // writes, in __perf_output_begin(): our reads come before the kernel overwrites.
        self.control(DATA_TAIL_AT).store(tail, Ordering::Release);
    }

    #[inline]
    fn bytes<'r>(&'r self, at: u64, len: usize, scratch: &'r mut Scratch) -> &'r [u8] {
        match self.geometry.span(at, len) {
            Span::Whole(range) => self.data(range),
            Span::Wrapped { first, second } => scratch.join(self.data(first), self.data(second)),
        }
    }

    #[inline]
    fn piece(&self, at: u64, available: usize) -> &[u8] {
        self.data(self.geometry.piece(at, available))
    }
}

const _: () = assert!(DATA_TAIL_AT + 8 <= 4096);

/// `offsetof(struct perf_event_mmap_page, aux_head)`, and those of the fields behind it.
#[cfg(feature = "perf")]
mod aux_at {
    pub(super) const HEAD: usize = 1056;
    pub(super) const TAIL: usize = 1064;
    pub(super) const OFFSET: usize = 1072;
    pub(super) const SIZE: usize = 1080;
}

/// The AUX area of an event: bulk data that the kernel, or the hardware, writes beside the ring, which tells
/// of it.
///
/// As in the ring, the kernel writes only outside of `aux_tail .. aux_head`. An area that is overwritten has no
/// tail: what is read of it, nobody may write meanwhile, so its event has to be off.
#[cfg(feature = "perf")]
#[derive(Debug)]
pub(crate) struct AuxPages {
    mapping: Mapping,
    geometry: Geometry,
}

#[cfg(feature = "perf")]
impl RingPages {
    /// Maps the event's AUX area of `bytes`, a power of two pages, behind the ring. What is not writable, the
    /// kernel overwrites.
    pub(crate) fn map_aux(
        &self,
        event: BorrowedFd<'_>,
        bytes: usize,
        is_writable: bool,
    ) -> io::Result<AuxPages> {
        let geometry =
            Geometry::new(bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let offset = self.data_at + self.geometry.size();
        // ORDERING: the kernel reads them in the mmap(2) that follows.
        self.control(aux_at::OFFSET).store(offset as u64, Ordering::Relaxed);
        // ORDERING: as above.
        self.control(aux_at::SIZE).store(bytes as u64, Ordering::Relaxed);
        Ok(AuxPages { mapping: Mapping::part(event, offset, bytes, is_writable)?, geometry })
    }

    /// Up to where the AUX area has been written.
    pub(crate) fn aux_head(&self) -> u64 {
        // ORDERING: pairs with the kernel's store in perf_aux_output_end(), before which it, or the hardware,
        // has written the data.
        self.control(aux_at::HEAD).load(Ordering::Acquire)
    }

    /// Gives everything of the AUX area before `tail` back to the kernel.
    pub(crate) fn publish_aux_tail(&mut self, tail: u64) {
        // ORDERING: pairs with the control dependency in perf_aux_output_begin(): our reads come before the
        // kernel writes there again.
        self.control(aux_at::TAIL).store(tail, Ordering::Release);
    }
}

#[cfg(feature = "perf")]
impl AuxPages {
    /// Whether this process has the area, and the ring that tells of it.
    pub(crate) fn are_here(&self) -> bool {
        self.mapping.is_here()
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// `len` bytes from position `at`, in two pieces where they wrap; at most the size of the area. They have
    /// to be between its tail and its head, or nobody may write.
    pub(crate) fn bytes(&self, at: u64, len: usize) -> (&[u8], &[u8]) {
        match self.geometry.span(at, len) {
            Span::Whole(range) => (self.data(range), &[]),
            Span::Wrapped { first, second } => (self.data(first), self.data(second)),
        }
    }

    fn data(&self, range: std::ops::Range<usize>) -> &[u8] {
        debug_assert!(range.end <= self.geometry.size());
        // SAFETY: Geometry::span() gives offsets within the area, all of which is mapped.
        let start = unsafe { self.mapping.address().add(range.start) };
        // SAFETY: as above, and for as long as `self` lives; the caller asks only for what nobody writes.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), range.len()) }
    }
}

/// The page that both sides share: the values of a memory-mappable array of [`CpuControl`].
#[derive(Debug)]
pub(crate) struct ControlPage {
    mapping: Mapping,
}

impl ControlPage {
    /// Maps the values of a map, which has to be of that type.
    pub(crate) fn map(map: BorrowedFd<'_>) -> io::Result<Self> {
        let len = CONTROL_CPUS as usize * size_of::<CpuControl>();
        Ok(Self { mapping: Mapping::new(map, len)? })
    }

    /// One CPU's entry, if there is one, and this process has the page.
    pub(crate) fn cpu(&self, cpu: u32) -> Option<CpuFlags<'_>> {
        let at = cpu as usize * size_of::<CpuControl>();
        (cpu < CONTROL_CPUS && self.mapping.is_here()).then_some(CpuFlags { page: self, at })
    }

    fn field(&self, at: usize) -> &AtomicU32 {
        // SAFETY: CpuFlags has checked that the entry is in the page.
        let field = unsafe { self.mapping.address().add(at) }.cast();
        // SAFETY: it is a 4-aligned u32 that both sides access with single loads and stores.
        unsafe { AtomicU32::from_ptr(field.as_ptr()) }
    }
}

/// One CPU's entry of the control page.
#[derive(Debug)]
pub(crate) struct CpuFlags<'p> {
    page: &'p ControlPage,
    at: usize,
}

impl CpuFlags<'_> {
    pub(crate) fn set_limit(&self, bytes: u32) {
        // ORDERING: it takes effect whenever the CPU sees it.
        self.page.field(self.at + offset_of!(CpuControl, limit)).store(bytes, Ordering::Relaxed);
    }

    /// Which sleep the consumer is in; 0 for none.
    pub(crate) fn set_asleep(&self, sleep: u32) {
        // ORDERING: what makes the flag take effect is the run of the flush program that follows,
        // which interrupts the CPU.
        let flag = self.page.field(self.at + offset_of!(CpuControl, asleep));
        flag.store(sleep, Ordering::SeqCst);
    }

    /// Whether the CPU has ended the sleep of this number.
    pub(crate) fn has_ended(&self, sleep: u32) -> bool {
        // ORDERING: who has ended it has woken us through the ring, which orders the rest.
        self.page.field(self.at + offset_of!(CpuControl, woken)).load(Ordering::Acquire) == sleep
    }

    pub(crate) fn open(&self) -> u32 {
        // ORDERING: the number only says whether a flush is worth while.
        self.page.field(self.at + offset_of!(CpuControl, open)).load(Ordering::Acquire)
    }
}

/// Where a record is put together that wraps around the end of a ring: as long as the longest
/// record, and aligned as it is in the ring.
#[derive(Debug)]
pub(crate) struct Scratch {
    words: Box<[u64]>,
}

impl Scratch {
    /// Bytes of the longest perf record: its size is a u16.
    const LEN: usize = 1 << 16;

    pub(crate) fn new() -> Self {
        Self { words: vec![0; Self::LEN / 8].into_boxed_slice() }
    }

    /// Both parts, one after the other.
    pub(crate) fn join(&mut self, first: &[u8], second: &[u8]) -> &[u8] {
        let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut *self.words);
        let (start, end) = bytes[..first.len() + second.len()].split_at_mut(first.len());
        start.copy_from_slice(first);
        end.copy_from_slice(second);
        &bytes[..first.len() + second.len()]
    }
}
