//! Entry and return in one event, for functions of programs and libraries: this test's own with
//! known calls, and those of the C library.

use crate::probe::commands::{own, shell};
use crate::probe::{
    all_json_lines, assert_failure, json_line, json_lines, number, probe, stderr, stdout, succeed,
};
use crate::uprobe_fixtures::{NAP, SUM, TRIPLE, calling};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;

fn run(args: &[&str], work: &str) -> Output {
    succeed(probe(args).arg("--").args(calling(work)))
}

/// The reported calls by function, and the number of unseen returns per probe.
fn calls(specs: &[&str], work: &str) -> (BTreeMap<String, Vec<Value>>, Vec<u64>) {
    let specs = specs.iter().map(|spec| spec.replace("OWN", &own()));
    let mut run = probe(["trace", "-F", "jsonl", "-B", "4M", "--ret"]);
    reported(&succeed(run.args(specs).arg("--").args(calling(work))))
}

/// What [`calls`] returns, of an output.
fn reported(output: &Output) -> (BTreeMap<String, Vec<Value>>, Vec<u64>) {
    let lines = all_json_lines(output);
    let ledger = &lines[lines.len() - 1];
    assert_eq!((&ledger["lost"], &ledger["verdict"]), (&json!(0), &json!("complete")), "{ledger}");
    let missed = |one: &Value| {
        assert_eq!(one["no_room"], 0, "{ledger}");
        one["no_return"].as_u64().unwrap()
    };
    let missed = ledger["missed"].as_array().unwrap().iter().map(missed).collect();
    let mut calls = BTreeMap::<_, Vec<_>>::new();
    for event in json_lines(output) {
        assert_eq!(event["type"], "call");
        assert!(number(&event, "latency") > 0, "{event}");
        calls.entry(event["probe"].as_str().unwrap().to_owned()).or_default().push(event);
    }
    (calls, missed)
}

/// An argument and the result of each call, sorted.
fn pairs(events: &[Value]) -> Vec<(u64, u64)> {
    let mut pairs: Vec<_> =
        events.iter().map(|event| (number(event, "n"), number(event, "retval"))).collect();
    pairs.sort_unstable();
    pairs
}

/// The kernel follows 64 nested calls, and counts no others. With their entries, `probe` does.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn missing_returns_of_deep_calls_are_reported() {
    let (own, work) = (own(), "threads 1 1 99");
    let returns = format!("uretprobe:{own}:{SUM}");
    let output = run(&["trace", "-F", "jsonl", &returns], work);
    let lines = all_json_lines(&output);
    let ledger = lines.last().unwrap();
    assert_eq!(ledger["events"], 64, "{ledger}");
    assert!(ledger["missed"][0].get("by_kernel").is_none(), "{ledger}");
    let said = "nested more than 64 deep in a thread are missing";
    for output in [output, run(&["count", &returns], work)] {
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
    let entries = format!("uprobe:{own}:{SUM}{PAIR}");
    let output = run(&["trace", "-F", "jsonl", "--ret", &entries], work);
    assert!(!stderr(&output).contains(said), "{}", stderr(&output));
    assert_eq!(reported(&output).1, [36]);
}

