//! The task that hit a probe.

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, generated::bpf_get_current_comm};
use probe_common::trace::{COMM_LEN, Task};

/// Fills in the current task, in place: bytes that went by the stack would be copied one by one.
#[inline(always)]
pub(crate) fn fill_in(task: &mut Task) {
    let ids = bpf_get_current_pid_tgid();
    task.pid = (ids >> 32) as u32;
    task.tid = ids as u32;
    // Whatever happens, the helper fills it.
    // SAFETY: there are as many bytes.
    let _ = unsafe { bpf_get_current_comm(task.comm.as_mut_ptr().cast(), COMM_LEN as u32) };
}
