//! The binary `probe` on kernels with and without kprobes.

use crate::probe::busy::Busy;
use crate::probe::commands::shell;
use crate::probe::unprivileged::{
    MEMLOCK, Paranoid, maps_are_locked_memory, with_two_capabilities,
};
use crate::probe::{
    EXEC, Run, assert_exit, assert_failure, binary, events, has_kprobes, json_lines, probe, stderr,
    stdout, succeed, target_dir, trace_shell,
};
use probe_testing::skip::skip;
use rustix::process::Signal;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn probes_of_several_types_share_the_pipe() {
    let args = ["trace", EXEC, "rawtp:sys_enter", "-F", "jsonl", "--"];
    let output = probe(args).args(shell("cat /etc/hostname; exit 3")).output().unwrap();
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
    // The command's output goes to standard error, not between the events.
    let hostname = std::fs::read_to_string("/etc/hostname").unwrap();
    assert!(stderr(&output).contains(hostname.trim()));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn only_descendants_of_the_command_are_traced() {
    let _other = Busy::repeat("true; /bin/true");
    let script = "for i in 1 2 3 4 5; do /bin/true; done; (/bin/true & wait); echo done";
    let events = events([EXEC], shell(script));
    let names: Vec<_> = events.iter().map(|event| event["comm"].as_str().unwrap()).collect();
    assert_eq!(names, ["sh", "true", "true", "true", "true", "true", "true"]);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn all_traces_every_process_but_the_tracer() {
    let _other = Busy::repeat("/bin/true");
    let run = Run::spawn(["trace", "rawtp:sys_enter", "-F", "jsonl", "-a", "--", "sleep", "1"]);
    let tracer = u64::from(run.child.id());
    let lines = json_lines(&run.finish());
    for comm in ["true", "sleep"] {
        assert!(lines.iter().any(|line| line["comm"] == comm), "no process is called {comm}");
    }
    assert!(lines.iter().all(|line| line["pid"] != tracer));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_limit_is_the_number_of_lines() {
    for limit in [1, 7] {
        let mut run = probe(["trace", "rawtp:sys_enter", "-M"]);
        let output = succeed(run.arg(limit.to_string()).args(["--", "cat", "/dev/null"]));
        // The heading is one more line.
        assert_eq!(stdout(&output).lines().count(), limit + 1);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn every_system_call_of_a_command_is_printed() {
    // Each iteration of the loop makes the same number of system calls.
    let count = |rounds: u32| {
        let script = format!("i=0; while [ $i -lt {rounds} ]; do : </dev/null; i=$((i+1)); done");
        events(["rawtp:sys_enter"], shell(&script)).len()
    };
    let (none, once, thousand) = (count(0), count(1), count(1000));
    assert!(once > none);
    assert_eq!(thousand - none, 1000 * (once - none));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_duration_ends_the_trace() {
    let start = Instant::now();
    succeed(&mut probe(["trace", EXEC, "-d", "300ms"]));
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_signal_ends_the_trace_with_all_its_events() {
    // The tests may run under nohup, and `probe` heeds that.
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let run = Run::start(["trace", EXEC]);
        succeed(&mut Command::new("/bin/true"));
        run.signal(signal);
        let output = run.finish();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // The event is drained after the signal at the latest.
        assert!(stdout(&output).contains("filename=\"/bin/true\""), "{}", stdout(&output));
        let summary = stderr(&output);
        assert!(summary.starts_with("probe: "), "{summary}");
        assert!(summary.ends_with(" + lost 0; complete\n"), "{summary}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn sigterm_reaches_the_command() {
    let mut run = Run::start(["trace", EXEC, "--", "sleep", "1000"]);
    // The exec event shows that the command runs.
    run.read_line();
    run.signal(Signal::TERM);
    assert_eq!(run.finish().status.code(), Some(128 + 15));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn signals_that_were_ignored_before_have_no_effect() {
    let program = probe([""]).get_program().to_owned();
    for (signal, command) in [
        // As nohup does.
        ("HUP", "kill -HUP $PPID; sleep 0.3; exit 7"),
        ("CHLD", "exit 7"),
    ] {
        let mut run = Command::new("env");
        run.arg(format!("--ignore-signal={signal}")).arg(&program);
        run.args(["trace", "rawtp:sys_enter()/pid == 0/", "--", "sh", "-c", command]);
        let output = run.output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{signal}: {}", stderr(&output));
    }
}

/// Another process that shares a terminal or a pipe with `probe` may have set `O_NONBLOCK` on it.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn output_that_takes_nothing_for_now_is_waited_for() {
    let trace = ["trace", "rawtp:sys_enter", "-F", "jsonl", "--max-events", "2000", "--", "dd"];
    let trace = [&trace[..], &["if=/dev/zero", "of=/dev/null", "bs=1", "status=none"]].concat();
    for (args, lines) in [(&trace[..], 2001), (&["list", "tracepoint:*"], 1000)] {
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        // SAFETY: the call has no preconditions.
        assert_eq!(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) }, 4096);
        let mut run = probe(args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let printed = std::io::read_to_string(reader).unwrap();
        assert!(run.wait().unwrap().success(), "{args:?}");
        assert!(printed.lines().count() >= lines, "{args:?}: {}", printed.lines().count());
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_closed_pipe_ends_the_trace_quietly() {
    let endless = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1"];
    let mut run = Run::spawn(["trace", "rawtp:sys_enter", "--"].iter().chain(&endless));
    run.read_line();
    let Run { child, stdout, .. } = run;
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    let printed = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let [summary, ledger] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
    assert!(summary.starts_with("probe: ") && ledger.starts_with("ledger: "), "{printed}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let args = ["trace", "rawtp:sys_enter", "-F", "jsonl", "--at-end", "wait", "--"];
    let mut run = probe(args.iter().chain(&["sh", "-c", "echo ran >&2"]));
    let output = run.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = stderr(&output);
    assert_eq!(
        errors.trim_end(),
        "probe: cannot write events: No space left on device (os error 28)"
    );
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_process_is_traced_until_it_exits() {
    let output = trace_shell(&[EXEC], "/bin/true; exec /bin/true");
    // The exec of its child is not reported.
    assert_eq!(stdout(&output).lines().count(), 1, "{}", stdout(&output));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn verbose_prints_the_log_of_the_programs() {
    let trace = ["trace", EXEC, "-F", "jsonl", "--", "sh", "-c", "/bin/true; /bin/true"];
    let quiet = probe(trace).output().unwrap();
    assert!(!stderr(&quiet).contains("following"), "{}", stderr(&quiet));
    let verbose = probe(["-v"]).args(trace).output().unwrap();
    assert!(stderr(&verbose).contains("following a new task"), "{}", stderr(&verbose));
    assert_eq!(json_lines(&verbose).len(), json_lines(&quiet).len());
    assert!(!stderr(&verbose).contains("tracepoint 0 hit"), "{}", stderr(&verbose));
    let trace = ["trace", "rawtp:sys_exit", "-vv", "-M1", "--", "/bin/true"];
    assert_exit(&mut probe(trace), 0, "tracepoint 0 hit");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_example_runs() {
    let example = target_dir().join("examples/forks");
    let mut child = Command::new(&example).arg("3").stdout(Stdio::piped()).spawn().unwrap();
    // The example prints nothing before its first event, so keep forking until it exits.
    while child.try_wait().unwrap().is_none() {
        succeed(&mut Command::new("/bin/true"));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let lines = stdout(&output);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("CPU ") && line.ends_with(" forked")));
}

#[test]
fn invalid_usage_exits_with_2() {
    for (args, expected) in [
        (&["trace"][..], "required"),
        (
            &["trace", "a b"],
            "kernel names contain no spaces; fields and a condition follow as in NAME(FIELD, FIELD)/FIELD > 0/\n  a b\n   ^",
        ),
        (&["trace", "f/comm == \"\u{202e}\"/", "f("], "expected a field"),
        (&["trace", "tracepoint:x"], "a tracepoint is written tracepoint:CATEGORY:NAME"),
        (&["trace", "f", "-M", "0"], "0 is not in 1.."),
        (&["trace", "f", "-d", "soon"], "expected a time like 10s or 500ms"),
        (&["trace", "f", "-B", "much"], "write it like 65536, 64K or 1M"),
        (&["trace", "f", "-p", "1", "--", "true"], "cannot be used with"),
        (&["trace", "f", "-F", "xml"], "[possible values: table, jsonl, perfetto]"),
        (&["trace", "f", "--trigger", "g"], "--flight-recorder"),
    ] {
        assert_exit(&mut probe(args), 2, expected);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn invalid_input_is_explained_in_one_line() {
    for (args, expected) in [
        (
            &["trace", "tracepoint:sched:sched_process_exce"][..],
            "the kernel has no tracepoint of this name; did you mean `sched:sched_process_exec`",
        ),
        (
            &["trace", "rawtp:sys_entr"],
            "the kernel has no tracepoint of this name; did you mean `sys_enter`",
        ),
        (
            &["trace", EXEC, "-B", "2097152K"],
            "invalid ring size: 2147483648 bytes per CPU; use 1 to",
        ),
        (&["trace", EXEC, "-p", "4194305"], "there is no process 4194305"),
        (&["trace", EXEC, "--", "/no/such/program"], "cannot run `/no/such/program`: No such file"),
        (&["trace", EXEC, "--", "/etc/passwd"], "cannot run `/etc/passwd`: Permission denied"),
    ] {
        assert_failure(&mut probe(args), expected);
    }
}

/// The held command may exit after the tracer does, but must stay silent.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_command_that_is_not_run_prints_nothing() {
    let expected = "the kernel has no tracepoint of this name";
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        assert_failure(&mut probe(["trace", "tracepoint:sched:nothing", "--", "true"]), expected);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_kernel_without_kprobes_is_an_error() {
    if has_kprobes() {
        // The tests of `kprobe.rs` are for such a kernel.
        return skip("this kernel has kprobes");
    }
    assert_failure(&mut probe(["trace", "vfs_read"]), "this kernel has no kprobes");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn missing_capabilities_are_named() {
    let expected = "tracing needs root, or the capabilities CAP_BPF and CAP_PERFMON";
    assert_failure(probe(["trace", EXEC]).uid(65534), expected);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn two_capabilities_are_enough() {
    let _sysctl = Paranoid::at_most_2();
    let args = ["trace", "rawtp:sys_enter", "-B", "64K", "-M", "3", "--", "true"];
    let output = succeed(&mut with_two_capabilities(MEMLOCK, &args));
    assert_eq!(stdout(&output).lines().count(), 4);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn too_much_locked_memory_names_the_limits() {
    let _sysctl = Paranoid::set(2);
    let mut command = with_two_capabilities(MEMLOCK, &["trace", "rawtp:sys_enter", "-B", "64M"]);
    assert_failure(&mut command, "kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK (ulimit -l)");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn maps_that_may_not_be_locked_are_explained() {
    let _sysctl = Paranoid::at_most_2();
    let mut command = with_two_capabilities(4096, &["trace", "rawtp:sys_enter", "-d", "1ms"]);
    if maps_are_locked_memory() {
        let expected = "raise RLIMIT_MEMLOCK (ulimit -l), which limits the memory of maps";
        assert_failure(&mut command, expected);
    } else {
        // 1 MiB per CPU is over the limit for unprivileged users, but the error must not blame the
        // maps.
        let printed = stderr(&command.output().unwrap());
        assert!(!printed.contains("maps count against"), "{printed}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_unmounted_tracefs_is_mounted() {
    // A private mount namespace keeps tracefs mounted for others.
    let script = "while umount /sys/kernel/tracing 2>/dev/null; do :; done; \
                  umount /sys/kernel/debug/tracing /sys/kernel/debug 2>/dev/null; \
                  exec \"$0\" trace tracepoint:sched:sched_process_exec -M1 -- true";
    let mut unshare = Command::new("unshare");
    let output = succeed(unshare.args(["-m", "sh", "-c", script]).arg(binary()));
    assert_eq!(stdout(&output).lines().count(), 2);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_killed_tracer_leaves_no_child_waiting() {
    // Whenever the tracer is killed, the command either ends or never starts.
    for delay in [0, 2, 5, 10, 20, 50] {
        let run = Run::spawn(["trace", EXEC, "--", "sleep", "0.2"]);
        let Run { mut child, stdout: _unread, .. } = run;
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        // The children inherit standard error, so it closes when the last one exits.
        child.wait_with_output().unwrap();
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn only_a_shell_asks_for_completions() {
    for value in ["", "0"] {
        let args = ["trace", EXEC, "-F", "jsonl", "--", "true"];
        succeed(probe(args).env("COMPLETE", value));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_verdict_is_the_exit_status_if_it_is_required() {
    let run = |more: &[&str]| {
        let trace = ["trace", "rawtp:sys_enter", "--require-complete"];
        let command = ["--", "sh", "-c", "exit 7"];
        probe(trace).args(more).args(command).output().unwrap()
    };
    let output = run(&["-B", "4M"]);
    let complete = stderr(&output).ends_with("; complete\n");
    // Another eBPF program may have run when a system call began.
    assert_eq!(output.status.code(), Some(if complete { 7 } else { 3 }), "{}", stderr(&output));
    let output = run(&["-M", "1", "--at-end", "wait"]);
    assert!(stderr(&output).ends_with("; incomplete\n"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(4));
    // Nobody reads the lines after the first one.
    for (required, status) in [(&["--require-complete"][..], 4), (&[], 0)] {
        let mut trace = Run::spawn(["trace", EXEC, "-F", "jsonl"].iter().chain(required));
        trace.read_line();
        let Run { child, stdout, .. } = trace;
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
    }
}
