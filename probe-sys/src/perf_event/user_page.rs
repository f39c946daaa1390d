//! The control page of a perf event, without its ring: `struct perf_event_mmap_page` in
//! `include/uapi/linux/perf_event.h`.

use crate::memory::{Mapping, page_size};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;

/// The number of 64-bit words that contain fields of the page.
pub const WORDS: usize = 136;

/// A mapped control page.
#[derive(Debug)]
pub struct UserPage {
    mapping: Mapping,
}

impl UserPage {
    /// Maps the page of an event. Inherited events have none.
    pub fn map(event: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::new(event, page_size())? })
    }

    /// The page, which the kernel may write at any time. `None` in a process that was forked from the one that mapped it.
    #[inline]
    pub fn words(&self) -> Option<&[AtomicU64; WORDS]> {
        if !self.mapping.is_here() {
            return None;
        }
        let page = self.mapping.address().cast();
        // SAFETY: a page is longer than that, aligned, mapped here for as long as `self` lives, and both sides access it
        // only atomically.
        Some(unsafe { page.as_ref() })
    }
}

const _: () = assert!(WORDS * 8 <= 4096);
