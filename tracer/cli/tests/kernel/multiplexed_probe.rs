//! `probe` with multiplexed events: counts of calls, and what cannot be sampled. The test PMUs have
//! room for one event at a time.

use crate::probe::commands::{own, requested_work, workload as workload_of};
use crate::probe::{assert_failure, json_lines, number, probe, stderr, succeed};
use probe_perf::{Counter, Event, Target};
use probe_testing::aux_module::{MISSING, is_loaded};
use probe_testing::skip::skip;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Duration;

/// Takes this many milliseconds.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn multiplexed_fixture_takes(milliseconds: u64) -> u64 {
    if milliseconds > 0 {
        std::thread::sleep(Duration::from_millis(milliseconds));
    }
    black_box(milliseconds)
}

const TAKES: &str = "multiplexed_fixture_takes(asked=arg0:u64, latency)";

/// The long calls span many time slices, the short ones less than one.
const LONG: u64 = 200;
const LONGS: usize = 3;
const SHORTS: usize = 300;

/// Calls the fixture, if that is requested.
#[test]
#[ignore = "what the others trace: cargo xtask test"]
fn workload() {
    if requested_work().is_empty() {
        return;
    }
    let own = sched_getaffinity(None).unwrap();
    let mut first = CpuSet::new();
    first.set((0..CpuSet::MAX_CPU).find(|&cpu| own.is_set(cpu)).unwrap());
    sched_setaffinity(None, &first).unwrap();
    for _ in 0..LONGS {
        assert_eq!(multiplexed_fixture_takes(LONG), LONG);
    }
    for _ in 0..SHORTS {
        assert_eq!(multiplexed_fixture_takes(0), 0);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The calls of the fixture, with the PMU's counts.
fn calls() -> Vec<Value> {
    let (spec, event) =
        (format!("uprobe:{}:{TAKES}", own()), "probe_narrow_0/config=1,name=ticks/");
    let args = ["trace", "-F", "jsonl", "-B", "4M", "--ret", "--counter", event, &spec, "--"];
    let output = succeed(probe(args).args(workload_of("multiplexed_probe", "calls")));
    let calls = json_lines(&output);
    assert_eq!(calls.len(), LONGS + SHORTS, "{}", stderr(&output));
    calls
}

fn is_known(call: &Value) -> bool {
    let is_known = !call["args"]["ticks"].is_null();
    let faults = if is_known { Value::Null } else { json!(["ticks"]) };
    assert_eq!(call["faults"], faults, "{call}");
    is_known
}

/// Asserts that a known count covers the whole call. The clocks of the PMU and of the call are read
/// one after the other, which may take a while on a slow machine.
fn assert_true(call: &Value) {
    let (ticks, latency) = (number(call, "ticks"), number(call, "latency"));
    assert!(ticks > 0 && ticks <= latency + latency / 10 + 5_000_000, "{call}");
    assert!(ticks + 50_000_000 > number(call, "asked") * 1_000_000, "{call}");
}

#[test]
#[ignore = "needs root, BPF, uprobes and a kernel module: cargo xtask test"]
fn calls_are_counted_while_no_other_event_is() {
    if !is_loaded() {
        return skip(MISSING);
    }
    let (known, unknown): (Vec<_>, Vec<_>) = calls().into_iter().partition(is_known);
    // perf's clock is unstable on emulated machines, so a short call may appear to take no time.
    // Its count is then unknown, too.
    assert!(unknown.len() <= SHORTS / 20, "{unknown:?}");
    assert_eq!(known.iter().filter(|call| number(call, "asked") == LONG).count(), LONGS);
    known.iter().for_each(assert_true);
}

#[test]
#[ignore = "needs root, BPF, uprobes and a kernel module: cargo xtask test"]
fn calls_that_were_not_counted_all_the_time_have_no_count() {
    if !is_loaded() {
        return skip(MISSING);
    }
    let event: Event = "probe_narrow_0/config=1/".parse().unwrap();
    let others = Counter::open(&event, &Target::System).unwrap();
    others.enable().unwrap();
    let calls = calls();
    let (long, short): (Vec<_>, Vec<_>) =
        calls.iter().partition(|call| number(call, "asked") == LONG);
    assert!(!long.into_iter().any(is_known), "{calls:?}");
    let (known, unknown): (Vec<_>, Vec<_>) = short.into_iter().partition(|call| is_known(call));
    // Half of the calls each, on an otherwise idle machine.
    assert!(known.len() >= SHORTS / 20, "{calls:?}");
    assert!(unknown.len() >= SHORTS / 20, "{calls:?}");
    known.into_iter().for_each(assert_true);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn an_event_of_several_pmus_is_explained() {
    if !is_loaded() {
        return skip(MISSING);
    }
    let error = "probe_narrow/config=1/".parse::<Event>().unwrap_err().to_string();
    let expected = "`probe_narrow/config=1/` stands for 2 events: probe_narrow_0/config=1/, \
                probe_narrow_1/config=1/; name one of them";
    assert!(error.contains(expected), "{error}");
    // The PMU has no interrupts for taking samples.
    let mut sample = probe(["sample", "-a", "-e", "probe_narrow/config=1,name=ticks/"]);
    assert_failure(
        &mut sample,
        "cannot open probe_narrow_0/ticks/ (probe_narrow_0/config=1,name=ticks/) on CPU 0: ",
    );
}
