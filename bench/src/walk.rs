//! The least that a consumer can do: walk over the bytes of a ring and look at each record, without
//! checks, dispatch or handlers. The baseline for a drain.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "each block is one step of the walk")]

use anyhow::{Context, Result};
use probe_user::common::RecordHeader;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

/// A second mapping of a ring that another reader consumes.
pub(crate) struct Ring {
    mapping: NonNull<c_void>,
    page: usize,
    bytes: usize,
}

impl Ring {
    pub(crate) fn map(event: BorrowedFd<'_>, bytes: usize) -> Result<Self> {
        let page = rustix::param::page_size();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (len, fd) = (page + bytes, event.as_raw_fd());
        // SAFETY: the kernel chooses the address.
        let mapping = unsafe { libc::mmap(null_mut(), len, protection, libc::MAP_SHARED, fd, 0) };
        let mapping = (mapping != libc::MAP_FAILED).then_some(mapping).and_then(NonNull::new);
        let mapping = mapping.ok_or_else(std::io::Error::last_os_error);
        Ok(Self { mapping: mapping.context("cannot map a ring a second time")?, page, bytes })
    }

    fn position(&self, at: usize) -> u64 {
        // SAFETY: the mapped control page holds the positions.
        let position = unsafe { AtomicU64::from_ptr(self.mapping.as_ptr().byte_add(at).cast()) };
        position.load(Ordering::Acquire)
    }

    /// Walks over all records that the reader has not yet released, without moving the tail.
    /// Returns the number of records and the sum of their last words. Stops at a record that wraps.
    pub(crate) fn walk(&self) -> (u64, u64) {
        let (head, mut tail) = (self.position(1024), self.position(1032));
        let mask = self.bytes as u64 - 1;
        // SAFETY: the data area follows the control page.
        let data = unsafe { self.mapping.as_ptr().cast::<u8>().add(self.page) };
        let (mut records, mut sum) = (0, 0u64);
        while tail != head {
            let at = (tail & mask) as usize;
            // SAFETY: the kernel has written a perf record there: its header, the u32 raw size and
            // a block's prefix.
            let (size, used) = unsafe {
                let record = data.add(at);
                (record.add(6).cast::<u16>().read(), record.add(12).cast::<u16>().read())
            };
            if at + usize::from(size) > self.bytes {
                break;
            }
            // SAFETY: the block's records follow its prefix.
            let mut next = unsafe { data.add(at + 16) };
            // SAFETY: the prefix gives the number of words.
            let end = unsafe { next.add(usize::from(used) * 8) };
            while next < end {
                // SAFETY: each record is a header, a payload and padding.
                unsafe {
                    let header = &*next.cast::<RecordHeader>();
                    let span = 16 + (header.len as usize).next_multiple_of(8);
                    sum = sum.wrapping_add(next.add(span - 8).cast::<u64>().read());
                    next = next.add(span);
                }
                records += 1;
            }
            tail += u64::from(size);
        }
        (records, sum)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this type owns the mapping, and this is its last use.
        unsafe { libc::munmap(self.mapping.as_ptr(), self.page + self.bytes) };
    }
}
