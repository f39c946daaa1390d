//! How a trace ends, and what happens to its command.

use crate::probe::unprivileged::where_proc_hides;
use crate::probe::{EXEC, Run, binary, ledger, probe, stderr, stdout, succeed};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A command that runs for a minute, and says so when it ends by itself.
const MINUTE: [&str; 3] = ["sh", "-c", "sleep 60 >/dev/null 2>&1; echo finished >&2"];

/// Other architectures have `openat` only.
#[cfg(target_arch = "x86_64")]
const SYS_OPEN: libc::c_long = libc::SYS_open;
#[cfg(not(target_arch = "x86_64"))]
const SYS_OPEN: libc::c_long = libc::SYS_openat;

fn start(args: &[&str], command: &[&str]) -> Child {
    let mut run = probe(args.iter().chain(&["--"]).chain(command));
    run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_status_of_a_command_that_exits_after_the_limit_is_not_that_of_the_trace() {
    for _ in 0..5 {
        let trace = ["trace", "rawtp:sys_enter", "-M", "1"];
        // It exits while the rest of the trace is read.
        let ended = start(&trace, &["sh", "-c", "exit 7"]).wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_limit_ends_the_trace_before_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("recording");
    let recording = recording.to_str().unwrap();
    let runs = [
        &["trace", "rawtp:sys_enter", "-M", "1"][..],
        &["trace", EXEC, "-d", "300ms"],
        &["record", "-o", recording, "rawtp:sys_enter", "-M", "1"],
        &["count", EXEC, "-d", "300ms"],
        &["stack", EXEC, "-d", "300ms"],
        &["sample", "-d", "300ms"],
    ];
    // All of them wait at the same time.
    let children = runs.map(|args| start(args, &MINUTE));
    for (args, child) in runs.iter().zip(children) {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("finished"), "{args:?}: {}", stderr(&output));
        if args.contains(&"-M") {
            assert_eq!(ledger(&output).handled, 1, "{args:?}: {}", stderr(&output));
        }
    }
    succeed(&mut probe(["replay", recording]));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_signal_ends_the_wait_for_the_reader_of_a_fifo() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .unwrap();
    let fifo = fifo.to_str().unwrap();
    for args in [&["record", EXEC, "-o", fifo][..], &["sample", "-o", fifo]] {
        let run = Run::spawn(args);
        let opens = [libc::SYS_openat, SYS_OPEN].map(|call| format!("{call} "));
        let waits = run.wait_for_threads("syscall", |calls| {
            calls.iter().any(|one| opens.iter().any(|call| one.starts_with(call)))
        });
        assert!(waits, "{args:?} does not wait");
        // SIGINT is ignored in the background of a shell.
        run.signal(Signal::TERM);
        let output = run.finish();
        assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{args:?}: {}", stderr(&output));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_recording_is_replaced_only_by_a_trace_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (path, file) = (dir.path().join("recording"), dir.path().join("file"));
    let path = path.to_str().unwrap();
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let several = format!("{},4194304", std::process::id());
    for (args, why) in [
        (&["--", "no-such-program"][..], "No such file"),
        (&["--", "/no/such/program"], "No such file"),
        (&["--", file], "Permission denied"),
        (&["--", "/tmp"], "Permission denied"),
        (&["-p", &several], "no process"),
        (&["-t", "4194304"], "thread 4194304"),
    ] {
        std::fs::write(path, "before").unwrap();
        let output = probe(["record", "-o", path, EXEC]).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr(&output).contains(why), "{args:?}: {}", stderr(&output));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "before", "{args:?}");
    }
}

