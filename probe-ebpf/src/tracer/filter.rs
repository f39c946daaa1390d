//! Which tasks are traced: the first and cheapest question of every program.
//!
//! User space sets these globals before it loads the programs, so that the verifier drops the
//! branches that are not taken.

use super::follow;
use aya_ebpf::{Global, helpers::bpf_get_current_pid_tgid, macros::map, maps::CgroupArray};

/// Trace this process alone; 0 for all.
#[unsafe(no_mangle)]
static ONLY_PID: Global<u32> = Global::new(0);

/// Trace this process and its descendants alone; 0 for all.
#[unsafe(no_mangle)]
static ROOT_PID: Global<u32> = Global::new(0);

/// Do not trace this process: the tracer, which would otherwise trace its own output for ever.
#[unsafe(no_mangle)]
static TRACER_PID: Global<u32> = Global::new(0);

/// 1: trace the tasks of [`CGROUP`] alone.
#[unsafe(no_mangle)]
static IN_CGROUP: Global<u8> = Global::new(0);

/// A cgroup (version 2), in one entry.
#[map]
static CGROUP: CgroupArray = CgroupArray::with_max_entries(1, 0);

/// Whether hits of the current task are told.
#[inline(always)]
pub(crate) fn current_is_traced() -> bool {
    current_is_in_scope()
        && (IN_CGROUP.load() == 0 || matches!(CGROUP.current_task_under_cgroup(0), Ok(true)))
}

/// Whether the current task is one of those that are traced, wherever it is.
#[inline(always)]
pub(crate) fn current_is_in_scope() -> bool {
    let pid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let only = ONLY_PID.load();
    if only != 0 {
        return pid == only;
    }
    let root = ROOT_PID.load();
    if root != 0 {
        return pid == root || follow::current_is_followed();
    }
    pid != TRACER_PID.load()
}
