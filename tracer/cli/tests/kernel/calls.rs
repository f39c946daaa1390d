//! Entry and return in one event, compared with known calls.

use crate::probe::commands::{self, Readable, requested_work, shell, writes_on_one_cpu};
use crate::probe::{
    all_json_lines, assert_exit, assert_failure, events, json_lines, number, probe, stderr, trace,
};
use serde_json::{Value, json};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

/// Receives a datagram of ten bytes twice: first its length, with room for four bytes, and then all.
#[test]
#[ignore = "work for a test below"]
fn workload() {
    if requested_work() != "receive" {
        return;
    }
    let (one, other) = UnixDatagram::pair().unwrap();
    assert_eq!(one.send(b"0123456789").unwrap(), 10);
    let mut buffer = *b"................";
    for (flags, room) in [(libc::MSG_PEEK | libc::MSG_TRUNC, 4), (0, 16)] {
        // SAFETY: the buffer has that many bytes.
        let len = unsafe { libc::recv(other.as_raw_fd(), buffer.as_mut_ptr().cast(), room, flags) };
        assert_eq!(len, 10);
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_buffer_ends_where_the_call_has_filled_it() {
    let command = commands::workload("calls", "receive");
    let of = |spec| {
        let calls = calls(&[spec], &command);
        let read = |call: &Value| (call["args"]["ubuf"].clone(), number(call, "retval"));
        calls.iter().map(read).collect::<Vec<_>>()
    };
    for spec in ["ksyscall:recvfrom", "__sys_recvfrom(ubuf, retval)"] {
        assert_eq!(of(spec), [(json!("0123"), 10), (json!("0123456789"), 10)], "{spec}");
    }
    assert_eq!(of("ksyscall:recvfrom/ubuf == \"0123\"/").len(), 1);
}

/// The calls of a command.
pub(crate) fn calls(args: &[&str], command: &[String]) -> Vec<Value> {
    events(["--ret"].iter().chain(args), command)
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn arguments_result_and_latency_are_in_one_event() {
    let file = Readable::new(20 * 5000 + 300);
    let name = file.name();
    let read = "vfs_read(name=file->f_path.dentry->d_name.name:str, count, retval, latency)";
    let of = |predicate: &str| {
        let mut calls = calls(&[&format!("{read}{predicate}")], &file.reads(5000));
        calls.retain(|call| call["args"]["name"] == name);
        calls
    };
    let all = of("");
    let results: Vec<_> = all.iter().map(|event| number(event, "retval")).collect();
    assert_eq!(results, [[5000; 20].as_slice(), &[300, 0]].concat());
    for event in &all {
        assert_eq!((&event["type"], &event["args"]["count"]), (&json!("call"), &json!(5000)));
        assert!(number(event, "latency") > 0, "{event}");
    }
    // Predicates decided on entry, on return, and on both.
    for (predicate, count) in [
        (format!("name:str == \"{name}\""), 22),
        ("count == 5000 && retval < 5000".to_owned(), 2),
        ("count == 4999 && retval == 5000".to_owned(), 0),
        ("latency > 0 && count & 8 && comm == \"dd\"".to_owned(), 22),
    ] {
        let predicate = predicate.replace("name:str", "file->f_path.dentry->d_name.name:str");
        assert_eq!(of(&format!("/{predicate}/")).len(), count, "{predicate}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn without_fields_a_call_has_all_arguments() {
    let path = format!("/tmp/{}", "long/".repeat(180));
    let script = format!("true </etc/hostname; true <{path}; true");
    let events = calls(&["do_sys_openat2"], &shell(&script));
    let opened = |name: &str| {
        let found = events.iter().find(|event| event["args"]["filename"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {events:#?}"))
    };
    let found = opened("/etc/hostname");
    let names: Vec<_> = found["args"].as_object().unwrap().keys().collect();
    // Sorted by name, because the JSON parser sorts them.
    assert_eq!(names, ["dfd", "filename", "how", "latency", "retval"]);
    assert_eq!(found["args"]["dfd"], -100);
    assert!(found["args"]["retval"].as_i64().unwrap() >= 0, "{found}");
    // So long a path is stored in several parts.
    let missing = opened(&path);
    assert_eq!((&missing["args"]["retval"], &missing["errno"]), (&json!(-2), &json!("ENOENT")));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn the_latency_of_a_sleep_is_its_duration() {
    let sleeps = "sleep 1; sleep 0.01; sleep 1";
    let longer = |latency: &str| calls(&["--longer", latency, "hrtimer_nanosleep"], &shell(sleeps));
    let slow = longer("800ms");
    // Generous limits for slow machines, on which the short one may be long, too.
    let long = slow.iter().map(|event| number(event, "latency"));
    let long = long.filter(|latency| (1_000_000_000..20_000_000_000).contains(latency)).count();
    assert!((2..=3).contains(&slow.len()) && long >= 2, "{slow:#?}");
    assert_eq!(longer("1us").len(), 3);
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn nested_calls_have_separate_events() {
    let probes = ["ksys_read(count, retval, latency)", "vfs_read(count, retval, latency)"];
    let events = calls(&probes, &["cat", "/etc/hostname"].map(str::to_owned));
    let of = |probe| events.iter().filter(move |event| event["probe"] == probe);
    assert!(of("ksys_read").count() > 0, "{events:#?}");
    for outer in of("ksys_read") {
        let span = |event: &Value| {
            let end = event["time"].as_u64().unwrap();
            (end - number(event, "latency"), end)
        };
        let (args, (begin, end)) = (&outer["args"], span(outer));
        let is_inner = |inner: &&Value| span(inner).0 >= begin && span(inner).1 <= end;
        let inner: Vec<_> = of("vfs_read").filter(is_inner).map(|event| &event["args"]).collect();
        assert_eq!(inner.len(), 1, "{outer} {events:#?}");
        assert_eq!((&inner[0]["count"], &inner[0]["retval"]), (&args["count"], &args["retval"]));
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn what_is_not_a_call_is_refused() {
    for spec in ["kr:vfs_read", "t:sched:sched_switch", "rt:sys_enter"] {
        let expected = "calls are those of a function of the kernel (kprobe:FUNCTION)";
        assert_failure(&mut probe(["trace", "-r", spec]), expected);
    }
    for spec in ["vfs_read(latency)", "kr:vfs_read(latency)", "vfs_read(count, retval)"] {
        assert_exit(&mut probe(["trace", spec]), 1, "--ret");
    }
    let once = events(["vfs_read"], ["cat", "/etc/hostname"]);
    assert!(once.iter().all(|event| event["args"]["latency"].is_null()));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn one_call_in_n_is_reported() {
    let args = ["--ret", "--sample", "1/100", "vfs_read/count == 1/"];
    let output = trace(args, writes_on_one_cpu(501));
    assert_eq!(json_lines(&output).len(), 6, "{}", stderr(&output));
    let ledger = all_json_lines(&output).pop().unwrap();
    assert_eq!(ledger["missed"][0]["withheld"], 495, "{ledger}");
    assert_eq!(
        (&ledger["attempted"], &ledger["verdict"]),
        (&6.into(), &"complete".into()),
        "{ledger}"
    );
}