/// A thread of this process that waits until the sender is dropped, and its id.
fn idle_thread() -> (String, Sender<()>, JoinHandle<()>) {
    let (go, wait) = channel::<()>();
    let (id, its_id) = channel();
    let thread = thread::spawn(move || {
        id.send(rustix::thread::gettid()).unwrap();
        // Until the other end is gone.
        let _ = wait.recv();
    });
    (its_id.recv().unwrap().as_raw_nonzero().to_string(), go, thread)
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_thread_is_not_traced_as_a_process() {
    let (tid, go, thread) = idle_thread();
    let output = probe(["trace", EXEC, "-p", &tid]).output().unwrap();
    let expected = format!("{tid} is a thread of process {}", std::process::id());
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    drop(go);
    thread.join().unwrap();
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_thread_is_watched_where_proc_hides_it() {
    let mut sleeping = Command::new("sleep").arg("0.7").spawn().unwrap();
    let tid = sleeping.id().to_string();
    let output = where_proc_hides(["trace", EXEC, "-t", &tid]).output().unwrap();
    // It ends with the thread, and not before.
    assert!(output.status.success(), "{}", stderr(&output));
    let has_exited = std::fs::read_to_string(format!("/proc/{tid}/stat")).unwrap();
    assert!(has_exited.contains(") Z "), "{has_exited}");
    sleeping.wait().unwrap();
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_error_ends_the_command_too() {
    for args in [&["count", EXEC][..], &["latency", "uprobe:libc:getenv"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut run = probe(args.iter().chain(&["-d", "300ms", "--"]).chain(&MINUTE));
        let begun = Instant::now();
        let output = run.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        // The command has standard error, too, so this ends with it.
        let output = output.wait_with_output().unwrap();
        let errors = stderr(&output);
        assert!(begun.elapsed() < Duration::from_secs(30), "{args:?}: {errors}");
        assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
        assert!(errors.contains("cannot write") && errors.contains(" of 1 "), "{args:?}: {errors}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_command_runs_only_once_samples_are_taken() {
    for _ in 0..5 {
        let args = ["sample", "-a", "-e", "sched:sched_process_exec", "-f", "folded", "--", "true"];
        let printed = stdout(&succeed(&mut probe(args)));
        assert!(printed.lines().any(|line| line.starts_with("true;")), "{printed}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn sigint_to_the_tracer_alone_ends_the_trace() {
    let mut run = Run::start(["trace", EXEC, "--"].iter().chain(&MINUTE));
    // The exec event shows that the command runs.
    run.read_line();
    run.signal(Signal::INT);
    let output = run.finish();
    assert!(!stderr(&output).contains("finished"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(128 + 15), "{}", stderr(&output));
    ledger(&output);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_trace_of_a_thread_ends_with_it() {
    let (tid, go, thread) = idle_thread();
    let mut run = Run::start(["trace", "rawtp:sys_enter", "-F", "jsonl", "-t", &tid]);
    drop(go);
    run.read_line();
    let printed = stdout(&run.finish());
    thread.join().unwrap();
    let of_others = |line: &&str| !line.contains(&format!("\"tid\":{tid},"));
    let events = printed.lines().filter(|line| line.contains("\"time\":"));
    assert_eq!(events.filter(of_others).count(), 0, "{printed}");
    let gone = probe(["trace", "rawtp:sys_enter", "-t", &tid]).output().unwrap();
    assert!(stderr(&gone).contains(&format!("there is no thread {tid}")), "{}", stderr(&gone));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_closed_output_ends_the_trace_even_without_events() {
    let mut run = Run::start(["trace", EXEC, "--"].iter().chain(&MINUTE));
    run.wait_for_line("/sleep");
    let Run { child, stdout, .. } = run;
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert!(!stderr(&output).contains("finished"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    ledger(&output);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_option_chooses_what_happens_to_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    // It runs for a minute, or until there is this file.
    let script = format!(
        "i=0; while [ $i -lt 600 ] && ! [ -e {0} ]; do sleep 0.1; i=$((i+1)); done; [ -e {0} ] && echo finished >&2",
        go.display()
    );
    let args = ["trace", "rawtp:sys_enter", "-M1", "--at-end", "leave"];
    let mut leave = start(&args, &["sh", "-c", &script]);
    let exit = ["sh", "-c", "sleep 1; exit 7"];
    let wait = start(&["trace", "rawtp:sys_enter", "-M1", "--at-end", "wait"], &exit);
    assert!(leave.wait().unwrap().success());
    std::fs::write(&go, "").unwrap();
    // Standard error ends with its last writer.
    let left = leave.wait_with_output().unwrap();
    assert!(stderr(&left).contains("finished"), "{}", stderr(&left));
    let waited = wait.wait_with_output().unwrap();
    assert_eq!(waited.status.code(), Some(7), "{}", stderr(&waited));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn signals_in_quick_succession_count_as_one() {
    let dir = tempfile::tempdir().unwrap();
    for (n, signal) in [Signal::INT, Signal::TERM, Signal::INT, Signal::TERM].iter().enumerate() {
        let recording = dir.path().join(n.to_string());
        let run = Run::spawn(["record", "rawtp:sys_enter", "-o", recording.to_str().unwrap()]);
        run.wait_for_thread("signals");
        let pid = Pid::from_raw(run.child.id() as i32).unwrap();
        for _ in 0..20 {
            // It fails once the tracer has exited.
            let _ = kill_process(pid, *signal);
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = run.finish();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        ledger(&output);
        succeed(probe(["replay"]).arg(&recording));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn attaching_many_probes_can_be_interrupted() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let run = Run::spawn(["count", "tracepoint:syscalls:*", "--no-limit", "--", "true"]);
        // The bit of SIGINT, number 2, is set once it has a handler.
        let handles = |status: &String| {
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
        };
        assert!(run.wait_for_threads("status", |threads| threads.iter().any(handles)));
        run.signal(signal);
        let output = run.finish();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert_eq!(stdout(&output) + &stderr(&output), "");
    }
}

/// The processes that detach probes.
fn detaching() -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|one| one.file_name().to_str()?.parse().ok());
    let comm = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
    pids.filter(|pid| comm(pid).is_ok_and(|comm| comm == "probe-detach\n")).collect()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn another_process_detaches_many_probes() {
    let before = detaching();
    // What `probe` leaves behind becomes a child of this process: it is there until it is waited for, even if it has ended.
    set_child_subreaper(Some(getpid())).unwrap();
    let run = ["count", "tracepoint:syscalls:sys_enter_s*", "--", "sh", "-c", "exit 3"];
    // This reads standard output and standard error to their ends.
    let output = probe(run).output().unwrap();
    set_child_subreaper(None).unwrap();
    let after = detaching();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let new: Vec<_> = after.iter().filter(|pid| !before.contains(pid)).collect();
    let [&left] = new[..] else { panic!("{before:?} {after:?}") };
    let left = Pid::from_raw(left.cast_signed());
    let (_, status) = waitpid(left, WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0), "{status:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_tracer_may_be_stopped_and_continued_while_it_loads_programs() {
    for _ in 0..5 {
        let mut command = Command::new(binary());
        command.args(["count", "rawtp:sched_*", "--", "true"]).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        for pause in 0..60 {
            if child.try_wait().unwrap().is_some() {
                break;
            }
            kill_process(pid, Signal::STOP).unwrap();
            kill_process(pid, Signal::CONT).unwrap();
            std::thread::sleep(Duration::from_millis(pause % 4));
        }
        let mut printed = String::new();
        child.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
        assert!(child.wait().unwrap().success(), "{printed}");
    }
}
