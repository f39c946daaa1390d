//! Functions that no pattern means, though it matches them.
//!
//! Programs of the tracer run them, or what leads there does. The kernel does not run a program inside of
//! another on the same CPU, but counts a hit as missed instead; so these would cost much, tell nothing that
//! is about the traced, and spoil the count of what was missed. The kernel has a list of its own of what
//! would crash it (the kprobe blacklist); some of these have been on that list, or off it, by mistake.
//!
//! A name that is given in full is another matter: then it is what was asked for.

/// What their names begin with.
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
    // How they read memory that may not be there.
    "copy_from_kernel_nofault",
    "copy_from_user_nofault",
    "strncpy_from_kernel_nofault",
    "strncpy_from_user_nofault",
    // How they are reached: kprobes, function tracing and its rings.
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
    // Where records go, and who is woken for them.
    "perf_",
    "__perf_",
    "___perf_",
    "irq_work_",
    "__irq_work_",
    // What all of that takes and gives back, with every hit.
    "rcu_",
    "__rcu_",
    "srcu_",
    "__srcu_",
    "migrate_disable",
    "migrate_enable",
    "preempt_count_",
    "ktime_get",
];

/// Whether a function is one of them.
pub(super) fn is_denied(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::is_denied;

    #[test]
    fn the_way_of_a_record_is_denied_and_nothing_like_it() {
        for name in ["bpf_perf_event_output_tp", "perf_event_output", "__rcu_read_lock"] {
            assert!(is_denied(name), "{name}");
        }
        for name in ["vfs_read", "tcp_sendmsg", "performance", "do_bpf_", "kprobes", "call_rcu"] {
            assert!(!is_denied(name), "{name}");
        }
    }
}
