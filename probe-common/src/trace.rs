//! Records of the tracer: a probe was hit.

use crate::record::{Record, RecordKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Length of a task's name, its terminating zero included (`TASK_COMM_LEN` in
/// `include/linux/sched.h`).
pub const COMM_LEN: usize = 16;

/// How many arguments of a function are recorded: those that the x86-64 and arm64 calling
/// conventions both pass in registers.
pub const ARGS: usize = 6;

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

/// A kernel function was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KprobeHit {
    /// Who entered it.
    pub task: Task,
    /// The number that user space gave the probe when it attached it.
    pub probe: u32,
    /// How many of `args` were read.
    pub arg_count: u32,
    /// The argument registers, in the order of the calling convention.
    pub args: [u64; ARGS],
}

impl Record for KprobeHit {
    const KIND: RecordKind = RecordKind::builtin(1);
}

/// A tracepoint or raw tracepoint was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TracepointHit {
    /// The task that was running: for a tracepoint in an interrupt, the interrupted one.
    pub task: Task,
    /// The number that user space gave the probe when it attached it.
    pub probe: u32,
    /// Zero.
    pub reserved: u32,
}

impl Record for TracepointHit {
    const KIND: RecordKind = RecordKind::builtin(2);
}
