//! `probe` across CPU hotplug. For virtual machines only: these tests take CPUs offline.

use crate::absent;
use crate::probe::chain::{Chain, count};
use crate::probe::commands::own;
use crate::probe::{EXEC, Run, json_line, probe, stderr, stdout, succeed};
use probe_testing::aux_module::{MISSING, is_loaded};
use probe_testing::cpu::{CPU, Restore, switch};
use probe_testing::skip::skip;
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::HashSet;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The tracer covers a CPU within a second. A slow machine needs more.
const COVERED: Duration = Duration::from_secs(3);

fn pin_to_the_cpu() {
    let mut set = CpuSet::new();
    set.set(CPU as usize);
    sched_setaffinity(None, &set).unwrap();
}

/// Executes a command on the CPU.
fn execute_on_the_cpu() {
    let execute = || {
        pin_to_the_cpu();
        succeed(Command::new("/bin/sleep").arg("0.05"));
    };
    std::thread::scope(|scope| scope.spawn(execute).join().unwrap());
}

/// Runs `probe`, starting with the CPU offline. Returns standard output and standard error.
fn trace_a_later_cpu(args: &[&str]) -> (String, String) {
    let _restore = Restore;
    switch(false);
    execute_once_online(Run::start(args))
}

/// Brings the CPU online during a trace and executes a command there. Returns standard output and
/// standard error.
fn execute_once_online(run: Run) -> (String, String) {
    switch(true);
    std::thread::sleep(COVERED);
    execute_on_the_cpu();
    run.signal(Signal::INT);
    let output = run.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    (stdout(&output), stderr(&output))
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_that_comes_online_is_traced() {
    let (printed, errors) = trace_a_later_cpu(&["trace", EXEC]);
    assert!(printed.contains("filename=\"/bin/sleep\""), "{printed}{errors}");
    assert!(errors.contains(" + lost 0; complete"), "{errors}");
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn missing_strings_are_read_on_a_cpu_that_comes_online() {
    let _restore = Restore;
    switch(false);
    let run = Run::start(["trace", "-F", "jsonl", &absent::opens("filename", "")]);
    switch(true);
    std::thread::sleep(COVERED);
    let work = absent::work(&format!("opens {}", absent::STRINGS));
    succeed(Command::new("taskset").args(["-c", &CPU.to_string()]).args(work));
    run.signal(Signal::INT);
    let output = run.finish();
    let mut events: Vec<_> = stdout(&output).lines().map(json_line).collect();
    events.retain(|line| line["type"] == "tracepoint");
    assert!(events.iter().all(|event| event["cpu"] == CPU), "{}", stderr(&output));
    absent::assert_strings(&events, "filename");
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_that_a_sealed_trace_does_not_cover_is_reported() {
    let (printed, errors) = trace_a_later_cpu(&["trace", EXEC, "--sealed"]);
    assert!(!printed.contains("filename=\"/bin/sleep\""), "{printed}{errors}");
    assert!(errors.contains("CPU 1 is online, and its events are lost: "), "{errors}");
    // Only the command was executed there.
    assert!(errors.contains("no event for the CPU 1); incomplete"), "{errors}");
}

/// Counts during the system call of `sleep`. Shorter calls may have no count, because perf's clock
/// may stand still until the CPU's next tick.
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

/// The number of calls on the CPU, each of which must have counts, and the processes that made
/// them.
fn counted_on_the_cpu(printed: &str) -> (usize, HashSet<u64>) {
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
fn a_cpu_that_comes_online_counts() {
    let (printed, errors) = trace_a_later_cpu(&COUNTED);
    let (calls, processes) = counted_on_the_cpu(&printed);
    assert!(calls > 0 && processes.len() == 1, "{printed}{errors}");
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_that_was_offline_counts_again() {
    let _restore = Restore;
    let run = Run::start(COUNTED);
    execute_on_the_cpu();
    for _ in 0..2 {
        switch(false);
        switch(true);
        std::thread::sleep(COVERED);
        execute_on_the_cpu();
    }
    switch(false);
    let (printed, errors) = execute_once_online(run);
    let (_, processes) = counted_on_the_cpu(&printed);
    assert_eq!(processes.len(), 4, "{printed}{errors}");
}

/// Starts and ends on the CPU, and waits in between.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn hotplug_fixture_waits(began: &Sender<()>, end: &Receiver<()>) -> u64 {
    began.send(()).unwrap();
    end.recv().unwrap();
    // The kernel moved the thread when the CPU went offline.
    pin_to_the_cpu();
    1
}

/// The CPU gets a new event when it comes back, so a call across that has no count. That holds even
/// if both events counted all the time, and the old one for a shorter time than the new one.
#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_call_during_which_its_cpu_was_offline_has_no_count() {
    let _restore = Restore;
    let started = Instant::now();
    let spec = format!("uprobe:{}:hotplug_fixture_waits(cpu)", own());
    let counters = ["--ret", "--counter", "cpu-clock,page-faults"];
    let run = Run::start(["trace", "-F", "jsonl", &spec].into_iter().chain(counters));
    let call = |meanwhile: &dyn Fn()| {
        let (begins, began) = channel();
        let (ends, end) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                pin_to_the_cpu();
                hotplug_fixture_waits(&begins, &end)
            });
            began.recv().unwrap();
            meanwhile();
            ends.send(()).unwrap();
        });
    };
    // Shorter calls may have no count.
    let briefly = || std::thread::sleep(Duration::from_millis(50));
    call(&briefly);
    call(&|| {
        let before = started.elapsed();
        switch(false);
        switch(true);
        std::thread::sleep(before + Duration::from_secs(2));
    });
    call(&briefly);
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
fn a_cpu_that_comes_online_is_sampled() {
    let _restore = Restore;
    switch(false);
    let args = ["sample", "-a", "-e", "sched:sched_process_exec", "-c", "1", "-f", "folded"];
    let run = Run::spawn(args);
    run.wait_for_thread("signals");
    let (printed, errors) = execute_once_online(run);
    assert!(printed.lines().any(|stack| stack.starts_with("sleep;")), "{printed}{errors}");
    assert!(errors.contains(" 0 lost") && !errors.contains("may be missing"), "{errors}");
}

