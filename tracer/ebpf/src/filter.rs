//! Which tasks are traced. Every program checks that first, since it is the cheapest check.
//!
//! User space sets these globals before it loads the programs, so that the verifier removes the
//! branches that are not taken. The gate is an exception: it opens and closes while programs run.

use super::{follow, task};
use aya_ebpf::{Global, macros::map, maps::CgroupArray};

/// The PID namespace of the process that the next two globals name: its inode, or 0 for the initial one.
#[unsafe(no_mangle)]
static TARGET_NAMESPACE: Global<u64> = Global::new(0);

/// Trace only this process; 0 for all.
#[unsafe(no_mangle)]
static ONLY_PID: Global<u32> = Global::new(0);

/// Trace only this process and its descendants; 0 for all.
#[unsafe(no_mangle)]
static ROOT_PID: Global<u32> = Global::new(0);

/// Do not trace this process: the tracer itself, which would trace its own output for ever. Its PID namespace is that
/// of [`task::ids`].
#[unsafe(no_mangle)]
static TRACER_PID: Global<u32> = Global::new(0);

/// 1: do not trace [`READERS`].
#[unsafe(no_mangle)]
static LEAVE_OUT_READERS: Global<u8> = Global::new(0);

/// The two processes that read files for the tracer: one in each half. User space writes it when it starts one, so it is in a
/// map of its own, which is not read-only.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data.readers")]
static READERS: Global<u64> = Global::new(0);

/// 1: trace only the tasks of [`CGROUP`].
#[unsafe(no_mangle)]
static IN_CGROUP: Global<u8> = Global::new(0);

/// Whether hits count: all probes of a trace start together and end together, however long it takes to attach and
/// detach them. User space writes it while programs run, so it is in a map of its own, which is not read-only.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data.gate")]
static GATE: Global<u32> = Global::new(0);

/// A cgroup (version 2), in the only entry.
#[map]
static CGROUP: CgroupArray = CgroupArray::with_max_entries(1, 0);

/// Whether all probes are attached, and none is about to be detached.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    GATE.load() != 0
}

/// Whether hits of the current task are reported.
#[inline(always)]
pub(crate) fn current_is_traced() -> bool {
    is_open()
        && current_is_in_scope()
        && (IN_CGROUP.load() == 0 || matches!(CGROUP.current_task_under_cgroup(0), Ok(true)))
}

/// Whether the current task is a target, in whatever cgroup it is.
#[inline(always)]
pub(crate) fn current_is_in_scope() -> bool {
    let only = ONLY_PID.load();
    if only != 0 {
        return task::ids_in(TARGET_NAMESPACE.load()).pid == only;
    }
    let root = ROOT_PID.load();
    if root != 0 {
        return task::ids_in(TARGET_NAMESPACE.load()).pid == root || follow::current_is_followed();
    }
    let pid = task::ids().pid;
    pid != TRACER_PID.load() && !(LEAVE_OUT_READERS.load() != 0 && is_reader(pid))
}

/// Whether it is one of [`READERS`]. Tasks of other PID namespaces have the id 0.
#[inline(always)]
fn is_reader(pid: u32) -> bool {
    let readers = READERS.load();
    pid != 0 && (pid == readers as u32 || pid == (readers >> 32) as u32)
}
