//! The tracer's record: a probe was hit.

use crate::record::{Record, RecordKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Length of a task's name, its terminating zero included (`TASK_COMM_LEN` in
/// `include/linux/sched.h`).
pub const COMM_LEN: usize = 16;

/// Who hit a probe: 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Task {
    /// The process (`task_struct::tgid`), in the initial PID namespace.
    pub pid: u32,
    /// The thread (`task_struct::pid`), in the initial PID namespace.
    pub tid: u32,
    /// The thread's name, zero-terminated.
    pub comm: [u8; COMM_LEN],
}

impl Task {
    /// The thread's name: the bytes before the first zero.
    pub fn comm(&self) -> &[u8] {
        let end = self.comm.iter().position(|&b| b == 0).unwrap_or(COMM_LEN);
        &self.comm[..end]
    }
}

/// A probe was hit, whose fields a [`FetchTable`](crate::fetch::FetchTable) names.
///
/// The tail has a word for each field, in the table's order, then, of a call with counters, what these were where
/// the call was entered ([`Counted`](crate::counter::Counted), as far as there are counters), then strings and
/// arrays. An integer's word is its value; that of a string or an array tells where in the tail it begins (low
/// half) and its length in bytes (high half), without a terminating zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProbeHit {
    /// The task that was running: for a hook in an interrupt, the interrupted one.
    pub task: Task,
    /// The number that user space gave the probe when it attached it.
    pub probe: u32,
    /// Bit `n`: the `n`th field could not be read. Its word is 0.
    pub faults: u32,
}

impl Record for ProbeHit {
    const KIND: RecordKind = RecordKind::builtin(1);
}
