//! Follows the descendants of the root process.
//!
//! A descendant is identified by the address of its `task_struct`, which belongs to it from before it first
//! runs until the kernel frees it, across `execve` and up to its very last instruction.

use super::filter;
use aya_ebpf::{
    helpers::bpf_get_current_task,
    macros::{map, raw_tracepoint},
    maps::{Array, HashMap},
    programs::RawTracePointContext,
};
use aya_log_ebpf::debug;
use probe_ebpf::atomic;

/// The descendants. Sized by the tracer.
#[map]
static FOLLOWED: HashMap<u64, u8> = HashMap::with_max_entries(1, 0);

/// How many descendants found no room in `FOLLOWED`, in the only entry.
#[map]
static NOT_FOLLOWED: Array<u64> = Array::with_max_entries(1, 0);

#[inline(always)]
pub(crate) fn current_is_followed() -> bool {
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    FOLLOWED.get_ptr(task).is_some()
}

/// `task_newtask(task, clone_flags)`, in the task that creates it, before it runs. Unlike `sched_process_fork`, it also has
/// the threads that the kernel creates for a process, such as those of io_uring.
#[raw_tracepoint(tracepoint = "task_newtask")]
pub(crate) fn follow_new(ctx: RawTracePointContext) -> u32 {
    let child: u64 = ctx.arg(0);
    if !filter::current_is_in_scope() {
        // An earlier task at this address is still there if the kernel refused to remove it, as some do from 5.11 on in an
        // interrupt.
        if FOLLOWED.get_ptr(child).is_some() {
            let _ = FOLLOWED.remove(child);
        }
        return 0;
    }
    if FOLLOWED.insert(child, 0, 0).is_err()
        && let Some(missed) = NOT_FOLLOWED.get_ptr_mut(0)
    {
        // SAFETY: the map value is 8-aligned, and nothing else writes it.
        unsafe { atomic::add(missed, 1) };
    }
    debug!(&ctx, "following a new task at {:x}", child);
    0
}

/// `sched_process_free(task)`, when nothing of the task is left.
#[raw_tracepoint(tracepoint = "sched_process_free")]
pub(crate) fn follow_free(ctx: RawTracePointContext) -> u32 {
    let task: u64 = ctx.arg(0);
    if FOLLOWED.remove(task).is_ok() {
        debug!(&ctx, "the task at {:x} is gone", task);
    }
    0
}
