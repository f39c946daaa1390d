//! `membarrier(2)`.

use crate::attempt;
use rustix::thread::{MembarrierCommand, membarrier};
use std::io;

/// Waits until every eBPF program that runs now, on any CPU, has ended. `MEMBARRIER_CMD_GLOBAL` waits for an RCU grace
/// period, which takes some milliseconds.
///
/// # Errors
///
/// `ENOSYS` without `CONFIG_MEMBARRIER`, `EINVAL` with `nohz_full`.
pub fn wait_for_programs() -> io::Result<()> {
    attempt("membarrier", || membarrier(MembarrierCommand::Global))
}