/// The sampler of a command keeps no privilege for CPUs, but its thread that looks names up does.
#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn functions_have_names_after_a_cpu_has_come_online() {
    let _restore = Restore;
    switch(false);
    let chain = Chain::compile();
    let calls = chain.command(30, 12).join(" ");
    // The CPU is watched by then.
    let seconds = COVERED.as_secs();
    let script = format!(
        "echo 1 > /sys/devices/system/cpu/cpu{CPU}/online; sleep {seconds}; taskset -c {CPU} {calls}"
    );
    let event = ["-e", "syscalls:sys_enter_getpgid", "-c", "1"];
    let mut run = probe(["sample", "-f", "folded"].into_iter().chain(event));
    let output = succeed(run.args(["--", "sh", "-c", &script]));
    let folded = stdout(&output);
    let named = |name| count(&folded, &format!(";main;{name};innermost "));
    assert_eq!([named("left"), named("right")], [30, 12], "{folded}{}", stderr(&output));
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_hardware_trace_says_that_it_does_not_follow_cpus() {
    if !is_loaded() {
        return skip(MISSING);
    }
    let _restore = Restore;
    let dir = tempfile::tempdir().unwrap();
    let errors = |script: &str| {
        let mut run = probe(["sample", "-a", "-e", "probe_aux//", "-m", "32K", "--force", "--aux"]);
        stderr(&succeed(run.arg(dir.path()).args(["--", "sh", "-c", script])))
    };
    const WARNING: &str = "CPUs that came online have no trace from then on";
    let quiet = errors("true");
    assert!(!quiet.contains(WARNING), "{quiet}");
    let online = format!("/sys/devices/system/cpu/cpu{CPU}/online");
    let warned = errors(&format!("echo 0 > {online}; echo 1 > {online}; sleep 1"));
    assert!(warned.contains(WARNING), "{warned}");
}
