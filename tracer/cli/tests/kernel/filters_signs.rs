//! Signs of numbers in fields and conditions of the binary `probe`, compared with known calls.

use crate::probe::commands::{self, requested_work};
use crate::probe::{assert_exit, events, number, probe};
use serde_json::Value;
use std::path::Path;

// SAFETY: these match the C library.
unsafe extern "C" {
    safe fn close(fd: i32) -> i32;
    safe fn ftruncate(fd: i32, length: i64) -> i32;
    safe fn prctl(option: i32, ...) -> i32;
    safe fn ptrace(request: i32, pid: i32, ...) -> i64;
}

/// An option that no kernel knows.
const OPTION: i32 = 0x5059;

/// Closes and truncates no file, continues no process, and calls `prctl`.
#[test]
#[ignore = "a workload that tests trace"]
fn workload() {
    if !requested_work().is_empty() {
        assert_eq!((close(-1), ftruncate(-1, -7)), (-1, -1));
        assert_eq!(ptrace(libc::PTRACE_CONT as i32, -77, 0, 0), -1);
        assert_eq!(prctl(OPTION, 22_u64, 33_u64, 44_u64, 55_u64), -1);
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn negative_numbers_are_negative() {
    let named = "/sys/kernel/tracing/events/task/task_prctl_unknown";
    let mut probes = vec![
        "tracepoint:syscalls:sys_enter_close/fd < 0/",
        "tracepoint:syscalls:sys_enter_ftruncate(length)/length < 0/",
        "tracepoint:syscalls:sys_enter_mmap(fd)/fd < 0/",
        "tracepoint:syscalls:sys_enter_ptrace(pid)/pid == -77/",
        "tracepoint:syscalls:sys_enter_openat(dfd:x64)/dfd:x64 == 0xffffffffffffff9c/",
        "tracepoint:sched:sched_process_exit(common_pid)/common_pid >= 0/",
        "uretprobe:libc:close(retval:s32)/retval:s32 < 0/",
    ];
    // New kernels have this tracepoint, whose second argument is called arg2.
    let is_new = Path::new(named).exists();
    if is_new {
        probes.push("rawtp:task_prctl_unknown(option, arg0, arg2, arg3, second=$arg2)/arg2 == 22/");
    }
    let events = events(probes, commands::workload("filters_signs", "close"));
    let of = |kind: &str, name: &str| -> Vec<&Value> {
        let is_of = |event: &&Value| event["type"] == kind && event["probe"] == name;
        events.iter().filter(is_of).collect()
    };
    let all = |kind, name, field: &str, value: Value| {
        let events = of(kind, name);
        assert!(!events.is_empty(), "{name}");
        assert!(events.iter().all(|event| event["args"][field] == value), "{events:#?}");
    };
    all("tracepoint", "syscalls:sys_enter_close", "fd", (-1).into());
    all("tracepoint", "syscalls:sys_enter_ftruncate", "length", (-7).into());
    all("tracepoint", "syscalls:sys_enter_mmap", "fd", (-1).into());
    all("tracepoint", "syscalls:sys_enter_ptrace", "pid", (-77).into());
    all("tracepoint", "syscalls:sys_enter_openat", "dfd", "0xffffffffffffff9c".into());
    all("uretprobe", "close", "retval", (-1).into());
    let exits = of("tracepoint", "sched:sched_process_exit");
    assert!(!exits.is_empty());
    assert!(exits.iter().all(|event| event["args"]["common_pid"] == event["tid"]), "{exits:#?}");
    if is_new {
        let [event] = of("rawtp", "task_prctl_unknown")[..] else { panic!("{events:#?}") };
        let fields = ["option", "arg0", "arg2", "second", "arg3"].map(|name| number(event, name));
        assert_eq!(fields, [OPTION as u64, OPTION as u64, 22, 22, 33]);
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn conditions_that_cannot_hold_are_refused() {
    for (spec, expected) in [
        (
            "uretprobe:libc:close/retval < 0/",
            "write retval:s32 < 0 for an int, retval:s64 for a long",
        ),
        ("t:syscalls:sys_enter_write/count < 0/", "write count:s64 < 0 to compare a signed number"),
        (
            "t:syscalls:sys_enter_kill/sig == SIGKILL|SIGTERM/",
            "write sig == SIGKILL || sig == SIGTERM",
        ),
        (
            "t:syscalls:sys_enter_kill/sig != SIGINT|SIGTERM/",
            "write sig != SIGINT && sig != SIGTERM",
        ),
        ("rawtp:sys_enter/id == read|write/", "write id == read || id == write"),
        (
            "t:syscalls:sys_exit_openat/ret == -ENOENT|-EACCES/",
            "write ret == -ENOENT || ret == -EACCES",
        ),
        (
            "t:sched:sched_switch(common_flags)",
            "common_flags cannot be read: the kernel overwrites",
        ),
    ] {
        assert_exit(&mut probe(["trace", "-d", "1s", spec]), 1, expected);
    }
}
