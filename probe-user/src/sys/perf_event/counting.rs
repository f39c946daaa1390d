//! What a counting event is told, and what it is asked.

use super::{PERF_EVENT_IOC_DISABLE, PERF_EVENT_IOC_ENABLE, PerfEvent};
use crate::sys::call;
use std::io;
use std::os::fd::AsRawFd;

const PERF_EVENT_IOC_REFRESH: libc::c_ulong = 0x2402;
const PERF_EVENT_IOC_RESET: libc::c_ulong = 0x2403;
const PERF_IOC_FLAG_GROUP: libc::c_int = 1;

/// What events of a group are read with: `PERF_FORMAT_*`.
pub(crate) mod format {
    pub(crate) const TOTAL_TIME_ENABLED: u64 = 1 << 0;
    pub(crate) const TOTAL_TIME_RUNNING: u64 = 1 << 1;
    pub(crate) const ID: u64 = 1 << 2;
    pub(crate) const GROUP: u64 = 1 << 3;
    /// Since 6.0.
    pub(crate) const LOST: u64 = 1 << 4;
}

impl PerfEvent {
    /// `PERF_EVENT_IOC_RESET`: the count begins at 0 again; the times go on.
    pub(crate) fn reset(&self) -> io::Result<()> {
        self.tell(PERF_EVENT_IOC_RESET, 0)
    }

    /// `PERF_EVENT_IOC_REFRESH`: enabled for so many overflows more.
    pub(crate) fn refresh(&self, overflows: i32) -> io::Result<()> {
        self.tell(PERF_EVENT_IOC_REFRESH, overflows)
    }

    /// `PERF_EVENT_IOC_ENABLE`, of the whole group of a leader.
    pub(crate) fn enable_group(&self) -> io::Result<()> {
        self.tell(PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP)
    }

    /// `PERF_EVENT_IOC_DISABLE`, of the whole group of a leader.
    pub(crate) fn disable_group(&self) -> io::Result<()> {
        self.tell(PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP)
    }

    /// `PERF_EVENT_IOC_RESET`, of the whole group of a leader.
    pub(crate) fn reset_group(&self) -> io::Result<()> {
        self.tell(PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP)
    }

    fn tell(&self, request: libc::c_ulong, argument: libc::c_int) -> io::Result<()> {
        // SAFETY: no pointers.
        call("ioctl", || unsafe { libc::ioctl(self.fd.as_raw_fd(), request, argument) }).map(drop)
    }

    /// `read(2)`, as the event's `read_format` has it: how many words it is, of as many as there is room
    /// for. None for a pinned event that found no counter.
    pub(crate) fn read_words(&self, words: &mut [u64]) -> io::Result<usize> {
        let len = size_of_val(words);
        let read = call("read", || {
            // SAFETY: the buffer is writable for the length given.
            unsafe { libc::read(self.fd.as_raw_fd(), words.as_mut_ptr().cast(), len) }
        })?;
        Ok(read as usize / size_of::<u64>())
    }
}
