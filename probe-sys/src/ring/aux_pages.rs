//! The mapped AUX area of an event.

use super::cursor::Geometry;
use super::page::RingPages;
use crate::memory::Mapping;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

/// `offsetof(struct perf_event_mmap_page, aux_head)`, and those of the fields behind it.
const AUX_HEAD_AT: usize = 1056;
const AUX_TAIL_AT: usize = 1064;
const AUX_OFFSET_AT: usize = 1072;
const AUX_SIZE_AT: usize = 1080;

/// The AUX area of an event: bulk data that the kernel or the hardware writes, which records in the ring describe.
///
/// As in the ring, the kernel writes only outside of `aux_tail .. aux_head`. An area that the kernel overwrites has no
/// tail: disable its event while you read it.
#[derive(Debug)]
pub struct AuxPages {
    mapping: Mapping,
    geometry: Geometry,
}

impl RingPages {
    /// Maps the event's AUX area of `bytes`, a power of two of at least a page, behind the ring. The kernel overwrites an
    /// area that is not writable.
    pub fn map_aux(
        &self,
        event: BorrowedFd<'_>,
        bytes: usize,
        is_writable: bool,
    ) -> io::Result<AuxPages> {
        let geometry =
            Geometry::new(bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let offset = self.data_at + self.geometry.size();
        // ORDERING: the kernel reads both fields in the mmap(2) that follows.
        self.control(AUX_OFFSET_AT).store(offset as u64, Ordering::Relaxed);
        // ORDERING: as above.
        self.control(AUX_SIZE_AT).store(bytes as u64, Ordering::Relaxed);
        Ok(AuxPages { mapping: Mapping::part(event, offset, bytes, is_writable)?, geometry })
    }

    /// The position up to which the AUX area is written.
    pub fn aux_head(&self) -> u64 {
        // ORDERING: pairs with the kernel's store in perf_aux_output_end(), before which it, or the hardware,
        // has written the data.
        self.control(AUX_HEAD_AT).load(Ordering::Acquire)
    }

    /// Returns everything in the AUX area before `tail` to the kernel.
    pub fn publish_aux_tail(&mut self, tail: u64) {
        // ORDERING: pairs with the control dependency in perf_aux_output_begin(): our reads come before the
        // kernel writes there again.
        self.control(AUX_TAIL_AT).store(tail, Ordering::Release);
    }
}

impl AuxPages {
    /// Whether this process has the area and its ring. Forked children do not.
    pub fn are_here(&self) -> bool {
        self.mapping.is_here()
    }

    /// The size of the area.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// `len` bytes from position `at`, at most the size of the area, in two pieces if they wrap. They must lie between
    /// the tail and the head, or the event must be disabled.
    pub fn bytes(&self, at: u64, len: usize) -> (&[u8], &[u8]) {
        let (first, second) = self.geometry.span(at, len);
        (self.data(first), self.data(second))
    }

    fn data(&self, range: std::ops::Range<usize>) -> &[u8] {
        debug_assert!(range.end <= self.geometry.size());
        // SAFETY: Geometry::span() gives offsets within the area, all of which is mapped.
        let start = unsafe { self.mapping.address().add(range.start) };
        // SAFETY: as above, and for as long as `self` lives. The caller asks only for bytes that nobody writes.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), range.len()) }
    }
}
