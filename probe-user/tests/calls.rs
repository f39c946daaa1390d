//! Entry and return in one event, beside what is known to have happened.

mod probe;

use probe::{assert_failure, events, json_lines, probe, stderr};
use serde_json::{Value, json};
use std::io::Write;

/// A file of so many bytes, that `dd` reads in pieces.
fn file(bytes: usize) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().prefix("read-me-").tempfile_in(".").unwrap();
    file.write_all(&vec![b'x'; bytes]).unwrap();
    file
}

/// The events of a command, and what is said of missed calls.
fn calls(args: &[&str], command: &[&str]) -> (Vec<Value>, String) {
    let mut run = probe(["trace", "-F", "jsonl", "--ret"]);
    let output = run.args(args).arg("--").args(command).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(" + lost 0; complete"), "{said}");
    (json_lines(&output), said)
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn arguments_result_and_latency_are_in_one_event() {
    let file = file(20 * 5000 + 300);
    let name = file.path().file_name().unwrap().to_str().unwrap();
    let input = format!("if={}", file.path().display());
    let dd = ["dd", &input, "of=/dev/null", "bs=5000"];
    let read = "vfs_read(name=file->f_path.dentry->d_name.name:str, count, retval, latency)";
    let of = |predicate: &str| {
        let (events, said) = calls(&[&format!("{read}{predicate}")], &dd);
        let is_ours = |event: &Value| event["args"]["name"] == name;
        (events.into_iter().filter(is_ours).collect::<Vec<_>>(), said)
    };
    let (all, said) = of("");
    let results: Vec<_> =
        all.iter().map(|event| event["args"]["retval"].as_u64().unwrap()).collect();
    assert_eq!(results, [[5000; 20].as_slice(), &[300, 0]].concat(), "{said}");
    for event in &all {
        assert_eq!((&event["type"], &event["args"]["count"]), (&json!("call"), &json!(5000)));
        assert!(event["args"]["latency"].as_u64().unwrap() > 0, "{event}");
    }
    // Decided where it is entered, where it returns, and at both.
    for (predicate, count) in [
        (format!("name:str == \"{name}\""), 22),
        ("count == 5000 && retval < 5000".to_owned(), 2),
        ("count == 4999 && retval == 5000".to_owned(), 0),
        ("latency > 0 && count & 8 && comm == \"dd\"".to_owned(), 22),
    ] {
        let predicate = predicate.replace("name:str", "file->f_path.dentry->d_name.name:str");
        assert_eq!(of(&format!("/{predicate}/")).0.len(), count, "{predicate}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn without_fields_a_call_has_all_arguments() {
    let path = format!("/tmp/{}", "long/".repeat(180));
    let (events, _) = calls(
        &["do_sys_openat2"],
        &["sh", "-c", &format!("true </etc/hostname; true <{path}; true")],
    );
    let opened = |name: &str| {
        let found = events.iter().find(|event| event["args"]["filename"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {events:#?}"))
    };
    let found = opened("/etc/hostname");
    let names: Vec<_> = found["args"].as_object().unwrap().keys().collect();
    // By name: the parser sorts them.
    assert_eq!(names, ["dfd", "filename", "how", "latency", "retval"]);
    assert_eq!(found["args"]["dfd"], -100);
    assert!(found["args"]["retval"].as_i64().unwrap() >= 0, "{found}");
    // It takes several parts to keep it.
    let missing = opened(&path);
    assert_eq!((&missing["args"]["retval"], &missing["errno"]), (&json!(-2), &json!("ENOENT")));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_sleep_takes_as_long_as_it_takes() {
    let sleeps = "sleep 0.3; sleep 0.01; sleep 0.3";
    let longer = |latency: &str| {
        let args = ["--longer", latency, "hrtimer_nanosleep"];
        calls(&args, &["sh", "-c", sleeps]).0
    };
    let slow = longer("200ms");
    assert_eq!(slow.len(), 2, "{slow:#?}");
    for event in &slow {
        let latency = event["args"]["latency"].as_u64().unwrap();
        // The machine is slow, but not that slow.
        assert!((300_000_000..10_000_000_000).contains(&latency), "{event}");
    }
    assert_eq!(longer("1us").len(), 3);
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn calls_within_calls_are_told_apart() {
    let probes = ["ksys_read(count, retval, latency)", "vfs_read(count, retval, latency)"];
    let (events, said) = calls(&probes, &["cat", "/etc/hostname"]);
    let of = |probe| events.iter().filter(move |event| event["probe"] == probe);
    assert!(of("ksys_read").count() > 0, "{said}");
    for outer in of("ksys_read") {
        let latency = |event: &Value| event["args"]["latency"].as_u64().unwrap();
        let (args, entered) = (&outer["args"], outer["time"].as_u64().unwrap() - latency(outer));
        let is_inner = |inner: &&Value| {
            let time = inner["time"].as_u64().unwrap();
            time <= outer["time"].as_u64().unwrap() && time - latency(inner) >= entered
        };
        let inner: Vec<_> = of("vfs_read").filter(is_inner).map(|event| &event["args"]).collect();
        assert_eq!(inner.len(), 1, "{outer} {events:#?}");
        assert_eq!((&inner[0]["count"], &inner[0]["retval"]), (&args["count"], &args["retval"]));
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn what_is_no_call_is_refused() {
    for spec in ["kr:vfs_read", "t:sched:sched_switch", "rt:sys_enter"] {
        let told = "that is for functions by their names";
        assert_failure(&mut probe(["trace", "-r", spec]), told);
    }
    for spec in ["vfs_read(latency)", "kr:vfs_read(latency)", "vfs_read(count, retval)"] {
        let output = probe(["trace", spec]).output().unwrap();
        assert!(stderr(&output).contains("--ret"), "{}", stderr(&output));
    }
    let once = events(&["vfs_read"], &["cat", "/etc/hostname"]);
    assert!(once.iter().all(|event| event["args"]["latency"].is_null()));
}
