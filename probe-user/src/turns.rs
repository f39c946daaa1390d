//! How soon a thread that consumes is let run.

use crate::sys::slice;
use std::io;

/// Asks the kernel to run this thread in turns of 100 µs, the shortest that there are; it takes no privilege.
///
/// A thread that wakes is mostly let run before one that asks for longer turns, as long as it has not had more than its share
/// of the CPU (`sched_setattr(2)`; from 6.12 on, and earlier kernels take no note of it). So a consumer that has to compete
/// for its CPU loses less: call this before [`EvPipe::run`](crate::EvPipe::run), for as long as the thread
/// lives; threads and processes that it starts ask for the same. [`PerCpuPipe`](crate::PerCpuPipe) does so for its
/// threads. A thread that has another policy than `SCHED_OTHER` keeps what it has.
///
/// # Errors
///
/// If the kernel does not allow it, as in a sandbox.
pub fn ask_for_short_turns() -> io::Result<()> {
    slice::set(slice::SHORTEST)
}
