//! `probe`, where events take turns: what calls are told to have cost, and what cannot be sampled, by PMUs of our own
//! that have room for one event at a time.

#[path = "suite/aux_module.rs"]
mod aux_module;
mod probe;

use aux_module::is_loaded;
use probe::{assert_failure, json_lines, probe, stderr};
use probe_user::perf::{Counter, Event, Scope};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Duration;

/// Takes so long.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn multiplexed_fixture_takes(milliseconds: u64) -> u64 {
    if milliseconds > 0 {
        std::thread::sleep(Duration::from_millis(milliseconds));
    }
    black_box(milliseconds)
}

const TAKES: &str = "multiplexed_fixture_takes(asked=arg0:u64, latency)";
const WORK: &str = "MULTIPLEXED_FIXTURE_WORK";

/// Calls that last for many turns, and calls that last for less than one.
const LONG: u64 = 200;
const LONGS: usize = 3;
const SHORTS: usize = 300;

/// Does what is traced, and without being asked, nothing.
#[test]
#[ignore = "what the others trace: cargo xtask test"]
fn workload() {
    if std::env::var_os(WORK).is_none() {
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

/// The calls of the fixture, with what the PMU counts in them.
fn calls() -> Vec<Value> {
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let (spec, event) = (format!("uprobe:{own}:{TAKES}"), "probe_narrow_0/config=1,name=ticks/");
    let script = "exec \"$0\" --ignored --exact workload >/dev/null";
    let mut run = probe(["trace", "-F", "jsonl", "-B", "4M", "--ret", "--counter", event, &spec]);
    let output = run.args(["--", "sh", "-c", script, own]).env(WORK, "1").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let calls = json_lines(&output);
    assert_eq!(calls.len(), LONGS + SHORTS, "{}", stderr(&output));
    calls
}

fn number(call: &Value, name: &str) -> u64 {
    call["args"][name].as_u64().unwrap_or_else(|| panic!("{name} of {call}"))
}

fn is_known(call: &Value) -> bool {
    let is_known = !call["args"]["ticks"].is_null();
    let faults = if is_known { Value::Null } else { json!(["ticks"]) };
    assert_eq!(call["faults"], faults, "{call}");
    is_known
}

/// What is known has been counted all the time. The clocks of the PMU and of the call are read one after the other,
/// which may take a while in a slow machine.
fn assert_true(call: &Value) {
    let (ticks, latency) = (number(call, "ticks"), number(call, "latency"));
    assert!(ticks > 0 && ticks <= latency + latency / 10 + 5_000_000, "{call}");
    assert!(ticks + 50_000_000 > number(call, "asked") * 1_000_000, "{call}");
}

#[test]
#[ignore = "needs root, BPF, uprobes and a kernel module: cargo xtask test"]
fn calls_are_counted_as_long_as_nobody_else_counts() {
    if !is_loaded() {
        return;
    }
    let (known, unknown): (Vec<_>, Vec<_>) = calls().into_iter().partition(is_known);
    // A short call may take no time at all by perf's clock, which is unstable in machines that are emulated: it is
    // unknown then, too.
    assert!(unknown.len() <= SHORTS / 20, "{unknown:?}");
    assert_eq!(known.iter().filter(|call| number(call, "asked") == LONG).count(), LONGS);
    known.iter().for_each(assert_true);
}

#[test]
#[ignore = "needs root, BPF, uprobes and a kernel module: cargo xtask test"]
fn calls_that_were_not_counted_all_the_time_have_no_count() {
    if !is_loaded() {
        return;
    }
    let event: Event = "probe_narrow_0/config=1/".parse().unwrap();
    let others = Counter::open(&event, &Scope::System).unwrap();
    others.enable().unwrap();
    let calls = calls();
    let (long, short): (Vec<_>, Vec<_>) =
        calls.iter().partition(|call| number(call, "asked") == LONG);
    assert!(!long.into_iter().any(is_known), "{calls:?}");
    let (known, unknown): (Vec<_>, Vec<_>) = short.into_iter().partition(|call| is_known(call));
    // Half of them each, if the machine has nothing else to do.
    assert!(known.len() >= SHORTS / 20, "{calls:?}");
    assert!(unknown.len() >= SHORTS / 20, "{calls:?}");
    known.into_iter().for_each(assert_true);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn what_several_pmus_have_is_told() {
    if !is_loaded() {
        return;
    }
    let error = "probe_narrow/config=1/".parse::<Event>().unwrap_err().to_string();
    let told = "`probe_narrow/config=1/` is 2 events: probe_narrow_0/config=1/, \
                probe_narrow_1/config=1/; name one of them";
    assert!(error.contains(told), "{error}");
    // It has no interrupts to take samples by.
    let mut sample = probe(["sample", "-a", "-e", "probe_narrow/config=1,name=ticks/"]);
    assert_failure(
        &mut sample,
        "cannot open probe_narrow_0/ticks/ (probe_narrow_0/config=1,name=ticks/) on CPU 0: ",
    );
}
