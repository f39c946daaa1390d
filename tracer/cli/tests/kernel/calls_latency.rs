//! `probe latency`, for calls whose number and duration are known.

use crate::probe::commands::{shell, writes};
use crate::probe::{
    assert_exit, assert_failure, json_line, printed, probe, stderr, stdout, succeed,
};
use serde_json::Value;

/// Runs `probe latency` on a command. Returns one line per function, and standard error.
pub(crate) fn latencies(args: &[&str], command: &[String]) -> (Vec<Value>, String) {
    let mut run = probe(["latency", "-F", "jsonl"]);
    let output = succeed(run.args(args).arg("--").args(command));
    let lines: Vec<Value> = stdout(&output).lines().map(json_line).collect();
    for line in &lines {
        // The total lies within the bounds of the buckets.
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

/// Number of calls that certainly took at least that long, in nanoseconds.
pub(crate) fn longer(line: &Value, than: u64) -> u64 {
    let buckets = line["buckets"].as_array().unwrap().iter();
    let longer = buckets.filter(|bucket| number(bucket, "from") >= than);
    longer.map(|bucket| number(bucket, "calls")).sum()
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn sleeps_are_in_the_buckets_of_their_time() {
    let script = "sleep 0.6; sleep 0.02; sleep 0.6; sleep 0.6";
    let (lines, printed) = latencies(&["hrtimer_nanosleep"], &shell(script));
    let [line] = lines.as_slice() else { panic!("{lines:?}: {printed}") };
    assert_eq!((number(line, "calls"), number(line, "missed"), number(line, "untimed")), (4, 0, 0));
    assert_eq!([0, 1 << 24].map(|than| longer(line, than)), [4, 4], "{line}");
    // A stalled machine prolongs the short one.
    assert!(longer(line, 1 << 29) >= 3, "{line}");
    let total = number(line, "total");
    assert!((1_820_000_000..60_000_000_000).contains(&total), "{line}");
    assert!(printed.contains("4 calls at 1 of 1 probe"), "{printed}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn every_call_is_in_a_bucket() {
    for (predicate, expected) in [
        ("/count == 1/", Some(5000)),
        ("/count == 1 && retval == 1 && comm == \"dd\"/", Some(5000)),
        ("/count == 1 && retval < 0/", None),
        ("/count == 1 && latency > 3600000000000/", None),
    ] {
        let (lines, printed) = latencies(&[&format!("vfs_read{predicate}")], &writes(5000));
        let calls: Vec<_> =
            lines.iter().map(|line| (number(line, "calls"), longer(line, 0))).collect();
        let expected: Vec<_> = expected.into_iter().map(|calls| (calls, calls)).collect();
        assert_eq!(calls, expected, "{predicate}: {printed}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn patterns_are_timed_function_by_function() {
    let cat = ["cat", "/etc/hostname"].map(str::to_owned);
    let (lines, printed) = latencies(&["vfs_r[em]*", "-x", "*link*"], &cat);
    assert!(lines.iter().any(|line| line["probe"] == "vfs_read"), "{lines:?}: {printed}");
    let totals: Vec<_> = lines.iter().map(|line| number(line, "total")).collect();
    assert!(totals.is_sorted_by(|one, other| one >= other), "{totals:?}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn calls_that_have_not_returned_are_reported() {
    // The background sleep outlives the shell, but does not hold the output open.
    let script = "sleep 0.1; sleep 20 >/dev/null 2>&1 & sleep 3";
    let (lines, printed) = latencies(&["hrtimer_nanosleep"], &shell(script));
    assert_eq!((number(&lines[0], "calls"), number(&lines[0], "missed")), (2, 1), "{printed}");
    assert!(printed.contains("1 call missed (return not seen 1)"), "{printed}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn latencies_are_a_table_or_a_picture() {
    let shown =
        |format| printed(["latency", "hrtimer_nanosleep", "-F", format, "--", "sleep", "0.01"]);
    let table = shown("table");
    assert!(table.starts_with("hrtimer_nanosleep: 1 call, "), "{table}");
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.ends_with(&format!("  1 {}\n", "#".repeat(50))), "{table}");
    assert!(shown("svg").starts_with("<svg "));
    for (spec, expected) in [
        ("kr:vfs_read", "calls are those of a function of the kernel (kprobe:FUNCTION)"),
        ("no_such_function", "the kernel has no function of this name"),
    ] {
        assert_failure(&mut probe(["latency", spec]), expected);
    }
    let with_fields = &mut probe(["latency", "vfs_read(count)"]);
    assert_exit(with_fields, 1, "only a /CONDITION/ is allowed here");
}
