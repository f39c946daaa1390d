//! `probe` on CPUs that come and go. Only in a virtual machine: it takes CPUs away from everybody.

mod cpu;
mod probe;

use cpu::{CPU, Restore, switch};
use probe::{Run, json_line, stderr, stdout};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::HashSet;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

fn stay_there() {
    let mut set = CpuSet::new();
    set.set(CPU as usize);
    sched_setaffinity(None, &set).unwrap();
}

/// Executes a command on the CPU, that sleeps there.
fn execute_there() {
    let execute = || {
        stay_there();
        assert!(Command::new("/bin/sleep").arg("0.05").status().unwrap().success());
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
    assert!(printed.contains("filename=\"/bin/sleep\""), "{printed}{said}");
    assert!(said.contains(" + lost 0; complete"), "{said}");
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_that_comes_to_a_sealed_trace_is_told() {
    let (printed, said) = trace_a_cpu_that_comes(Some("--sealed"));
    assert!(!printed.contains("filename=\"/bin/sleep\""), "{printed}{said}");
    assert!(said.contains("CPU 1 is online, and its events are lost: "), "{said}");
    // The command, and nothing else was executed there.
    assert!(said.contains("no event for the CPU 1); complete"), "{said}");
}

/// Counts while `sleep` sleeps. A shorter call may have no count: perf's clock may stand still up to the CPU's next
/// tick.
const COUNTED: [&str; 9] = [
    "trace",
    "-F",
    "jsonl",
    "-n",
    "sleep",
    "--ret",
    "--counter",
    "cpu-clock,page-faults",
    "ksyscall:clock_nanosleep",
];

/// The calls that were told on the CPU, all of which have to have been counted, and the processes that made them.
fn counted_there(printed: &str) -> (usize, HashSet<u64>) {
    let lines = printed.lines().map(json_line);
    let calls: Vec<_> = lines.filter(|line| line["type"] == "call").collect();
    for call in &calls {
        assert_eq!(call["cpu"], CPU, "{call}");
        let is_counted = |event: &str| call["args"][event].is_u64();
        assert!(is_counted("cpu-clock") && is_counted("page-faults"), "{call}");
    }
    (calls.len(), calls.iter().map(|call| call["pid"].as_u64().unwrap()).collect())
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_that_comes_counts() {
    let _restore = Restore;
    switch(false);
    let mut run = Run::start(&COUNTED);
    run.wait_for_heading();
    let (printed, said) = execute_when_it_comes(run);
    let (calls, processes) = counted_there(&printed);
    assert!(calls > 0 && processes.len() == 1, "{printed}{said}");
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_that_was_away_counts_again() {
    let _restore = Restore;
    let mut run = Run::start(&COUNTED);
    run.wait_for_heading();
    execute_there();
    for _ in 0..2 {
        switch(false);
        switch(true);
        // It is covered within a second.
        std::thread::sleep(Duration::from_secs(1));
        execute_there();
    }
    switch(false);
    let (printed, said) = execute_when_it_comes(run);
    let (_, processes) = counted_there(&printed);
    assert_eq!(processes.len(), 4, "{printed}{said}");
}

/// Begins and ends on the CPU, and waits between.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn hotplug_fixture_waits(began: &Sender<()>, end: &Receiver<()>) -> u64 {
    began.send(()).unwrap();
    end.recv().unwrap();
    // It was moved when the CPU went.
    stay_there();
    1
}

/// What two events have counted are two counts, even if both have counted all the time, and the one that ended before
/// for a shorter time than the one that came later.
#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_call_that_its_cpu_was_away_in_has_no_count() {
    let _restore = Restore;
    let started = Instant::now();
    let own = std::env::current_exe().unwrap();
    let spec = format!("uprobe:{}:hotplug_fixture_waits(cpu)", own.display());
    let counters = ["--ret", "--counter", "cpu-clock,page-faults"];
    let args = ["trace", "-F", "jsonl", &spec];
    let mut run = Run::start(&[&args[..], &counters].concat());
    run.wait_for_heading();
    let call = |meanwhile: &dyn Fn()| {
        let (begins, began) = channel();
        let (ends, end) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                stay_there();
                hotplug_fixture_waits(&begins, &end)
            });
            began.recv().unwrap();
            meanwhile();
            ends.send(()).unwrap();
        });
    };
    call(&|| ());
    call(&|| {
        let before = started.elapsed();
        switch(false);
        switch(true);
        std::thread::sleep(before + Duration::from_secs(2));
    });
    call(&|| ());
    run.signal(Signal::INT);
    let output = run.finish();
    let lines: Vec<_> = stdout(&output).lines().map(json_line).collect();
    let calls = lines.iter().filter(|line| line["type"] == "call");
    let known = calls.map(|call| {
        assert_eq!(call["cpu"], CPU, "{call}");
        ["cpu-clock", "page-faults"].map(|event| call["args"][event].is_u64())
    });
    assert_eq!(known.collect::<Vec<_>>(), [[true; 2], [false; 2], [true; 2]], "{lines:?}");
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
    assert!(printed.lines().any(|way| way.starts_with("sleep;")), "{printed}{said}");
    assert!(said.contains(" 0 lost, ") && !said.contains("not sampled"), "{said}");
}
