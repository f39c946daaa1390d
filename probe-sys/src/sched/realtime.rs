//! `sched_setscheduler(2)`.

use crate::call;
use std::io;

/// The valid priorities (`MAX_RT_PRIO` in the kernel's `include/linux/sched/prio.h`, minus one).
pub const PRIORITIES: std::ops::RangeInclusive<u32> = 1..=99;

/// Gives the calling thread a real-time priority (`SCHED_FIFO`): threads with a lower priority or none wait for it. Its
/// children do not inherit the priority.
pub fn set(priority: u32) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: priority as i32 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // musl's sched_setscheduler() always fails.
    // SAFETY: the kernel reads the parameter; 0 is the calling thread.
    call("sched_setscheduler", || unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const param)
    })
    .map(drop)
}
