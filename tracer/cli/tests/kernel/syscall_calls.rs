//! System calls with their results and durations, by the tracepoints at their entries and exits, compared with known calls and
//! with strace.

use crate::bystanders::Nobody;
use crate::calls::calls;
use crate::calls_latency::{latencies, longer};
use crate::probe::commands::{self, Readable, requested_work, shell, writes};
use crate::probe::{all_json_lines, events, has_kprobes, json_lines, number, probe, stderr, trace};
use probe_tracer::{Target, Tracer};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read, Seek, Write};
use std::process::Command;
use std::{ptr, thread};

/// Makes calls that fill memory.
#[test]
#[ignore = "work for a test below"]
fn workload() {
    if requested_work() != "fill" {
        return;
    }
    rustix::thread::set_name(c"filled").unwrap();
    let _pipe = io::pipe().unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"hello\0world").unwrap();
    file.rewind().unwrap();
    let mut memory = [b'-'; 100];
    assert_eq!(file.read(&mut memory).unwrap(), 11);
    rustix::system::uname();
    assert_eq!(Command::new("sh").args(["-c", "exit 7"]).status().unwrap().code(), Some(7));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_a_call_fills_is_read_at_its_return() {
    /// What the file has, in hexadecimal.
    const WHOLE: &str = "68656c6c6f00776f726c64";
    let behind = "2d".repeat(89);
    let mut hooks = vec!["tracepoint:syscalls:sys_enter_"];
    hooks.extend(has_kprobes().then_some("ksyscall:"));
    for hook in hooks {
        let filled = |call: &str| {
            let spec = format!("{hook}{call}");
            let mut calls = calls(&[&spec], &commands::workload("syscall_calls", "fill"));
            calls.retain(|call| call["comm"] == "filled");
            let [call] = calls.as_slice() else { panic!("{spec}: {calls:#?}") };
            call["args"]["it"].as_str().unwrap_or_else(|| panic!("{spec}: {call}")).to_owned()
        };
        for (call, expected) in [
            ("read(it=buf:bytes[7])/retval == 11/", "68656c6c6f0077"),
            ("read(it=buf:ustr[count])/retval == 11/", "hello"),
            ("read(it=buf:bytes[count])/retval == 11/", &format!("{WHOLE}{behind}")),
            ("read(it=buf)/count == 100 && buf:bytes[7] == \"hello\\0w\"/", WHOLE),
            ("newuname(it=name:ustr)", "Linux"),
            ("wait4(it=stat_addr:bytes[4])/stat_addr:bytes[2] == \"\\0\\x07\"/", "00070000"),
        ] {
            assert_eq!(filled(call), expected, "{hook}{call}");
        }
        // Two descriptors, one after the other.
        let pair = filled("pipe2(it=fildes:bytes[8])");
        let [one, other] = [&pair[..2], &pair[8..10]].map(|byte| u8::from_str_radix(byte, 16));
        let one = one.unwrap();
        assert!(one > 2 && other == Ok(one + 1), "{hook}: {pair}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn arguments_result_and_latency_are_in_one_event() {
    let file = Readable::new(20 * 5000 + 300);
    let read = "tracepoint:syscalls:sys_enter_read";
    let of = |predicate: &str| {
        let spec = format!("{read}(count, buf, retval, latency){predicate}");
        let mut calls = calls(&[&spec], &file.reads(5000));
        calls.retain(|call| call["args"]["count"] == 5000);
        calls
    };
    let all = of("");
    let results: Vec<_> = all.iter().map(|call| number(call, "retval")).collect();
    assert_eq!(results, [[5000; 20].as_slice(), &[300, 0]].concat());
    for call in &all {
        assert_eq!((&call["type"], &call["comm"]), (&json!("call"), &json!("dd")));
        assert!(number(call, "latency") > 0, "{call}");
        // What the call has written, and nothing behind it.
        let read = number(call, "retval") as usize;
        let text = call["args"]["buf"].as_str().unwrap();
        assert!(text.len() <= read && text.bytes().all(|byte| byte == b'x'), "{call}");
        assert_eq!(text.is_empty(), read == 0, "{call}");
    }
    // Predicates decided at the entry, at the exit, and at both.
    for (predicate, count) in [
        ("count == 5000", 22),
        ("retval < 5000 && count == 5000", 2),
        ("count == 4999 && retval == 5000", 0),
        ("latency > 0 && comm == \"dd\" && count & 8", 22),
        ("buf ~ \"xxxx*\" && count == 5000", 21),
    ] {
        assert_eq!(of(&format!("/{predicate}/")).len(), count, "{predicate}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn without_fields_a_call_has_its_arguments_and_its_result() {
    let path = format!("/tmp/{}", "long/".repeat(180));
    let script = format!("true </etc/hostname; true <{path}; true");
    let calls = calls(&["tracepoint:syscalls:sys_enter_openat"], &shell(&script));
    let opened = |name: &str| {
        let found = calls.iter().find(|call| call["args"]["filename"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {calls:#?}"))
    };
    let found = opened("/etc/hostname");
    let names: Vec<_> = found["args"].as_object().unwrap().keys().collect();
    // Sorted by name, because the JSON parser sorts them.
    assert_eq!(names, ["dfd", "filename", "flags", "latency", "mode", "retval"]);
    assert!(found["args"]["retval"].as_i64().unwrap() >= 0, "{found}");
    // So long a path is stored in several parts.
    let missing = opened(&path);
    assert_eq!((&missing["args"]["retval"], &missing["errno"]), (&json!(-2), &json!("ENOENT")));
}

/// The name of each call, and its result or its error, in a log of strace: `17 close(9) = -1 EBADF (Bad file descriptor)`.
fn of_log(log: &str) -> Vec<(String, String)> {
    let call = |line: &str| {
        let (name, rest) = line.split_once(' ')?.1.trim_start().split_once('(')?;
        let mut result = rest.rsplit_once(" = ")?.1.split(' ');
        let number = result.next()?;
        let result = if number == "-1" { result.next()? } else { number };
        Some((name.to_owned(), result.to_owned()))
    };
    log.lines().filter_map(call).collect()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn results_are_those_that_strace_prints() {
    const CALLS: [&str; 7] =
        ["access", "close", "fadvise64", "newfstatat", "openat", "read", "write"];
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let names = format!("trace={}", CALLS.join(","));
    let command = ["cat", "/etc/hostname", "/nowhere", "/"];
    // The last file is a directory, and the one before it does not exist.
    let strace = ["-f", "-o", log.to_str().unwrap(), "-e", &names];
    let output = Command::new("strace").args(strace).args(command).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let theirs = of_log(&fs::read_to_string(log).unwrap());
    for error in ["ENOENT", "EISDIR"] {
        assert!(theirs.iter().any(|(_, result)| result == error), "{theirs:?}");
    }

    let named = CALLS.map(|name| format!("tracepoint:syscalls:sys_enter_{name}"));
    let any = ["tracepoint:raw_syscalls:sys_enter(id, retval)".to_owned()];
    for specs in [&named[..], &any] {
        let mut run = probe(["trace", "--ret", "-F", "jsonl"]);
        let output = run.args(specs).arg("--").args(command).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let calls = json_lines(&output).into_iter().filter_map(|call| {
            let name = match call["names"]["id"].as_str() {
                Some(name) => name.to_owned(),
                None => call["probe"].as_str()?.strip_prefix("syscalls:sys_enter_")?.to_owned(),
            };
            let is_meant = CALLS.contains(&&*name) && call["comm"] == "cat";
            let result = || match call["errno"].as_str() {
                Some(error) => error.to_owned(),
                None => call["args"]["retval"].to_string(),
            };
            is_meant.then(|| (name, result()))
        });
        let ours: Vec<_> = calls.collect();
        assert_eq!(ours, theirs, "{specs:?}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_fork_returns_once_and_an_execution_in_the_new_program() {
    let script = "/bin/true & /bin/true & wait; exec /bin/true";
    let spec = "tracepoint:syscalls:sys_enter_";
    let forks = ["clone", "clone3", "fork", "vfork"].map(|name| format!("{spec}{name}(retval)"));
    let executions = format!("{spec}execve(filename, retval)");
    let specs: Vec<_> = forks.iter().map(String::as_str).chain([&*executions]).collect();
    let all = calls(&specs, &shell(script));
    let (executions, forks): (Vec<_>, Vec<_>) =
        all.iter().partition(|call| call["probe"] == "syscalls:sys_enter_execve");
    let files: Vec<_> = executions
        .iter()
        .filter(|call| call["args"]["retval"] == 0)
        .map(|call| call["args"]["filename"].as_str().unwrap())
        .collect();
    assert_eq!(files.iter().filter(|file| **file == "/bin/true").count(), 3, "{all:#?}");
    assert!(forks.len() == 2 && forks.iter().all(|call| number(call, "retval") > 0), "{all:#?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_arguments_of_a_program_are_named_by_index() {
    let command = shell("/bin/true one two; exec /bin/true");
    let mut calls_of = vec!["tracepoint:syscalls:sys_enter_execve"];
    if has_kprobes() {
        calls_of.push("ksyscall:execve");
    }
    for call in calls_of {
        let arguments = "argv[0], argv[1], argv[2], argv[3]";
        let spec = format!("{call}({arguments}, retval)/filename == \"/bin/true\"/");
        let calls = calls(&[&spec], &command);
        let arguments: Vec<_> = calls
            .iter()
            .map(|call| [0, 1, 2, 3].map(|n| call["args"][format!("argv[{n}]")].clone()))
            .collect();
        let [first, second] = arguments.as_slice() else { panic!("{spec}: {calls:#?}") };
        assert_eq!(*first, [json!("/bin/true"), json!("one"), json!("two"), Value::Null], "{spec}");
        assert_eq!(second[..2], [json!("/bin/true"), Value::Null], "{spec}");
        let second = format!("{call}/argv[1] == \"one\"/");
        assert_eq!(events([&*second], &command).len(), 1, "{second}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn calls_that_never_return_are_counted() {
    let output = trace(["--ret", "tracepoint:syscalls:sys_enter_exit_group"], ["true"]);
    let lines = all_json_lines(&output);
    let [_, ledger] = lines.as_slice() else { panic!("{lines:#?}") };
    assert_eq!(ledger["missed"][0]["no_return"], 1, "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn calls_that_never_return_take_no_room() {
    const THREADS: u64 = 200;
    let calls = ["nanosleep", "exit"].map(|name| format!("tracepoint:syscalls:sys_enter_{name}"));
    let tracer = calls.iter().fold(Tracer::builder(), |all, call| all.probe(call.parse().unwrap()));
    let tracer = tracer.target(Target::Process(std::process::id())).calls().keep_calls(4);
    let tracer = tracer.attach().unwrap();
    let sleeping = thread::spawn(|| {
        let long = libc::timespec { tv_sec: 3, tv_nsec: 0 };
        // SAFETY: the time lives during the call, and what remains of it is not asked for.
        unsafe {
            libc::syscall(libc::SYS_nanosleep, &raw const long, ptr::null::<libc::timespec>())
        }
    });
    (0..THREADS).for_each(|_| thread::spawn(|| ()).join().unwrap());
    assert_eq!(sleeping.join().unwrap(), 0);
    let ledger = tracer.close(&mut Nobody).unwrap();
    let [slept, ended] = ledger.missed.as_slice() else { panic!("{ledger}") };
    assert_eq!((slept.calls(), ended.no_room), (0, 0), "{ledger}");
    assert!(ended.no_return >= THREADS, "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn calls_of_several_threads_are_timed() {
    let latency = |args: &[&str], command: &[String]| latencies(args, command).0;
    let sleep = "tracepoint:syscalls:sys_enter_clock_nanosleep";
    let lines = latency(&[sleep], &shell("sleep 0.6 & sleep 0.7 & sleep 0.01 & wait"));
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((&line["calls"], longer(line, 1 << 29)), (&json!(3), 2), "{line}");
    // A pattern times each system call.
    let lines = latency(&["tracepoint:syscalls:sys_enter_wr*"], &writes(5000));
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let written = ("syscalls:sys_enter_write", 5000);
    assert_eq!((&line["probe"], &line["calls"]), (&json!(written.0), &json!(written.1)), "{line}");
    let predicate = "tracepoint:syscalls:sys_enter_write/count == 1 && retval == 1/";
    assert_eq!(latency(&[predicate], &writes(5000))[0]["calls"], 5000);
    let predicate = "tracepoint:syscalls:sys_enter_write/retval < 0/";
    assert_eq!(latency(&[predicate], &writes(5000)), [] as [Value; 0]);
}
