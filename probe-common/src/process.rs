//! Records of the life of processes.

use crate::record::{Record, RecordKind};
use crate::trace::Task;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Longest file name that [`ProcessExec`] carries in its tail, terminating zero included.
pub const EXEC_FILENAME_LEN: usize = 512;

/// A process executed another program (`sched:sched_process_exec`).
///
/// The tail is the file name as it was given to `execve`, without its terminating zero, cut to
/// [`EXEC_FILENAME_LEN`]` - 1` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProcessExec {
    /// The process, already under its new name.
    pub task: Task,
    /// The number that user space gave the probe when it attached it.
    pub probe: u32,
    /// The thread that called `execve`: not the leader's id if another thread of the process did.
    pub old_tid: u32,
}

impl Record for ProcessExec {
    const KIND: RecordKind = RecordKind::builtin(3);
}
