//! The names of values: constants of system calls, and what the kernel's own formats say.

use crate::probe::commands::{requested_work, workload as workload_of};
use crate::probe::{assert_exit, events, json_lines, printed, probe, stdout, succeed};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// Nothing of this name exists.
const NONE: &str = "/probe-test-none/none";

const PROBES: [&str; 6] = [
    "tracepoint:syscalls:sys_enter_openat(dfd, filename, flags)/flags & O_EXCL/",
    "tracepoint:syscalls:sys_exit_openat/ret == -ENOENT/",
    "tracepoint:syscalls:sys_enter_connect",
    "tracepoint:syscalls:sys_enter_kill(sig)/sig == SIGCONT/",
    "tracepoint:sched:sched_switch(prev_state)/prev_state == S/",
    "tracepoint:timer:hrtimer_start(mode, function)/mode <= HRTIMER_MODE_REL/",
];

/// Does the requested work.
#[test]
#[ignore = "what the others trace: cargo xtask test"]
fn workload() {
    if requested_work().is_empty() {
        return;
    }
    // The kernel may withhold single hits of tracepoints from programs.
    for _ in 0..10 {
        calls();
    }
}

/// Makes the calls, of which all but the first and the signal fail.
fn calls() {
    rustix::system::uname();
    let flags = MountFlags::BIND | MountFlags::RDONLY;
    mount("probe-test", NONE, "tmpfs", flags, None).unwrap_err();
    unmount(NONE, UnmountFlags::DETACH).unwrap_err();
    OpenOptions::new().write(true).create_new(true).open(NONE).unwrap_err();
    for address in ["127.0.0.1:9", "[::1]:9"] {
        drop(TcpStream::connect(address));
    }
    UnixStream::connect(NONE).unwrap_err();
    kill_process(getpid(), Signal::CONT).unwrap();
    thread::sleep(Duration::from_millis(2));
}

/// The events of a probe.
fn of<'e>(events: &'e [Value], probe: &str) -> Vec<&'e Value> {
    let events = events.iter().filter(|event| event["probe"] == *probe);
    events.collect()
}

/// What the values of a field of these events mean. There is at least one event.
fn names<'e>(events: &[&'e Value], field: &str) -> BTreeSet<&'e str> {
    assert!(!events.is_empty());
    events.iter().map(|event| event["names"][field].as_str().unwrap_or("nothing")).collect()
}

/// Asserts that a field of these events has a value, which has a name.
#[track_caller]
fn assert_named(events: &[&Value], field: &str, value: i64, name: &str) {
    assert_eq!(names(events, field), BTreeSet::from([name]), "{events:#?}");
    assert!(events.iter().all(|event| event["args"][field] == value), "{events:#?}");
}

fn check(events: &[Value]) {
    let mut opened = of(events, "syscalls:sys_enter_openat");
    opened.retain(|event| event["args"]["filename"] == NONE);
    assert_named(&opened, "dfd", -100, "AT_FDCWD");
    assert_named(&opened, "flags", 0x800c1, "O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC");
    let failed = of(events, "syscalls:sys_exit_openat");
    assert!(!failed.is_empty() && failed.iter().all(|one| one["errno"] == "ENOENT"));
    let connected = names(&of(events, "syscalls:sys_enter_connect"), "uservaddr");
    let path = format!("\"{NONE}\"");
    assert_eq!(connected, BTreeSet::from(["127.0.0.1:9", "[::1]:9", &path]));
    assert_named(&of(events, "syscalls:sys_enter_kill"), "sig", 18, "SIGCONT");
    assert_named(&of(events, "sched:sched_switch"), "prev_state", 1, "S");
    let timers = of(events, "timer:hrtimer_start");
    assert!(names(&timers, "function").contains("hrtimer_wakeup"), "{timers:#?}");
    assert!(names(&timers, "mode").iter().all(|mode| ["ABS", "REL"].contains(mode)));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn numbers_have_names_in_a_trace_and_in_its_recording() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace").to_str().unwrap().to_owned();
    let mut record = probe(["record", "-o", &path]);
    succeed(record.args(PROBES).arg("--").args(workload_of("values", "calls")));
    check(&json_lines(&succeed(&mut probe(["replay", &path, "-F", "jsonl"]))));
    let table = printed(["replay", &path]);
    let expected = [
        format!("dfd=AT_FDCWD filename=\"{NONE}\" flags=O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC\n"),
        "uservaddr=127.0.0.1:9 ".to_owned(),
        "ret=-2 ENOENT\n".to_owned(),
        "prev_state=S\n".to_owned(),
        "function=hrtimer_wakeup\n".to_owned(),
    ];
    for expected in expected {
        assert!(table.contains(&expected), "{expected}: {table}");
    }
    let raw = printed(["replay", &path, "--raw-values"]);
    for expected in
        [&format!("dfd=-100 filename=\"{NONE}\" flags=524481\n"), "ret=-2\n", "sig=18\n"]
    {
        assert!(raw.contains(expected), "{expected}: {raw}");
    }
    let lines = stdout(&succeed(&mut probe(["replay", &path, "--raw-values", "-F", "jsonl"])));
    assert!(!lines.contains("\"names\"") && !lines.contains("\"errno\""), "{lines}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn system_calls_have_the_names_of_their_manual_pages() {
    let probes = ["uname", "mount", "umount2"].map(|call| format!("t:syscalls:sys_enter_{call}"));
    let also = ["t:syscalls:sys_exit_umount2", PROBES[5]];
    let all = probes.iter().map(String::as_str).chain(also);
    let events = events(all, workload_of("values", "calls"));
    assert!(!of(&events, "syscalls:sys_enter_uname").is_empty(), "{events:#?}");
    let mounted = of(&events, "syscalls:sys_enter_mount");
    assert_named(&mounted, "flags", 0x1001, "MS_RDONLY|MS_BIND");
    for mounted in mounted {
        let strings = ["dev_name", "dir_name", "type"].map(|name| mounted["args"][name].as_str());
        assert_eq!(strings, [Some("probe-test"), Some(NONE), Some("tmpfs")]);
    }
    let unmounted = of(&events, "syscalls:sys_enter_umount2");
    assert_named(&unmounted, "flags", 2, "MNT_DETACH");
    assert!(unmounted.iter().all(|event| event["args"]["name"] == NONE), "{unmounted:#?}");
    let failed = of(&events, "syscalls:sys_exit_umount2");
    assert!(!failed.is_empty() && failed.iter().all(|event| event["errno"] == "ENOENT"));
    // A live trace looks up functions, too.
    let timers = names(&of(&events, "timer:hrtimer_start"), "function");
    assert!(timers.contains("hrtimer_wakeup"), "{events:#?}");
    assert_eq!(
        printed(["list", "t:syscalls:sys_enter_umount2"]),
        "tracepoint:syscalls:sys_enter_umount\n"
    );
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_unknown_constant_is_an_error_with_a_suggestion() {
    for (spec, expected) in [
        (
            "t:syscalls:sys_enter_kill/sig == SIGKIL/",
            "unknown constant or field SIGKIL; did you mean `SIGKILL`",
        ),
        ("t:syscalls:sys_exit_openat/ret == ENOENT/", "compare with -ENOENT"),
        ("t:sched:sched_switch/prev_state == Q/", "unknown constant or field Q"),
        ("t:syscalls:sys_enter_openat/filename == NULL/", "its address is filename:x64"),
    ] {
        assert_exit(&mut probe(["trace", spec]), 1, expected);
    }
}
