//! What a counting event is told, and what it is asked.

use super::{PERF_EVENT_IOC_DISABLE, PERF_EVENT_IOC_ENABLE, PerfEvent};
use crate::sys::call;
use std::io;
use std::os::fd::AsRawFd;

const PERF_EVENT_IOC_REFRESH: libc::c_ulong = 0x2402;
const PERF_EVENT_IOC_RESET: libc::c_ulong = 0x2403;
const PERF_IOC_FLAG_GROUP: libc::c_int = 1;

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
}
