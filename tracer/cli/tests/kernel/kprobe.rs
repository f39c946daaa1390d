//! The binary `probe` with kprobes.

use crate::bystanders::{TracefsProbe, assert_tracers_agree, assert_undisturbed};
use crate::probe::busy::Busy;
use crate::probe::commands::{shell, writes};
use crate::probe::{
    EXEC, assert_failure, counts, events, json_lines, number, probe, stderr, stdout, succeed,
    trace_shell,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const OPEN: &str = "do_sys_openat2";
const PATH: &str = "/etc/hostname";

/// A shell script that opens /dev/null `count` times.
fn opens(count: u32) -> String {
    format!("i=0; while [ $i -lt {count} ]; do : </dev/null; i=$((i+1)); done")
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn three_opens_of_a_command_are_three_lines() {
    let args = ["trace", OPEN, "-M", "3", "-F", "jsonl", "--", "cat", PATH];
    let lines = json_lines(&succeed(&mut probe(args)));
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
        // A name that the process has not accessed yet may be paged out.
        let is_absent = args["filename"].is_null() && line["faults"][0] == "filename";
        let is_path = args["filename"].as_str().is_some_and(|name| name.starts_with('/'));
        assert!(is_absent || is_path, "{line}");
        assert!(args["how"].as_str().unwrap().starts_with("0xff"), "{line}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_thousand_opens_are_a_thousand_events() {
    let events = |count| events([OPEN], shell(&opens(count))).len();
    assert_eq!(events(1000) - events(0), 1000);
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_thousand_opens_of_a_running_process_are_a_thousand_events() {
    let output = trace_shell(&[OPEN], &opens(1000));
    assert_eq!(stdout(&output).lines().count(), 1000);
    let expected = "1000 events\nledger: attempted 1000 = handled 1000 + lost 0; complete";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn each_event_names_its_probe() {
    let exit = "tracepoint:sched:sched_process_exit";
    let args = ["trace", OPEN, EXEC, "rawtp:sched_process_fork", "vfs_read", exit, "-F", "jsonl"];
    let script = shell("cat /etc/hostname; cat /etc/hostname");
    let lines = json_lines(&probe(args).arg("--").args(script).output().unwrap());
    let count = |kind: &str, probe: &str| {
        lines.iter().filter(|line| line["type"] == kind && line["probe"] == probe).count()
    };
    assert_eq!(count("tracepoint", "sched:sched_process_exec"), 3);
    assert_eq!(count("rawtp", "sched_process_fork"), 2);
    // The trace may end before the shell's own exit is recorded.
    assert!((2..=3).contains(&count("tracepoint", "sched:sched_process_exit")));
    assert!(count("kprobe", OPEN) >= 6 && count("kprobe", "vfs_read") >= 4);
    let kinds: BTreeSet<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, BTreeSet::from(["kprobe", "rawtp", "tracepoint"]));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn the_tracer_does_not_trace_its_own_output() {
    let _other = Busy::repeat("echo > /dev/null");
    let output = succeed(&mut probe(["trace", "vfs_write", "-F", "jsonl", "-d", "500ms"]));
    let events = json_lines(&output);
    assert!(!events.is_empty() && events.iter().all(|line| line["comm"] != "probe"));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn functions_that_cannot_be_probed_are_explained() {
    let misspelt =
        "the kernel has no function of this name, or has inlined it everywhere; did you mean ";
    assert_failure(&mut probe(["trace", "do_sys_opnat2"]), misspelt);
    assert_failure(&mut probe(["trace", "do_sys_opnat2"]), OPEN);
    let list = std::fs::read_to_string("/sys/kernel/debug/kprobes/blacklist").unwrap();
    let name = list.lines().filter_map(|line| line.split_whitespace().nth(1)).find(|name| {
        // Assembler labels have no symbols.
        name.starts_with("kprobe") || name.starts_with("notify_die")
    });
    let name = name.expect("something of the kprobes themselves is on the blacklist");
    assert_failure(&mut probe(["trace", name]), "it is on the kprobe blacklist");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn nothing_stays_attached() {
    let attached = || {
        // Some are freed while they are listed.
        let programs = aya::programs::loaded_programs().filter_map(Result::ok);
        programs.filter(|program| program.name_as_str().unwrap().starts_with("kprobe_")).count()
    };
    let before = attached();
    succeed(&mut probe(["trace", OPEN, "-M1", "--", "cat", "/dev/null"]));
    assert_failure(&mut probe(["trace", OPEN, "no_such_function_at_all"]), "has no function");
    // The kernel frees some programs late.
    let start = Instant::now();
    while attached() > before {
        assert!(start.elapsed() < Duration::from_secs(20), "programs are still loaded");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn another_user_of_a_kprobe_sees_every_hit() {
    let function = "__x64_sys_getppid";
    let event = TracefsProbe::new("kprobe_events", "getppid", function);
    assert_undisturbed(&event.event(), function, || _ = rustix::process::getppid());
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn tracers_of_the_same_function_see_every_hit() {
    let file = tempfile::tempfile().unwrap();
    for provider in ["kprobe", "kretprobe", "fentry", "fexit"] {
        assert_tracers_agree(&format!("{provider}:do_truncate"), || file.set_len(1).unwrap());
    }
    assert_tracers_agree("ksyscall:getppid", || _ = rustix::process::getppid());
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_system_call_has_its_arguments() {
    let mut opened = events(["ksyscall:openat"], ["cat", PATH]);
    opened.retain(|event| event["args"]["filename"] == PATH);
    let [ours] = opened.as_slice() else { panic!("{opened:?}") };
    assert_eq!((&ours["type"], &ours["probe"]), (&"ksyscall".into(), &"openat".into()));
    assert_eq!((&ours["args"]["dfd"], &ours["args"]["mode"]), (&(-100).into(), &0.into()));

    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=3", "count=200"];
    let spec = "ksyscall:write(fd, size=count, data=buf:bytes[3])/count == 3 && comm == \"dd\"/";
    let written = events([spec], dd);
    assert_eq!(written.len(), 200);
    let expected = serde_json::json!({"fd": 1, "size": 3, "data": "000000"});
    assert!(written.iter().all(|event| event["args"] == expected), "{written:?}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_system_call_has_its_result() {
    let script = shell("cat /there/is/none; uname; true");
    let opened = events(["--ret", "ksyscall:openat", "ksyscall:uname"], script);
    let ours = opened.iter().find(|event| event["args"]["filename"] == "/there/is/none").unwrap();
    assert_eq!((&ours["type"], &ours["args"]["retval"]), (&"call".into(), &(-2).into()));
    assert_eq!(ours["errno"], "ENOENT");
    let names = serde_json::json!({"dfd": "AT_FDCWD", "flags": "O_RDONLY", "mode": "0"});
    assert_eq!(ours["names"], names);
    assert!(opened.iter().any(|event| event["probe"] == "uname" && event["comm"] == "uname"));
    assert!(number(ours, "latency") > 0);
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn patterns_of_system_calls_are_counted() {
    let (counts, printed) = counts(["ksyscall:*write*", "-x", "pwrite*"], writes(300));
    let expected = BTreeMap::from([("write".to_owned(), 300)]);
    assert_eq!(counts, BTreeMap::from([("ksyscall".to_owned(), expected)]), "{printed}");
    let expected = "system call of this name; did you mean `openat`";
    assert_failure(&mut probe(["trace", "ksyscall:opennat"]), expected);
}
