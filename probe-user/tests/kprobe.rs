//! The binary `probe` on kernels with kprobes.

mod probe;

use probe::{Run, assert_failure, json_lines, probe, stderr, stdout};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

const OPEN: &str = "do_sys_openat2";

/// A shell that opens /dev/null so many times.
fn opens(count: u32) -> String {
    format!("i=0; while [ $i -lt {count} ]; do : </dev/null; i=$((i+1)); done")
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn three_opens_of_a_command_are_three_lines() {
    let output = probe(["trace", OPEN, "-M", "3", "-F", "jsonl", "--", "cat", "/etc/hostname"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = json_lines(&output);
    assert_eq!(lines.len(), 3);
    for line in lines {
        assert_eq!((&line["type"], &line["probe"]), (&"kprobe".into(), &OPEN.into()));
        assert_eq!(line["comm"], "cat");
        assert_eq!(line["pid"], line["tid"]);
        let args = line["args"].as_object().unwrap();
        let names: Vec<_> = args.keys().map(String::as_str).collect();
        assert_eq!(names, ["dfd", "filename", "how"]);
        // AT_FDCWD
        assert_eq!(args["dfd"], -100);
        // A name that the process has not touched yet may not be in memory.
        let is_absent = args["filename"].is_null() && line["faults"][0] == "filename";
        let is_path = args["filename"].as_str().is_some_and(|name| name.starts_with('/'));
        assert!(is_absent || is_path, "{line}");
        assert!(args["how"].as_str().unwrap().starts_with("0xff"), "{line}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_thousand_opens_are_a_thousand_events() {
    let events = |count| {
        let output = probe(["trace", OPEN, "-F", "jsonl", "--", "sh", "-c", &opens(count)])
            .output()
            .unwrap();
        assert!(stderr(&output).contains(" + lost 0; complete"), "{}", stderr(&output));
        json_lines(&output).len()
    };
    assert_eq!(events(1000) - events(0), 1000);
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_thousand_opens_of_a_running_process_are_a_thousand_events() {
    let mut traced = Command::new("sh")
        .args(["-c", &format!("read go; {}", opens(1000))])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut run = Run::start(&["trace", OPEN, "-p", &traced.id().to_string()]);
    run.wait_for_heading();
    traced.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(traced.wait().unwrap().success());
    let output = run.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), 1000);
    assert!(
        stderr(&output)
            .contains("1000 events\nledger: attempted 1000 = handled 1000 + lost 0; complete")
    );
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn probes_of_different_kinds_are_told_apart() {
    let exec = "tracepoint:sched:sched_process_exec";
    let exit = "tracepoint:sched:sched_process_exit";
    let output = probe(["trace", OPEN, exec, "rawtp:sched_process_fork", "vfs_read", exit])
        .args(["-F", "jsonl", "--", "sh", "-c", "cat /etc/hostname; cat /etc/hostname"])
        .output()
        .unwrap();
    let lines = json_lines(&output);
    let count = |kind: &str, probe: &str| {
        lines.iter().filter(|line| line["type"] == kind && line["probe"] == probe).count()
    };
    assert_eq!(count("tracepoint", "sched:sched_process_exec"), 3);
    assert_eq!(count("rawtp", "sched_process_fork"), 2);
    // The shell's own end comes with the end of the trace.
    assert!((2..=3).contains(&count("tracepoint", "sched:sched_process_exit")));
    assert!(count("kprobe", OPEN) >= 6 && count("kprobe", "vfs_read") >= 4);
    let kinds: BTreeSet<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, BTreeSet::from(["kprobe", "rawtp", "tracepoint"]));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn the_tracer_does_not_trace_its_own_output() {
    let output = probe(["trace", "vfs_write", "-F", "jsonl", "-d", "500ms"]).output().unwrap();
    assert!(output.status.success());
    assert!(json_lines(&output).iter().all(|line| line["comm"] != "probe"));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn functions_that_cannot_be_probed_are_explained() {
    let misspelt =
        "the kernel has no function of this name, or has inlined it everywhere; there is ";
    assert_failure(&mut probe(["trace", "do_sys_opnat2"]), misspelt);
    assert_failure(&mut probe(["trace", "do_sys_opnat2"]), OPEN);
    let list = std::fs::read_to_string("/sys/kernel/debug/kprobes/blacklist").unwrap();
    let name = list.lines().filter_map(|line| line.split_whitespace().nth(1)).find(|name| {
        // Assembler's labels have no symbol of their own.
        name.starts_with("kprobe") || name.starts_with("notify_die")
    });
    let name = name.expect("something of the kprobes themselves is on the blacklist");
    assert_failure(&mut probe(["trace", name]), "it is on the kprobe blacklist");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn nothing_stays_attached() {
    let attached = || {
        let programs = aya::programs::loaded_programs().map(Result::unwrap);
        programs.filter(|program| program.name_as_str().unwrap().starts_with("kprobe_")).count()
    };
    let before = attached();
    let good = probe(["trace", OPEN, "-M1", "--", "cat", "/dev/null"]).output().unwrap();
    assert!(good.status.success());
    assert_failure(&mut probe(["trace", OPEN, "no_such_function_at_all"]), "has no function");
    assert_eq!(attached(), before);
}
