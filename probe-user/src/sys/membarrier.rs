//! `membarrier(2)`.

use super::call;
use std::io;

/// Waits until every program has ended that runs now, on whatever CPU: for an RCU grace period, which is
/// what `MEMBARRIER_CMD_GLOBAL` is. Takes some milliseconds.
///
/// # Errors
///
/// `ENOSYS` without `CONFIG_MEMBARRIER`, `EINVAL` with `nohz_full`.
pub(crate) fn wait_for_programs() -> io::Result<()> {
    // SAFETY: no pointers.
    call("membarrier", || unsafe {
        libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0)
    })
    .map(drop)
}
