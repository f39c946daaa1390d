//! The tracer's record: a hit of a probe.

use probe_common::{Record, RecordKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The size of a task's name in bytes, including its terminating zero (`TASK_COMM_LEN` in
/// `include/linux/sched.h`).
pub const COMM_LEN: usize = 16;

/// The task that hit a probe: 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Task {
    /// The process id (`task_struct::tgid`), in the PID namespace of the tracer. If that is not the initial one, 0 for
    /// tasks of other namespaces.
    pub pid: u32,
    /// The thread id (`task_struct::pid`), likewise.
    pub tid: u32,
    /// The thread's name, terminated by a zero.
    pub comm: [u8; COMM_LEN],
}

impl Task {
    /// The thread's name: the bytes before the first zero.
    pub fn comm(&self) -> &[u8] {
        let end = self.comm.iter().position(|&b| b == 0).unwrap_or(COMM_LEN);
        &self.comm[..end]
    }
}

/// A hit of a probe. A [`FetchTable`](crate::fetch::FetchTable) describes its fields.
///
/// The tail has a word for each field, in the table's order. For calls with counters, the counters' values at entry
/// follow ([`Counted`](crate::counter::Counted), with as many counters as the trace uses), then strings and arrays. The
/// word of an integer is its value. The word of a string or an array has its offset in the tail (low half) and its
/// length in bytes (high half), without a terminating zero. Its highest bit marks incomplete values
/// ([`TRUNCATED`](crate::fetch::TRUNCATED)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProbeHit {
    /// The task that was running. For a hook in an interrupt, that is the interrupted task.
    pub task: Task,
    /// The number that user space assigned to the probe when it attached it.
    pub probe: u32,
    /// Bit `n` is set if the `n`th field could not be read. Its word is 0, or [`NULL`](crate::fetch::NULL) for a string or an
    /// array behind a null pointer.
    pub faults: u32,
}

impl Record for ProbeHit {
    const KIND: RecordKind = RecordKind::builtin(1);
}
