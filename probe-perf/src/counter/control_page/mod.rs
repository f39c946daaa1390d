//! The control page of an event: what user space can read without a system call.
//!
//! The rules are those of `struct perf_event_mmap_page` in `include/uapi/linux/perf_event.h`. What the page allows
//! varies: a software event has no hardware counter, and a machine whose clock is not the CPU's own, such as a guest with
//! `kvm-clock`, has no time there. The functions then return `None`, and the caller can make a system call.

mod snapshot;

pub use snapshot::{PageCapabilities, Snapshot};

use super::Reading;
use probe_sys::hardware;
use probe_sys::perf_event::UserPage;
use snapshot::locked;
use std::io;
use std::os::fd::BorrowedFd;
use std::thread::{self, ThreadId};

/// The mapped control page of an event. In a process that was forked from the one that opened the event, all functions
/// return `None`.
#[derive(Debug)]
pub struct ControlPage {
    page: UserPage,
    /// The thread that the event counts, if it can read the hardware counter. On the CPU of another thread, the counter
    /// may belong to another event.
    counted: Option<ThreadId>,
}

impl ControlPage {
    /// Maps the page of an event. `own` says that the event counts the calling thread, on any CPU.
    ///
    /// # Errors
    ///
    /// Those of mmap(2): EINVAL for an inherited event, which has no page.
    pub(super) fn map(event: BorrowedFd<'_>, own: bool) -> io::Result<Self> {
        let counted = own.then(|| thread::current().id());
        Ok(Self { page: UserPage::map(event)?, counted })
    }

    /// All fields at one moment. `None` if the kernel kept writing the page, which is not expected.
    pub fn snapshot(&self) -> Option<Snapshot> {
        locked(self.page.words()?, |_| ()).map(|(snapshot, ())| snapshot)
    }

    /// The time of perf's clock, in nanoseconds. It is the default clock of records, no system call reads it, and it is
    /// not `CLOCK_MONOTONIC`. `None` if the page does not have it (`cap_user_time_zero`), for instance because the event
    /// uses another clock.
    pub fn time(&self) -> Option<u64> {
        let (page, ticks) = locked(self.page.words()?, |_| hardware::ticks())?;
        page.capabilities.contains(PageCapabilities::TIME_ZERO).then_some(page.time(ticks?))
    }

    /// Nanoseconds since the kernel last wrote the page, which it does when the event is enabled or disabled and when the
    /// counted thread is scheduled in or out. `None` if the page does not have it (`cap_user_time`).
    pub fn since_written(&self) -> Option<u64> {
        let (page, ticks) = locked(self.page.words()?, |_| hardware::ticks())?;
        page.capabilities.contains(PageCapabilities::TIME).then_some(page.since_written(ticks?))
    }

    /// Reads the counter in the thread that it counts. `None` if the page does not allow it, or in another thread.
    pub(super) fn read(&self) -> Option<Reading> {
        if self.counted? != thread::current().id() {
            return None;
        }
        let (page, (pmc, ticks)) = locked(self.page.words()?, |page| {
            if page.capabilities.contains(PageCapabilities::COUNTER) && page.index != 0 {
                (hardware::counter(page.index - 1), hardware::ticks())
            } else {
                (None, None)
            }
        })?;
        page.reading(pmc?, ticks?)
    }
}

#[cfg(test)]
mod tests;
