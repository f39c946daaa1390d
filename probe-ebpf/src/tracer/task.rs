//! The task that hit a probe.

use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid};
use probe_common::trace::{COMM_LEN, Task};

#[inline(always)]
pub(crate) fn current() -> Task {
    let ids = bpf_get_current_pid_tgid();
    Task {
        pid: (ids >> 32) as u32,
        tid: ids as u32,
        comm: bpf_get_current_comm().unwrap_or([0; COMM_LEN]),
    }
}
