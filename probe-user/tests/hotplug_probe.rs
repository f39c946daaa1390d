//! `probe` on CPUs that come and go. Only in a virtual machine: it takes CPUs away from everybody.

mod cpu;
mod probe;

use cpu::{CPU, Restore, switch};
use probe::{Run, json_line, stderr, stdout};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::process::Command;
use std::time::Duration;

/// Executes a command on the CPU.
fn execute_there() {
    let execute = || {
        let mut set = CpuSet::new();
        set.set(CPU as usize);
        sched_setaffinity(None, &set).unwrap();
        assert!(Command::new("/bin/true").status().unwrap().success());
    };
    std::thread::scope(|scope| scope.spawn(execute).join().unwrap());
}

/// Traces who executes what while the CPU is away at first. Gives what was printed and said.
fn trace_a_cpu_that_comes(option: Option<&str>) -> (String, String) {
    let _restore = Restore;
    switch(false);
    let mut args = vec!["trace", "tracepoint:sched:sched_process_exec"];
    args.extend(option);
    let mut run = Run::start(&args);
    run.wait_for_heading();
    execute_when_it_comes(run)
}

/// Switches the CPU on while it is traced, and executes a command there. Gives what was printed and said.
fn execute_when_it_comes(run: Run) -> (String, String) {
    switch(true);
    // It is covered within a second.
    std::thread::sleep(Duration::from_secs(1));
    execute_there();
    run.signal(Signal::INT);
    let output = run.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    (stdout(&output), stderr(&output))
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_that_comes_is_traced() {
    let (printed, said) = trace_a_cpu_that_comes(None);
    assert!(printed.contains("filename=\"/bin/true\""), "{printed}{said}");
    assert!(said.contains(" + lost 0; complete"), "{said}");
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_that_comes_to_a_sealed_trace_is_told() {
    let (printed, said) = trace_a_cpu_that_comes(Some("--sealed"));
    assert!(!printed.contains("filename=\"/bin/true\""), "{printed}{said}");
    assert!(said.contains("CPU 1 is online, and its events are lost: "), "{said}");
    // The command, and nothing else was executed there.
    assert!(said.contains("no event for the CPU 1); complete"), "{said}");
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn what_a_cpu_counts_that_was_away_is_not_known() {
    let _restore = Restore;
    let args = ["trace", "-F", "jsonl", "-n", "true", "--ret", "--counter", "cpu-clock"];
    let mut run = Run::start(&[&args[..], &["vfs_open"]].concat());
    run.wait_for_heading();
    execute_there();
    switch(false);
    let (printed, _) = execute_when_it_comes(run);
    let mut known = Vec::new();
    for line in printed.lines().map(json_line).filter(|line| line["type"] == "call") {
        assert_eq!(line["cpu"], CPU, "{line}");
        known.push(line["args"]["cpu-clock"].is_u64());
    }
    let before = known.iter().take_while(|known| **known).count();
    assert!((1..known.len()).contains(&before), "{known:?}");
    assert!(known[before..].iter().all(|known| !known), "{known:?}");
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_that_comes_is_sampled() {
    let _restore = Restore;
    switch(false);
    let event = "sched:sched_process_exec";
    let run = Run::start(&["sample", "-a", "-e", event, "-c", "1", "-f", "folded"]);
    run.wait_for_thread("signals");
    let (printed, said) = execute_when_it_comes(run);
    assert!(printed.lines().any(|way| way.starts_with("true;")), "{printed}{said}");
    assert!(said.contains(" 0 lost, ") && !said.contains("not sampled"), "{said}");
}
