//! The control page of an event: what user space may read of it without a system call.
//!
//! The rules are those of `struct perf_event_mmap_page` in `include/uapi/linux/perf_event.h`. What the page
//! allows differs: a software event has no hardware counter, and machines whose clock is not the CPU's own
//! (guests with `kvm-clock`, say) have no time there. Then nothing is given, and it is for the caller to ask
//! the kernel.

mod arithmetic;
mod snapshot;

pub use snapshot::{Capabilities, Snapshot};

use crate::sys::hardware;
use crate::sys::user_page::UserPage;
use arithmetic::extended;
use snapshot::locked;
use std::io;
use std::os::fd::BorrowedFd;
use std::thread::{self, ThreadId};

/// A counter's value, and for how long it counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UserRead {
    pub(super) value: u64,
    pub(super) enabled: u64,
    pub(super) running: u64,
}

/// The mapped control page of an event, for the process that mapped it: in a child that is forked, it gives nothing.
#[derive(Debug)]
pub struct ControlPage {
    page: UserPage,
    /// The thread that the event counts, if it is one that can read its hardware counter: whatever the CPU
    /// of another has in it is something else.
    counted: Option<ThreadId>,
}

impl ControlPage {
    /// Maps the page of an event; `own` says that it counts the calling thread, on whatever CPU.
    ///
    /// # Errors
    ///
    /// Those of mmap(2): EINVAL for an event that is inherited, which has none.
    pub(super) fn map(event: BorrowedFd<'_>, own: bool) -> io::Result<Self> {
        let counted = own.then(|| thread::current().id());
        Ok(Self { page: UserPage::map(event)?, counted })
    }

    /// All fields, as they were at one moment. `None` if the kernel kept writing it, which it has no reason
    /// to.
    pub fn snapshot(&self) -> Option<Snapshot> {
        locked(self.page.words()?, |_| ()).map(|(snapshot, ())| snapshot)
    }

    /// Nanoseconds of perf's clock: the one that records have their time of if no other was asked for, which
    /// no system call reads, and which is not `CLOCK_MONOTONIC`. `None` where the page does not give it
    /// (`cap_user_time_zero`): if the event has another clock, too.
    pub fn time(&self) -> Option<u64> {
        let (page, ticks) = locked(self.page.words()?, |_| hardware::ticks())?;
        page.capabilities.time_zero().then_some(page.time(ticks?))
    }

    /// Nanoseconds since the kernel wrote the page last, which it does when the event is enabled, disabled,
    /// and whenever a thread that it counts gets or leaves a CPU. `None` where the page does not give it
    /// (`cap_user_time`).
    pub fn since_written(&self) -> Option<u64> {
        let (page, ticks) = locked(self.page.words()?, |_| hardware::ticks())?;
        page.capabilities.time().then_some(page.since_written(ticks?))
    }

    /// The counter as its own thread sees it. `None` where the page does not allow it, and where it is
    /// another thread that asks.
    pub(super) fn read(&self) -> Option<UserRead> {
        if self.counted? != thread::current().id() {
            return None;
        }
        let (page, (pmc, ticks)) = locked(self.page.words()?, |page| {
            if page.capabilities.counter() && page.index != 0 {
                (hardware::counter(page.index - 1), hardware::ticks())
            } else {
                (None, None)
            }
        })?;
        combined(&page, pmc?, ticks?)
    }
}

/// What the page, the hardware's counter and its clock come to.
fn combined(page: &Snapshot, pmc: u64, ticks: u64) -> Option<UserRead> {
    if !page.capabilities.time() {
        return None;
    }
    let pmc = extended(pmc, page.pmc_width)?;
    let since = page.since_written(ticks);
    Some(UserRead {
        value: page.offset.wrapping_add(pmc) as u64,
        enabled: page.time_enabled.wrapping_add(since),
        running: page.time_running.wrapping_add(since),
    })
}

#[cfg(test)]
mod tests;
