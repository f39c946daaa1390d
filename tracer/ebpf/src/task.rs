//! The task that hit a probe.

use aya_ebpf::{
    Global,
    bindings::bpf_pidns_info,
    helpers::{
        bpf_get_current_pid_tgid,
        generated::{bpf_get_current_comm, bpf_get_ns_current_pid_tgid},
    },
};
use probe_tracer_common::trace::{COMM_LEN, Task};

/// The device of all namespaces. User space sets these globals before it loads the programs, so that the verifier removes
/// the branches that are not taken.
#[unsafe(no_mangle)]
static NAMESPACE_DEVICE: Global<u64> = Global::new(0);

/// The PID namespace of the tracer: its inode, or 0 for the initial one.
#[unsafe(no_mangle)]
static NAMESPACE: Global<u64> = Global::new(0);

/// The process id and the thread id of a task in a PID namespace.
#[derive(Clone, Copy)]
pub(crate) struct Ids {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
}

/// The ids of the current task in the tracer's PID namespace.
#[inline(always)]
pub(crate) fn ids() -> Ids {
    ids_in(NAMESPACE.load())
}

/// The ids of the current task in a PID namespace, or zeros if it is a task of another one.
#[inline(always)]
pub(crate) fn ids_in(namespace: u64) -> Ids {
    if namespace == 0 {
        let ids = bpf_get_current_pid_tgid();
        return Ids { pid: (ids >> 32) as u32, tid: ids as u32 };
    }
    let mut ids = bpf_pidns_info { pid: 0, tgid: 0 };
    let (device, size) = (NAMESPACE_DEVICE.load(), size_of::<bpf_pidns_info>() as u32);
    // The helper writes zeros where it fails: in a task of another namespace.
    // SAFETY: the structure has that many bytes.
    let _ = unsafe { bpf_get_ns_current_pid_tgid(device, namespace, &raw mut ids, size) };
    Ids { pid: ids.tgid, tid: ids.pid }
}

/// Fills in the current task, in place: bytes that pass through the stack would be copied one by one.
#[inline(always)]
pub(crate) fn fill_in(task: &mut Task) {
    let ids = ids();
    task.pid = ids.pid;
    task.tid = ids.tid;
    // The helper fills the buffer in any case.
    // SAFETY: the buffer has that many bytes.
    let _ = unsafe { bpf_get_current_comm(task.comm.as_mut_ptr().cast(), COMM_LEN as u32) };
}
