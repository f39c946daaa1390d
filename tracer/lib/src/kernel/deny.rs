//! Functions that patterns skip even if they match.
//!
//! The tracer's own programs run these functions, or the code that dispatches to the programs does. The kernel does
//! not run a program inside another on the same CPU, but counts the hit as missed. Probing these functions would
//! therefore cost much, say nothing about the targets, and distort the count of missed hits. The kernel has its own
//! list of functions that are unsafe to probe (the kprobe blacklist); some of these have been on that list, or off
//! it, by mistake.
//!
//! A function named in full is probed anyway.

/// Prefixes of their names.
const PREFIXES: &[&str] = &[
    // The programs themselves, their helpers and maps.
    "bpf_",
    "__bpf_",
    "___bpf_",
    "array_map_",
    "htab_",
    "__htab_",
    "percpu_array_map_",
    "stack_map_",
    "trace_call_bpf",
    // Reads of memory that may fault.
    "copy_from_kernel_nofault",
    "copy_from_user_nofault",
    "strncpy_from_kernel_nofault",
    "strncpy_from_user_nofault",
    // The path to the programs: kprobes, function tracing and its rings.
    "arch_ftrace_",
    "fprobe_",
    "ftrace_",
    "__ftrace_",
    "kprobe_",
    "__kprobe_",
    "kretprobe_",
    "rethook_",
    "ring_buffer_",
    "trace_event_",
    // The output of records and the wakeups.
    "perf_",
    "__perf_",
    "___perf_",
    "irq_work_",
    "__irq_work_",
    // Locks and references taken and released on every hit.
    "rcu_",
    "__rcu_",
    "srcu_",
    "__srcu_",
    "migrate_disable",
    "migrate_enable",
    "preempt_count_",
    "ktime_get",
];

/// Whether patterns skip a function.
pub(crate) fn is_denied(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::is_denied;

    #[test]
    fn functions_that_emit_records_are_denied() {
        for name in ["bpf_perf_event_output_tp", "perf_event_output", "__rcu_read_lock"] {
            assert!(is_denied(name), "{name}");
        }
        for name in ["vfs_read", "tcp_sendmsg", "performance", "do_bpf_", "kprobes", "call_rcu"] {
            assert!(!is_denied(name), "{name}");
        }
    }
}
