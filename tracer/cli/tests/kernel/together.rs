//! All probes of a trace start together and end together, however long it takes to attach and detach them.

use crate::probe::busy::Busy;
use crate::probe::{all_json_lines, json_line, probe, stdout, succeed};

/// The first and the last probe, with many between them: the entry and the exit of a system call.
const PROBES: [&str; 3] = [
    "tracepoint:syscalls:sys_enter_openat",
    "tracepoint:syscalls:sys_enter_get*id",
    "tracepoint:syscalls:sys_exit_openat",
];

/// The most system calls that may be under way when probes start or end: a few for each task.
const UNDER_WAY: u64 = 20;

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn probes_count_and_report_the_same_hits() {
    let _opens = Busy::repeat(":</dev/null");
    let counted = succeed(probe(["count", "-F", "jsonl", "-d", "500ms"]).args(PROBES));
    let lines: Vec<_> = stdout(&counted).lines().map(json_line).collect();
    let count = |name: &str| {
        let line = lines.iter().find(|line| line["probe"] == name);
        line.and_then(|line| line["count"].as_u64()).unwrap_or(0)
    };
    let (first, last) = (count("syscalls:sys_enter_openat"), count("syscalls:sys_exit_openat"));
    assert!(first > UNDER_WAY && first.abs_diff(last) <= UNDER_WAY, "{first} and {last}");

    let traced = succeed(probe(["trace", "-F", "jsonl", "-d", "500ms", "-B", "4M"]).args(PROBES));
    let lines = all_json_lines(&traced);
    let count = |name: &str| lines.iter().filter(|line| line["probe"] == name).count() as u64;
    let (first, last) = (count("syscalls:sys_enter_openat"), count("syscalls:sys_exit_openat"));
    assert!(first > UNDER_WAY && first.abs_diff(last) <= UNDER_WAY, "{first} and {last}");
}
