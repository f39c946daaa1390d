//! libbpf's `ring_buffer`, over one ring or several.

use super::{Entry, SinkContext, check, made, millis, take_sample};
use crate::reader::Reader;
use crate::sink::Sink;
use anyhow::{Context, Result};
use libbpf_sys as sys;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null};
use std::time::Duration;

/// libbpf maps the rings, which keeps them alive.
pub(super) struct RingBuffer {
    rings: NonNull<sys::ring_buffer>,
    context: Box<SinkContext>,
    /// Poll interval, if records send no wakeup.
    sweep: Option<Duration>,
}

// SAFETY: as for PerfBuffer.
unsafe impl Send for RingBuffer {}

unsafe extern "C" fn ring_sample(context: *mut c_void, data: *mut c_void, size: u64) -> c_int {
    // SAFETY: libbpf calls this as take_sample() requires.
    unsafe { take_sample(context, data, size as usize) };
    0
}

impl RingBuffer {
    /// Opens a reader over BPF ring buffer maps.
    pub(super) fn open(
        maps: &[BorrowedFd<'_>],
        sweep: Option<Duration>,
        entry: Entry,
    ) -> Result<Self> {
        let mut context = SinkContext::new(entry);
        let address: *mut SinkContext = &raw mut *context;
        let sample = Some(ring_sample as _);
        let (first, more) = maps.split_first().context("no ring buffer given")?;
        // SAFETY: the context lives as long as the rings.
        let rings =
            unsafe { sys::ring_buffer__new(first.as_raw_fd(), sample, address.cast(), null()) };
        let this = Self { rings: made("ring_buffer__new", rings)?, context, sweep };
        for map in more {
            // SAFETY: as above.
            check("ring_buffer__add", unsafe {
                sys::ring_buffer__add(this.rings.as_ptr(), map.as_raw_fd(), sample, address.cast())
            })?;
        }
        Ok(this)
    }
}

impl Reader for RingBuffer {
    fn step(&mut self, timeout: Duration, sink: &mut Sink) -> Result<()> {
        if let Some(sweep) = self.sweep {
            std::thread::sleep(sweep);
            return self.drain(sink);
        }
        self.context.sink = sink;
        let timeout = millis(timeout);
        // SAFETY: the rings are open, and the sink is borrowed during the call.
        check("ring_buffer__poll", unsafe { sys::ring_buffer__poll(self.rings.as_ptr(), timeout) })
    }

    fn drain(&mut self, sink: &mut Sink) -> Result<()> {
        self.context.sink = sink;
        // SAFETY: as above.
        check("ring_buffer__consume", unsafe { sys::ring_buffer__consume(self.rings.as_ptr()) })
    }
}

impl Drop for RingBuffer {
    fn drop(&mut self) {
        // SAFETY: the rings are open, and this is their last use.
        unsafe { sys::ring_buffer__free(self.rings.as_ptr()) };
    }
}
