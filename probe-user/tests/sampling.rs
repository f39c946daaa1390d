//! `--rate` and `--sample`, beside hits whose number is known.

mod probe;

use probe::{all_json_lines, json_lines, probe, stderr};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Output;

const WRITE: &str = "tracepoint:syscalls:sys_enter_write(fd)/fd == 1 && comm == \"dd\"/";

fn trace(args: &[&str], command: &[&str]) -> Output {
    let mut run = probe(["trace", "-F", "jsonl", "-B", "4M"]);
    let output = run.args(args).arg("--").args(command).output().unwrap();
    assert!(stderr(&output).contains(" + lost 0; complete"), "{}", stderr(&output));
    output
}

/// How many hits were withheld, as the ledger has it.
fn withheld(output: &Output) -> u64 {
    let ledger: Value = all_json_lines(output).pop().unwrap();
    ledger["missed"][0]["withheld"].as_u64().unwrap()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn one_in_so_many_is_told_and_the_others_are_counted() {
    let dd = ["taskset", "-c", "0", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=5002"];
    for (sample, told) in [("1/1", 5002), ("1/7", 715), ("1/5001", 2), ("1/4294967295", 1)] {
        let output = trace(&["--sample", sample, WRITE], &dd);
        let events = json_lines(&output).len() as u64;
        assert_eq!((events, withheld(&output)), (told, 5002 - told), "{sample}");
    }
    let output = trace(&["--sample", "1/7", WRITE], &dd);
    assert!(stderr(&output).contains(": 4287 hits withheld\n"), "{}", stderr(&output));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn at_most_so_many_are_told_in_a_second() {
    let burst = "dd if=/dev/zero of=/dev/null bs=1 count=1000; sleep 0.5";
    let bursts = format!("for n in 1 2 3 4 5 6 7 8; do {burst}; done");
    let output = trace(&["--rate", "50/s", WRITE], &["sh", "-c", &bursts]);
    let events = json_lines(&output);
    assert_eq!(events.len() as u64 + withheld(&output), 8000);
    let mut by_second = BTreeMap::<u64, u64>::new();
    for event in &events {
        *by_second.entry(event["time"].as_u64().unwrap() / 1_000_000_000).or_default() += 1;
    }
    // The clock is read once for the event, and once more for the rate: one event may seem to be of the
    // second before.
    assert!(by_second.values().all(|&told| told <= 51), "{by_second:?}");
    assert!(by_second.len() >= 4 && events.len() >= 150, "{by_second:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn each_probe_has_a_rate_of_its_own() {
    let others = "tracepoint:syscalls:sys_enter_read(fd)/fd == 0 && comm == \"dd\"/";
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=2000"];
    let output = trace(&["--rate", "3", WRITE, others], &dd);
    let lines = all_json_lines(&output);
    for (number, name) in ["syscalls:sys_enter_write", "syscalls:sys_enter_read"].iter().enumerate()
    {
        let told = lines.iter().filter(|line| line["probe"] == *name).count() as u64;
        let ledger = &lines[lines.len() - 1]["missed"][number];
        assert_eq!(told + ledger["withheld"].as_u64().unwrap(), 2000);
        assert!(told >= 3 && told.is_multiple_of(3), "{told}");
    }
}
