//! Which tasks are traced: the first and cheapest question of every program.
//!
//! User space sets these globals before it loads the programs, so that the verifier drops the
//! branches that are not taken.

use super::follow;
use aya_ebpf::{Global, helpers::bpf_get_current_pid_tgid};

/// Trace this process alone; 0 for all.
#[unsafe(no_mangle)]
static ONLY_PID: Global<u32> = Global::new(0);

/// Trace this process and its descendants alone; 0 for all.
#[unsafe(no_mangle)]
static ROOT_PID: Global<u32> = Global::new(0);

/// Do not trace this process: the tracer, which would otherwise trace its own output for ever.
#[unsafe(no_mangle)]
static TRACER_PID: Global<u32> = Global::new(0);

/// Whether the current task is traced.
#[inline(always)]
pub(crate) fn current_is_traced() -> bool {
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
