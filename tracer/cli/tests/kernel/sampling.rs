//! `--rate` and `--sample`, for a known number of hits.

use crate::probe::commands::{shell, writes_on_one_cpu};
use crate::probe::{all_json_lines, json_lines, stderr, trace};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;

const WRITE: &str = "tracepoint:syscalls:sys_enter_write(fd)/fd == 1 && comm == \"dd\"/";

/// The number of hits sampled out, from the ledger.
fn sampled_out(output: &Output) -> u64 {
    let ledger: Value = all_json_lines(output).pop().unwrap();
    ledger["missed"][0]["withheld"].as_u64().unwrap()
}

/// The second in which an event occurred.
fn second(event: &Value) -> u64 {
    event["time"].as_u64().unwrap() / 1_000_000_000
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn one_in_n_is_reported_and_the_others_are_counted() {
    let trace = |sample| trace(["-B", "4M", "--sample", sample, WRITE], writes_on_one_cpu(5002));
    for (sample, expected) in [("1/1", 5002), ("1/7", 715), ("1/5001", 2), ("1/4294967295", 1)] {
        let output = trace(sample);
        let events = json_lines(&output).len() as u64;
        assert_eq!((events, sampled_out(&output)), (expected, 5002 - expected), "{sample}");
    }
    let output = trace("1/7");
    assert!(stderr(&output).contains(": 4287 hits sampled out\n"), "{}", stderr(&output));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn at_most_n_are_reported_in_a_second() {
    let burst = "dd if=/dev/zero of=/dev/null bs=1 count=1000; sleep 0.5";
    let bursts = format!("for n in 1 2 3 4 5 6 7 8; do {burst}; done");
    let output = trace(["-B", "4M", "--rate", "50/s", WRITE], shell(&bursts));
    let events = json_lines(&output);
    assert_eq!(events.len() as u64 + sampled_out(&output), 8000);
    let mut by_second = BTreeMap::<u64, u64>::new();
    for event in &events {
        *by_second.entry(second(event)).or_default() += 1;
    }
    // The event and the rate limit read the clock separately, so one event may appear in the second
    // before.
    assert!(by_second.values().all(|&events| events <= 51), "{by_second:?}");
    assert!(by_second.len() >= 4 && events.len() >= 150, "{by_second:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn each_probe_has_a_rate_of_its_own() {
    const BURSTS: u64 = 8;
    const HITS: u64 = 250;
    let others = "tracepoint:syscalls:sys_enter_read(fd)/fd == 0 && comm == \"dd\"/";
    let burst = format!("dd if=/dev/zero of=/dev/null bs=1 count={HITS} status=none; sleep 0.5");
    let bursts = format!("for n in $(seq {BURSTS}); do {burst}; done");
    let output = trace(["-B", "4M", "--rate", "3", WRITE, others], shell(&bursts));
    let lines = all_json_lines(&output);
    for (number, name) in [(0, "syscalls:sys_enter_write"), (1, "syscalls:sys_enter_read")] {
        let of_probe = lines.iter().filter(|line| line["probe"] == name);
        let seconds: Vec<u64> = of_probe.map(second).collect();
        let events = seconds.len() as u64;
        let ledger = &lines[lines.len() - 1]["missed"][number];
        assert_eq!(events + ledger["withheld"].as_u64().unwrap(), BURSTS * HITS);
        // A second at the beginning or end of a burst may have fewer hits. If the probes shared a rate, one of them would have
        // one event in each second.
        let distinct = BTreeSet::from_iter(seconds).len() as u64;
        assert!(distinct >= 4 && events + 4 >= 3 * distinct, "{events} in {distinct} seconds");
    }
}
