//! `sched_setscheduler(2)`.

use super::call;
use std::io;

/// The priorities that there are (`MAX_RT_PRIO` in the kernel's `include/linux/sched/prio.h`, less one).
pub(crate) const PRIORITIES: std::ops::RangeInclusive<u32> = 1..=99;

/// Gives this thread a real-time priority: who has none, or a lower one, waits for it (`SCHED_FIFO`). What it starts has
/// none.
pub(crate) fn set(priority: u32) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: priority as i32 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // Not every libc has a function for it that does it.
    // SAFETY: the kernel reads the parameter; 0 is this thread.
    call("sched_setscheduler", || unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const param)
    })
    .map(drop)
}
