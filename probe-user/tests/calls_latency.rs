//! `probe latency`, beside calls whose number and length are known.

mod probe;

use probe::{assert_failure, json_line, probe, stderr, stdout};
use serde_json::Value;

/// What a command makes of `probe latency`, a function each, and what is said of it.
fn latencies(args: &[&str], command: &[&str]) -> (Vec<Value>, String) {
    let mut run = probe(["latency", "-F", "jsonl"]);
    let output = run.args(args).arg("--").args(command).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let lines: Vec<Value> = stdout(&output).lines().map(json_line).collect();
    for line in &lines {
        // What is in the buckets took so long in all.
        let sum = |bound| {
            let buckets = line["buckets"].as_array().unwrap().iter();
            buckets.map(|bucket| number(bucket, bound) * number(bucket, "calls")).sum::<u64>()
        };
        assert!((sum("from")..=sum("to")).contains(&number(line, "total")), "{line}");
    }
    (lines, stderr(&output))
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("{name} is no number in {of}"))
}

/// How many calls took that long for sure, in nanoseconds.
fn longer(line: &Value, than: u64) -> u64 {
    let buckets = line["buckets"].as_array().unwrap().iter();
    buckets
        .filter(|bucket| number(bucket, "from") >= than)
        .map(|bucket| number(bucket, "calls"))
        .sum()
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn sleeps_are_in_the_buckets_of_their_time() {
    let script = "sleep 0.6; sleep 0.02; sleep 0.6; sleep 0.6";
    let (lines, said) = latencies(&["hrtimer_nanosleep"], &["sh", "-c", script]);
    let [line] = lines.as_slice() else { panic!("{lines:?}: {said}") };
    assert_eq!((number(line, "calls"), number(line, "missed"), number(line, "untimed")), (4, 0, 0));
    assert_eq!(
        (longer(line, 0), longer(line, 1 << 24), longer(line, 1 << 29)),
        (4, 4, 3),
        "{line}"
    );
    let total = number(line, "total");
    assert!((1_820_000_000..60_000_000_000).contains(&total), "{line}");
    assert!(said.contains("4 calls of 1 of 1 functions"), "{said}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn every_call_is_in_a_bucket() {
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=5000"];
    for (predicate, expected) in [
        ("/count == 1/", Some(5000)),
        ("/count == 1 && retval == 1 && comm == \"dd\"/", Some(5000)),
        ("/count == 1 && retval < 0/", None),
        ("/count == 1 && latency > 3600000000000/", None),
    ] {
        let (lines, said) = latencies(&[&format!("vfs_read{predicate}")], &dd);
        assert_eq!(lines.len(), usize::from(expected.is_some()), "{predicate}: {said}");
        let Some(calls) = expected else { continue };
        assert_eq!(
            (number(&lines[0], "calls"), longer(&lines[0], 0)),
            (calls, calls),
            "{predicate}"
        );
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn patterns_are_timed_function_by_function() {
    let (lines, said) = latencies(&["vfs_r[em]*", "-x", "*link*"], &["cat", "/etc/hostname"]);
    assert!(lines.iter().any(|line| line["probe"] == "vfs_read"), "{lines:?}: {said}");
    let totals: Vec<_> = lines.iter().map(|line| number(line, "total")).collect();
    assert!(totals.is_sorted_by(|one, other| one >= other), "{totals:?}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_call_that_has_not_returned_is_told_of() {
    // It ends by itself, with nobody waiting for its output.
    let script = "sleep 0.1; sleep 20 >/dev/null 2>&1 & sleep 0.5";
    let (lines, said) = latencies(&["hrtimer_nanosleep"], &["sh", "-c", script]);
    assert_eq!((number(&lines[0], "calls"), number(&lines[0], "missed")), (2, 1), "{said}");
    assert!(said.contains("1 call missed (return not seen 1)"), "{said}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn it_is_shown_as_one_asks() {
    let shown = |format: &str| {
        let mut run = probe(["latency", "hrtimer_nanosleep", "-F", format, "--", "sleep", "0.01"]);
        let output = run.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let table = shown("table");
    assert!(table.starts_with("hrtimer_nanosleep: 1 call, "), "{table}");
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.ends_with(&format!("  1 {}\n", "#".repeat(50))), "{table}");
    assert!(shown("svg").starts_with("<svg "));
    for (spec, told) in [
        ("kr:vfs_read", "that is for functions by their names"),
        ("no_such_function", "the kernel has no function of this name"),
    ] {
        assert_failure(&mut probe(["latency", spec]), told);
    }
    let output = probe(["latency", "vfs_read(count)"]).output().unwrap();
    assert!(stderr(&output).contains("only a /CONDITION/ may come here"), "{}", stderr(&output));
}
