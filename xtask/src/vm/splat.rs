//! Reports in the kernel's log: warnings, crashes and the findings of its checkers.

/// Text in the first lines of reports by the kernel, its sanitizers, lockdep and the watchdogs. Most reports contain
/// one of the first two.
const SIGNS: [&str; 14] = [
    "WARNING:",
    "BUG:",
    "kernel BUG at",
    "Oops:",
    "INFO: task ",
    "INFO: trying to register non-static key",
    "INFO: rcu",
    "UBSAN:",
    "general protection fault",
    "Unable to handle kernel",
    "double fault",
    "Kernel panic",
    "unreferenced object",
    "DEBUG_LOCKS_WARN_ON",
];

/// Warnings that are faults of the kernel, which no program can prevent.
///
/// `affine_move_task` warns, on 7.3 and rarely, when a thread that is bound to a CPU ends a system call that must not
/// migrate, such as a test run of an eBPF program, while that CPU goes offline.
const FAULTS_OF_KERNELS: [&str; 1] = ["affine_move_task"];

/// The lines of a kernel log that begin a report.
pub(crate) fn find(log: &str) -> Vec<&str> {
    log.lines().filter(|line| is_sign(line)).collect()
}

/// Up to `lines` lines of the log from its first report on, or its last lines without a report.
pub(crate) fn excerpt(log: &str, lines: usize) -> &str {
    let Some(first) = log.lines().find(|line| is_sign(line)) else {
        return crate::process::tail(log, lines);
    };
    let start = first.as_ptr() as usize - log.as_ptr() as usize;
    let rest = &log[start..];
    let end = rest.match_indices('\n').nth(lines.saturating_sub(1)).map_or(rest.len(), |at| at.0);
    rest[..end].trim_end()
}

fn is_sign(line: &str) -> bool {
    // The log includes the kernel's command line, which may contain any text.
    !line.contains("ommand line:")
        && SIGNS.iter().any(|sign| line.contains(sign))
        && !FAULTS_OF_KERNELS.iter().any(|fault| line.contains(fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "[    0.1] Linux version 6.12\n\
        [    9.1] ------------[ cut here ]------------\n\
        [    9.2] WARNING: CPU: 1 PID: 7 at kernel/x.c:1 f+0x1/0x2\n\
        [    9.3] Modules linked in:\n\
        [    9.4] rcu: INFO: rcu_preempt self-detected stall on CPU\n";

    #[test]
    fn reports_are_found() {
        assert_eq!(find(LOG).len(), 2);
        assert!(find("[ 0.1] Spectre V2 : Mitigation\n[ 0.2] debug: on\n").is_empty());
        assert!(find("[ 0.0] Kernel command line: x=BUG:\n").is_empty());
        let known = "[ 596.6] WARNING: kernel/sched/core.c:3057 at affine_move_task+0x2f0/0x550";
        assert!(find(known).is_empty());
    }

    #[test]
    fn every_kind_of_report_is_known() {
        for line in [
            "WARNING: CPU: 0 PID: 1 at kernel/events/core.c:1 perf_mmap_close+0x1/0x2",
            "BUG: KASAN: slab-use-after-free in perf_output_begin+0x1/0x2",
            "BUG: KCSAN: data-race in perf_output_begin / perf_output_end",
            "BUG: KFENCE: use-after-free read in perf_output_begin+0x1/0x2",
            "BUG: KMSAN: uninit-value in perf_output_begin+0x1/0x2",
            "BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "BUG: unable to handle page fault for address: ffffffffc0000000",
            "BUG: scheduling while atomic: probe/123/0x00000002",
            "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:580",
            "BUG: spinlock bad magic on CPU#0, probe/1",
            "BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 40s!",
            "watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [probe:99]",
            "kernel BUG at mm/slub.c:305!",
            "Oops: 0000 [#1] PREEMPT SMP",
            "INFO: task probe:99 blocked for more than 120 seconds.",
            "INFO: task probe:99 blocked in I/O wait for more than 120 seconds.",
            "INFO: trying to register non-static key.",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "rcu: INFO: rcu_sched self-detected stall on CPU",
            "WARNING: possible circular locking dependency detected",
            "WARNING: possible recursive locking detected",
            "WARNING: possible irq lock inversion dependency detected",
            "WARNING: inconsistent lock state",
            "WARNING: lock held when returning to user space!",
            "[ BUG: Invalid wait context ]",
            "WARNING: bad unlock balance detected!",
            "WARNING: suspicious RCU usage",
            "DEBUG_LOCKS_WARN_ON(1)",
            "UBSAN: array-index-out-of-bounds in kernel/bpf/core.c:1:2",
            "general protection fault, probably for non-canonical address 0xdead000000000100",
            "Kernel panic - not syncing: Fatal exception",
            "unreferenced object 0xffff888100000000 (size 64):",
            "INFO: rcu_tasks detected stalls on tasks:",
        ] {
            assert_eq!(find(&format!("[    1.0] {line}\n")).len(), 1, "{line}");
        }
    }

    #[test]
    fn excerpt_begins_with_the_first_report() {
        assert!(excerpt(LOG, 2).starts_with("[    9.2] WARNING:"));
        assert_eq!(excerpt(LOG, 2).lines().count(), 2);
        assert_eq!(excerpt("a\nb\nc\n", 2), "b\nc");
    }
}
