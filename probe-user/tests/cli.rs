//! The binary `probe`, on kernels with or without kprobes.

mod probe;

use probe::unprivileged::{MEMLOCK, NotParanoid, maps_are_locked_memory, with_two_capabilities};
use probe::{Run, assert_failure, json_lines, probe, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const EXEC: &str = "tracepoint:sched:sched_process_exec";

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn kinds_of_records_share_the_pipe() {
    let output = probe(["trace", EXEC, "rawtp:sys_enter", "-F", "jsonl", "--"])
        .args(["sh", "-c", "cat /etc/hostname; exit 3"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let lines = json_lines(&output);
    let execs: Vec<_> = lines.iter().filter(|line| line["type"] == "tracepoint").collect();
    assert_eq!(execs.len(), 2, "{execs:?}");
    for (exec, program) in execs.iter().zip(["sh", "cat"]) {
        let filename = exec["args"]["filename"].as_str().unwrap();
        assert!(filename.ends_with(&format!("/{program}")), "{filename}");
        assert_eq!(exec["comm"], *program);
        assert_eq!(exec["probe"], "sched:sched_process_exec");
        assert_eq!(exec["args"]["old_pid"], exec["tid"]);
    }
    assert!(lines.iter().any(|line| line["type"] == "rawtp" && line["comm"] == "cat"));
    // What the command printed is not among the events.
    let hostname = std::fs::read_to_string("/etc/hostname").unwrap();
    assert!(stderr(&output).contains(hostname.trim()));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn descendants_are_traced_and_nobody_else() {
    let mut other =
        Command::new("sh").args(["-c", "while :; do true; /bin/true; done"]).spawn().unwrap();
    let script = "for i in 1 2 3 4 5; do /bin/true; done; (/bin/true & wait); echo done";
    let output = probe(["trace", EXEC, "-F", "jsonl", "--", "sh", "-c", script]).output().unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    let names: Vec<_> = json_lines(&output).iter().map(|line| line["comm"].clone()).collect();
    assert_eq!(names, ["sh", "true", "true", "true", "true", "true", "true"]);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn all_traces_everybody_but_the_tracer() {
    let mut other = Command::new("sh").args(["-c", "while :; do /bin/true; done"]).spawn().unwrap();
    let run = Run::start(&["trace", "rawtp:sys_enter", "-F", "jsonl", "-a", "--", "sleep", "1"]);
    let tracer = u64::from(run.child.id());
    let output = run.finish();
    other.kill().unwrap();
    other.wait().unwrap();
    let lines = json_lines(&output);
    for comm in ["true", "sleep"] {
        assert!(lines.iter().any(|line| line["comm"] == comm), "nobody is called {comm}");
    }
    assert!(lines.iter().all(|line| line["pid"] != tracer));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_limit_is_the_number_of_lines() {
    for limit in [1, 7] {
        let limit_arg = limit.to_string();
        let output =
            probe(["trace", "rawtp:sys_enter", "-M", &limit_arg, "--", "cat", "/dev/null"])
                .output()
                .unwrap();
        assert!(output.status.success());
        // The table has a heading.
        assert_eq!(stdout(&output).lines().count(), limit + 1);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn every_syscall_of_a_command_is_there() {
    // A shell's loop makes the same number of system calls each time round.
    let events = |rounds: u32| {
        let script = format!("i=0; while [ $i -lt {rounds} ]; do : </dev/null; i=$((i+1)); done");
        let output = probe(["trace", "rawtp:sys_enter", "-F", "jsonl", "--", "sh", "-c", &script])
            .output()
            .unwrap();
        assert!(stderr(&output).contains(" + lost 0; complete"), "{}", stderr(&output));
        json_lines(&output).len()
    };
    let (none, once, thousand) = (events(0), events(1), events(1000));
    assert!(once > none);
    assert_eq!(thousand - none, 1000 * (once - none));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_duration_ends_the_trace() {
    let start = Instant::now();
    let output = probe(["trace", EXEC, "-d", "300ms"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_signal_drains_and_sums_up() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut run = Run::start(&["trace", EXEC]);
        run.wait_for_heading();
        assert!(Command::new("/bin/true").status().unwrap().success());
        run.signal(signal);
        let output = run.finish();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // Drained after the signal, if not before.
        assert!(stdout(&output).contains("filename=\"/bin/true\""), "{}", stdout(&output));
        let summary = stderr(&output);
        assert!(
            summary.starts_with("probe: ") && summary.ends_with(" + lost 0; complete\n"),
            "{summary}"
        );
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn sigterm_reaches_the_command() {
    let mut run = Run::start(&["trace", EXEC, "--", "sleep", "1000"]);
    run.wait_for_heading();
    // Its own exec tells that it runs.
    let mut line = String::new();
    run.stdout.read_line(&mut line).unwrap();
    run.signal(Signal::TERM);
    assert_eq!(run.finish().status.code(), Some(128 + 15));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_closed_pipe_ends_quietly() {
    let mut run = Run::start(&[
        "trace",
        "rawtp:sys_enter",
        "--",
        "sh",
        "-c",
        "while :; do :</dev/null; done & sleep 2; kill $!",
    ]);
    let mut line = String::new();
    run.stdout.read_line(&mut line).unwrap();
    let Run { mut child, stdout } = run;
    drop(stdout);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert!(
        matches!(lines[..], [probe, ledger] if probe.starts_with("probe: ") && ledger.starts_with("ledger: ")),
        "{said}"
    );
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = probe(["trace", "rawtp:sys_enter", "-F", "jsonl", "--", "cat", "/dev/null"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("probe: cannot write events: No space left on device"));
    probe::books(&stderr(&output));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_process_is_traced_until_it_exits() {
    let mut traced = Command::new("sh")
        .args(["-c", "read go; /bin/true; exec /bin/true"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = traced.id().to_string();
    let mut run = Run::start(&["trace", EXEC, "-p", &pid]);
    run.wait_for_heading();
    drop(traced.stdin.take());
    traced.wait().unwrap();
    let output = run.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    // Its child's exec is not its own.
    assert_eq!(stdout(&output).lines().count(), 1, "{}", stdout(&output));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn verbose_shows_what_the_programs_log() {
    let trace = ["trace", EXEC, "-F", "jsonl", "--", "sh", "-c", "/bin/true; /bin/true"];
    let quiet = probe(trace).output().unwrap();
    assert!(!stderr(&quiet).contains("following"), "{}", stderr(&quiet));
    let verbose = probe(["-v"]).args(trace).output().unwrap();
    assert!(stderr(&verbose).contains("following a new task"), "{}", stderr(&verbose));
    assert_eq!(json_lines(&verbose).len(), json_lines(&quiet).len());
    assert!(!stderr(&verbose).contains("tracepoint 0 hit"), "{}", stderr(&verbose));
    let trace = ["trace", "rawtp:sys_exit", "-vv", "-M1", "--", "/bin/true"];
    let noisy = probe(trace).output().unwrap();
    assert!(stderr(&noisy).contains("tracepoint 0 hit"), "{}", stderr(&noisy));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_example_runs() {
    let example = probe::target_dir().join("examples/forks");
    let mut child = Command::new(&example).arg("3").stdout(Stdio::piped()).spawn().unwrap();
    // It says nothing before its first event, so fork until it has seen enough.
    while child.try_wait().unwrap().is_none() {
        assert!(Command::new("/bin/true").status().unwrap().success());
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let lines = stdout(&output);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("CPU ") && line.ends_with(" forked")));
}

#[test]
fn wrong_usage_is_2() {
    for (args, told) in [
        (&["trace"][..], "required"),
        (&["trace", "a b"], "no name of the kernel has this character\n  a b\n   ^"),
        (&["trace", "f/comm == \"\u{202e}\"/", "f("], "a field has to come here"),
        (&["trace", "tracepoint:x"], "a tracepoint is written tracepoint:CATEGORY:NAME"),
        (&["trace", "f", "-M", "0"], "0 is not in 1.."),
        (&["trace", "f", "-d", "soon"], "write it like 10s or 500ms"),
        (&["trace", "f", "-B", "much"], "write it like 65536, 64K or 1M"),
        (&["trace", "f", "-p", "1", "--", "true"], "cannot be used with"),
        (&["trace", "f", "-F", "xml"], "[possible values: table, jsonl, perfetto]"),
    ] {
        let output = probe(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(told), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn bad_input_gets_one_line_that_helps() {
    for (args, told) in [
        (
            &["trace", "tracepoint:sched:sched_process_exce"][..],
            "the kernel has no tracepoint of this name; there is sched:sched_process_exec",
        ),
        (
            &["trace", "rawtp:sys_entr"],
            "the kernel has no tracepoint of this name; there is sys_enter",
        ),
        (&["trace", EXEC, "-B", "5000"], "the nearest are 4096 and 8192"),
        (&["trace", EXEC, "-p", "4194305"], "there is no process 4194305"),
        (&["trace", EXEC, "--", "/no/such/program"], "cannot run `/no/such/program`: No such file"),
        (&["trace", EXEC, "--", "/etc/passwd"], "cannot run `/etc/passwd`: Permission denied"),
    ] {
        assert_failure(&mut probe(args), told);
    }
}

/// Its command waits to be let go then, and may end after the tracer.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_command_that_is_not_run_says_nothing() {
    let told = "the kernel has no tracepoint of this name";
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        assert_failure(&mut probe(["trace", "tracepoint:sched:nothing", "--", "true"]), told);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_kernel_without_kprobes_says_so() {
    if std::path::Path::new("/sys/bus/event_source/devices/kprobe/type").exists() {
        // Such a kernel has tests/kprobe.rs.
        return;
    }
    assert_failure(&mut probe(["trace", "vfs_read"]), "this kernel has no kprobes");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn no_capability_is_told_by_name() {
    let mut nobody = probe(["trace", EXEC]);
    nobody.uid(65534);
    let told = "tracing needs root, or the capabilities CAP_BPF and CAP_PERFMON";
    assert_failure(&mut nobody, told);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn two_capabilities_are_enough() {
    let _sysctl = NotParanoid::ensure();
    let args = ["trace", "rawtp:sys_enter", "-B", "64K", "-M", "3", "--", "true"];
    let output = with_two_capabilities(MEMLOCK, &args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), 4);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn too_much_locked_memory_names_the_limits() {
    let _sysctl = NotParanoid::by_default();
    let mut command = with_two_capabilities(MEMLOCK, &["trace", "rawtp:sys_enter", "-B", "64M"]);
    assert_failure(&mut command, "kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK (ulimit -l)");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn maps_that_may_not_be_locked_are_explained() {
    let _sysctl = NotParanoid::ensure();
    let mut command = with_two_capabilities(4096, &["trace", "rawtp:sys_enter", "-d", "1ms"]);
    if maps_are_locked_memory() {
        assert_failure(&mut command, "raise RLIMIT_MEMLOCK (ulimit -l), which maps count against");
    } else {
        // 1 MiB for each CPU is more than is free to everybody, but maps are not the matter.
        let said = stderr(&command.output().unwrap());
        assert!(!said.contains("maps count against"), "{said}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_unmounted_tracefs_is_mounted() {
    // In a mount namespace of its own, so that nobody else misses it.
    let script = "while umount /sys/kernel/tracing 2>/dev/null; do :; done; \
                  umount /sys/kernel/debug/tracing /sys/kernel/debug 2>/dev/null; \
                  exec \"$0\" trace tracepoint:sched:sched_process_exec -M1 -- true";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(probe::binary())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), 2);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_killed_tracer_leaves_no_child_waiting() {
    // Killed at any time: the command ends, or has never begun.
    for delay in [0, 2, 5, 10, 20, 50] {
        let mut child = probe(["trace", EXEC, "--", "sleep", "0.2"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::KILL).unwrap();
        // Its children have this pipe, too: it ends when the last of them has.
        let mut said = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_to_string(&mut said).unwrap();
        child.wait().unwrap();
    }
}