const PAIR: &str = "(n=arg0:u64, retval:u64, latency)";

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn each_call_has_its_own_arguments_and_result() {
    const THREADS: u64 = 4;
    const CALLS: u64 = 300;
    const DEPTH: u64 = 20;
    let (calls, missed) = calls(
        &[&format!("uprobe:OWN:{TRIPLE}{PAIR}"), &format!("uprobe:OWN:{SUM}{PAIR}")],
        &format!("threads {THREADS} {CALLS} {DEPTH}"),
    );
    assert_eq!(missed, [0, 0]);
    let triples: Vec<_> = (0..THREADS * CALLS).map(|n| (n, 3 * n)).collect();
    assert_eq!(pairs(&calls[TRIPLE]), triples);
    let sum = |n| [(n, n * (n + 1) / 2); THREADS as usize];
    assert_eq!(pairs(&calls[SUM]), (0..=DEPTH).flat_map(sum).collect::<Vec<_>>());
    // An outer call starts before and ends after the calls inside it.
    let mut by_thread = BTreeMap::<_, Vec<_>>::new();
    for event in &calls[SUM] {
        let end = event["time"].as_u64().unwrap();
        let span = (number(event, "n"), end - number(event, "latency"), end);
        by_thread.entry(event["tid"].as_u64()).or_default().push(span);
    }
    assert_eq!(by_thread.len() as u64, THREADS);
    for spans in by_thread.values() {
        let is_in = |inner: &(u64, u64, u64), outer: &(u64, u64, u64)| {
            inner.0 < outer.0 && inner.1 >= outer.1 && inner.2 <= outer.2
        };
        assert!(spans.is_sorted_by(is_in), "{spans:?}");
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn conditions_are_decided_once_their_values_are_known() {
    for (condition, expected) in [
        ("arg0:u64 >= 50 && retval:u64 < 180 && latency > 0", 10),
        ("arg0:s32 < 5 || retval:s32 > 290", 8),
        ("latency > 3600000000000", 0),
    ] {
        let spec = format!("u:OWN:{TRIPLE}{PAIR}/{condition}/");
        let (calls, missed) = calls(&[&spec], "triple 100");
        let count = calls.get(TRIPLE).map_or(0, Vec::len);
        assert_eq!((count, &missed[..]), (expected, &[0][..]), "{condition}");
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_pattern_reports_the_calls_of_each_matching_function() {
    // Without fields, a call has all arguments.
    let (calls, missed) = calls(&["uprobe:OWN:uprobe_fixture_*"], "threads 1 50 20");
    assert!(missed.iter().all(|&missed| missed == 0), "{missed:?}");
    let counts: Vec<_> = calls.iter().map(|(name, calls)| (name.as_str(), calls.len())).collect();
    assert_eq!(counts, [(SUM, 21), (TRIPLE, 50)]);
    let names: Vec<_> = calls[SUM][0]["args"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5", "latency", "retval"]);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn slow_calls_are_reported_and_timed() {
    const SLOW: u64 = 300;
    let work = format!("naps {}{SLOW} 0 {SLOW}", "0 ".repeat(20));
    let spec = format!("uprobe:{}:{NAP}(n=arg0:u64, retval:u64, latency)", own());
    let output = run(&["trace", "-F", "jsonl", &spec, "--longer", "200ms"], &work);
    let (calls, missed) = reported(&output);
    let calls = &calls[NAP];
    let slow = calls.iter().filter(|event| number(event, "n") == SLOW).count();
    assert_eq!((slow, missed), (2, vec![0]));
    // A slow machine may delay a few other calls as well.
    assert!(calls.len() < 10, "{calls:#?}");
    for event in calls {
        let least = number(event, "n").max(200) * 1_000_000;
        assert!(number(event, "latency") >= least, "{event}");
        assert_eq!(number(event, "retval"), number(event, "n") + 1);
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn every_call_is_in_a_bucket() {
    let specs = [TRIPLE, NAP].map(|name| format!("uprobe:{}:{name}", own()));
    let timed = |specs: &[&str], work| -> BTreeMap<String, Value> {
        let output = run(&[&["latency", "-F", "jsonl"], specs].concat(), work);
        let by_name = |line: Value| (line["probe"].as_str().unwrap().to_owned(), line);
        stdout(&output).lines().map(json_line).map(by_name).collect()
    };
    let in_buckets = |line: &Value| -> u64 {
        line["buckets"].as_array().unwrap().iter().map(|one| one["calls"].as_u64().unwrap()).sum()
    };
    let specs = specs.each_ref().map(String::as_str);
    let lines = timed(&specs, "naps 100 0 100 triple 1000");
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (name, calls) in [(TRIPLE, 1000), (NAP, 3)] {
        let line = &lines[name];
        assert_eq!((in_buckets(line), &line["calls"]), (calls, &json!(calls)), "{line}");
        assert_eq!(line["missed"], 0, "{line}");
    }
    assert!(lines[NAP]["total"].as_u64().unwrap() >= 200_000_000, "{lines:?}");
    let few = format!("{}/retval:u64 < 300 && arg0:u64 > 9/", specs[0]);
    assert_eq!(in_buckets(&timed(&[&few], "triple 1000")[TRIPLE]), 90);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_recording_has_the_same_calls() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace");
    let file = file.to_str().unwrap();
    let spec = format!("uprobe:{}:{TRIPLE}{PAIR}", own());
    run(&["record", "--ret", "-o", file, "-B", "4M", &spec], "triple 100");
    let replayed = probe(["replay", "-F", "jsonl", file]).output().unwrap();
    let (calls, missed) = reported(&replayed);
    assert_eq!(pairs(&calls[TRIPLE]), (0..100).map(|n| (n, 3 * n)).collect::<Vec<_>>());
    assert_eq!(missed, [0]);
}

/// A function that forks returns in two processes. Only the return in the calling process counts.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_call_that_forks_returns_once() {
    let (calls, missed) = calls(&[&format!("uprobe:OWN:ucalls_fixture_forks{PAIR}")], "forks 10");
    let calls = &calls["ucalls_fixture_forks"];
    assert_eq!((pairs(calls), &missed[..]), ((0..10).map(|n| (n, n + 1)).collect(), &[0][..]));
    assert!(calls.iter().all(|event| event["pid"] == calls[0]["pid"]), "{calls:#?}");
}

/// On preemptible kernels, programs of a probe preempt each other in the middle of a call.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn calls_that_preempt_each_other_are_all_timed() {
    const EACH: u64 = 2000;
    let dd = format!("dd if=/dev/zero of=/dev/null bs=7 count={EACH} status=none");
    let script = shell(&format!("for i in 1 2 3 4 5 6 7 8; do {dd} & done; wait"));
    let spec = "uprobe:libc:read/arg0 == 0 && arg2 == 7/";
    let start = std::time::Instant::now();
    let output = succeed(probe(["latency", "-F", "jsonl", spec, "--"]).args(script));
    let line = json_line(stdout(&output).lines().next().expect("a line"));
    let expected = [("calls", 8 * EACH), ("missed", 0), ("untimed", 0)];
    assert_eq!(expected.map(|(key, _)| (key, line[key].as_u64().unwrap())), expected, "{line}");
    // The eight processes cannot have spent more time than that.
    let most = 8 * start.elapsed().as_nanos();
    assert!(u128::from(line["total"].as_u64().unwrap()) < most, "{line}");
}

/// Forked processes have their stacks at the same addresses.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn calls_of_processes_with_the_same_stack_addresses_are_distinguished() {
    const COUNT: usize = 8;
    // All of them read at the same time, until the writer exits.
    let script = format!(
        "sleep 1 | {{ exec 3<&0; i=0; while [ $i -lt {COUNT} ]; do (read x <&3) & i=$((i+1)); done; wait; }}"
    );
    let spec = "uprobe:libc:read(file=arg0:s32, size=arg2:u64, retval:s64, latency)/arg0 == 0/";
    let output = succeed(probe(["trace", "-F", "jsonl", "--ret", spec, "--"]).args(shell(&script)));
    let (calls, missed) = reported(&output);
    let calls = &calls["read"];
    assert_eq!((calls.len(), &missed[..]), (COUNT, &[0][..]), "{}", stderr(&output));
    let pids: BTreeSet<_> = calls.iter().map(|event| event["pid"].as_u64()).collect();
    assert_eq!(pids.len(), COUNT);
    assert!(calls.iter().all(|event| event["args"]["retval"] == 0), "{calls:#?}");
    let ends = || calls.iter().map(|event| event["time"].as_u64().unwrap());
    let latencies = calls.iter().map(|event| number(event, "latency"));
    let begun_last = ends().zip(latencies).map(|(end, latency)| end - latency).max();
    assert!(begun_last < ends().min(), "they were not at the same time: {calls:#?}");
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
#[cfg(target_arch = "x86_64")]
fn a_function_that_ends_with_a_jump_returns_with_the_other() {
    let specs = ["ucalls_fixture_jumps", TRIPLE].map(|name| format!("uprobe:OWN:{name}{PAIR}"));
    let (calls, missed) = calls(&specs.each_ref().map(String::as_str), "jumps 100");
    assert_eq!(missed, [0, 0]);
    let pairs_of = |name: &str| pairs(&calls[name]);
    let outer: Vec<_> = (0..100).map(|n| (n, 3 * n + 3)).collect();
    assert_eq!(pairs_of("ucalls_fixture_jumps"), outer);
    assert_eq!(pairs_of(TRIPLE), outer.iter().map(|(n, r)| (n + 1, *r)).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
#[cfg(target_arch = "x86_64")]
fn only_abandoned_calls_are_missed() {
    let specs = ["leaves", "left"].map(|name| format!("uprobe:OWN:ucalls_fixture_{name}{PAIR}"));
    let (calls, missed) = calls(&specs.each_ref().map(String::as_str), "leaves 30");
    // Each abandoned call is replaced by the next one, except the last.
    assert_eq!(missed, [0, 30]);
    let names: Vec<_> = calls.keys().collect();
    assert_eq!(names, ["ucalls_fixture_leaves"]);
    let expected: Vec<_> = (0..30).map(|n| (n, n + 5)).collect();
    assert_eq!(pairs(&calls["ucalls_fixture_leaves"]), expected);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn calls_whose_return_the_kernel_does_not_report_are_counted() {
    let (calls, missed) = calls(&[&format!("u:OWN:{SUM}{PAIR}")], "sum 99");
    // The kernel tracks 64 nested returns: those of the outer calls.
    assert_eq!((calls[SUM].len(), &missed[..]), (64, &[36][..]));
    let expected: Vec<_> = (36..100).map(|n| (n, n * (n + 1) / 2)).collect();
    assert_eq!(pairs(&calls[SUM]), expected);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_call_that_ends_with_its_process_is_counted() {
    let (calls, missed) = calls(&[&format!("u:OWN:{NAP}")], "dies 3000");
    assert_eq!((calls.len(), &missed[..]), (0, &[1][..]));
    // A process that executes another program never returns from the call.
    let spec = "u:libc:execve(retval, latency)/comm == \"sh\"/";
    let script = shell("exec /bin/sh -c 'exec /bin/true'");
    let output = succeed(probe(["trace", "-F", "jsonl", "--ret", spec, "--"]).args(script));
    let (calls, missed) = reported(&output);
    assert_eq!((calls.len(), &missed[..]), (0, &[2][..]), "{}", stderr(&output));
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn what_is_not_a_call_is_refused() {
    let expected = "calls are those of a function of the kernel (kprobe:FUNCTION)";
    for spec in ["ur:libc:malloc", "u:libc:malloc+4"] {
        for command in [&["trace", "--ret"][..], &["trace", "--longer", "1ms"], &["latency"]] {
            assert_failure(probe(command).arg(spec), expected);
        }
    }
}
