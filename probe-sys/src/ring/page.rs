//! The mapped pages of a ring: one control page (`struct perf_event_mmap_page` in
//! `include/uapi/linux/perf_event.h`), then the data area.
//!
//! The rule of this file: the kernel writes only outside of `data_tail .. data_head`, so we may borrow the bytes between
//! the two until the tail moves past them. The borrow checker enforces this: [`RingMemory::bytes`] borrows the pages,
//! and moving the tail borrows them mutably.
//!
//! A ring that the kernel overwrites has no tail. We may borrow its bytes only while its output is paused, and only
//! once the programs that had begun to write have ended.

use super::RingMemory;
use super::cursor::Geometry;
use crate::memory::{Mapping, page_size};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// `offsetof(struct perf_event_mmap_page, data_head)`, fixed by the ABI.
const DATA_HEAD_AT: usize = 1024;
const DATA_TAIL_AT: usize = 1032;

/// The size that the kernel requires of a ring or an AUX area of at least this many bytes: a power of two of at least a
/// page. `None` for no bytes, and for more than there can be.
pub fn rounded_up(bytes: usize) -> Option<usize> {
    if bytes == 0 { None } else { bytes.max(page_size()).checked_next_power_of_two() }
}

/// A mapped ring.
#[derive(Debug)]
pub struct RingPages {
    mapping: Mapping,
    pub(super) data_at: usize,
    pub(super) geometry: Geometry,
}

impl RingPages {
    /// Maps the ring of an event, with a data area of `data_bytes`, a power of two of at least a page.
    pub fn map(event: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Self> {
        Self::map_with(event, data_bytes, true)
    }

    /// Maps the ring of an event that writes backward. The kernel overwrites this ring, because the mapping is read-only
    /// and no reader can move a tail.
    pub fn map_overwritten(event: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Self> {
        Self::map_with(event, data_bytes, false)
    }

    fn map_with(event: BorrowedFd<'_>, data_bytes: usize, is_writable: bool) -> io::Result<Self> {
        let data_at = page_size();
        let geometry =
            Geometry::new(data_bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let mapping = Mapping::part(event, 0, data_at + data_bytes, is_writable)?;
        Ok(Self { mapping, data_at, geometry })
    }

    /// The position up to which we have read.
    #[inline]
    pub fn tail(&self) -> u64 {
        // ORDERING: only this process writes the tail.
        self.control(DATA_TAIL_AT).load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn control(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped, and `at` is an offset in it.
        let field = unsafe { self.mapping.address().add(at) }.cast();
        // SAFETY: the field is an 8-aligned u64 that both sides access with single loads and stores.
        unsafe { AtomicU64::from_ptr(field.as_ptr()) }
    }

    #[inline]
    fn data(&self, range: std::ops::Range<usize>) -> &[u8] {
        debug_assert!(range.end <= self.geometry.size());
        // SAFETY: Geometry::span() gives offsets within the data area, which is mapped behind the
        // control page.
        let start = unsafe { self.mapping.address().add(self.data_at + range.start) };
        // SAFETY: as above, and for as long as `self` lives. The caller asks only for bytes between the tail and the
        // head, or in a paused ring, and nobody writes those.
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
        // perf_output_put_handle(): a reader of the head also sees the data before it.
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
        let (first, second) = self.geometry.span(at, len);
        if second.is_empty() {
            self.data(first)
        } else {
            scratch.join(self.data(first), self.data(second))
        }
    }

    #[inline]
    fn piece(&self, at: u64, available: usize) -> &[u8] {
        self.data(self.geometry.span(at, available).0)
    }
}

const _: () = assert!(DATA_TAIL_AT + 8 <= 4096);

/// A buffer for records that wrap around the end of a ring. It has room for the longest record, and the alignment of
/// the ring.
#[derive(Debug)]
pub struct Scratch {
    words: Box<[u64]>,
}

impl Scratch {
    /// The bytes of the longest perf record, whose size is a u16.
    const LEN: usize = 1 << 16;

    /// Joins the two parts of a record.
    pub fn join(&mut self, first: &[u8], second: &[u8]) -> &[u8] {
        let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut *self.words);
        let joined = &mut bytes[..first.len() + second.len()];
        let (start, end) = joined.split_at_mut(first.len());
        start.copy_from_slice(first);
        end.copy_from_slice(second);
        joined
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self { words: vec![0; Self::LEN / 8].into_boxed_slice() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_a_power_of_two_of_pages() {
        let page = page_size();
        for (bytes, expected) in [
            (0, None),
            (1, Some(page)),
            (page, Some(page)),
            (page + 1, Some(2 * page)),
            (5 * page, Some(8 * page)),
            (usize::MAX / 2 + 2, None),
        ] {
            assert_eq!(rounded_up(bytes), expected, "{bytes}");
        }
    }
}
