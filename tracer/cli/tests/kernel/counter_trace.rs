//! The counts of calls, for this test's own functions with known costs.

use crate::probe::commands::{own, requested_work, workload as workload_of};
use crate::probe::{
    assert_exit, assert_failure, json_line, json_lines, ledger, number, printed, probe, succeed,
};
use libc::{SCHED_FIFO, sched_param, sched_setscheduler};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};
use std::hint::black_box;
use std::process::Output;
use std::time::{Duration, Instant};

/// Touches `pages` fresh pages, one per recursive call.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn counted_fixture_touches(pages: u64, first: *mut u8, round: u64) -> u64 {
    if pages == 0 {
        pass_ticks();
        return 0;
    }
    // SAFETY: the page is part of the mapping.
    unsafe { first.write_volatile(round as u8) };
    let next = first.wrapping_add(rustix::param::page_size());
    1 + black_box(counted_fixture_touches(black_box(pages - 1), next, round))
}

/// Continues on another CPU.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn counted_fixture_moves(from: u64, to: u64) -> u64 {
    pin(to);
    pass_ticks();
    black_box(from)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn counted_fixture_naps(milliseconds: u64, naps: u64) -> u64 {
    if naps == 0 {
        return 0;
    }
    std::thread::sleep(Duration::from_millis(milliseconds));
    1 + black_box(counted_fixture_naps(black_box(milliseconds), naps - 1))
}

/// Runs until the CPU has had ticks. On machines with an unstable TSC, perf's clock may stand still
/// until the next tick, and a count taken in between is unknown.
fn pass_ticks() {
    let begin = Instant::now();
    let mut rounds = 0;
    while begin.elapsed() < Duration::from_millis(20) || rounds < 1_000 {
        rounds = black_box(rounds + 1);
    }
}

const TOUCHES: &str = "counted_fixture_touches(pages=arg0:u64, round=arg2:u64, retval:u64)";
const MOVES: &str = "counted_fixture_moves(from=arg0:u64, to=arg1:u64, cpu)";
const NAPS: &str = "counted_fixture_naps(naps=arg1:u64, latency)";

/// Pages touched in each round. The first round also touches other pages for the first time: the
/// stack, and the kernel's return trampoline.
const ROUNDS: [u64; 6] = [20, 0, 1, 7, 0, 20];

fn pin(cpu: u64) {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).unwrap();
}

/// Does the requested work.
#[test]
#[ignore = "what the others trace: cargo xtask test"]
fn workload() {
    match requested_work().as_str() {
        "touches" => touch(),
        "moves" => {
            let [one, other] = two_cpus();
            for (from, to) in [(one, one), (one, other), (other, one), (other, other)] {
                pin(from);
                assert_eq!(counted_fixture_moves(from, to), from);
            }
        }
        "naps" => {
            pin(two_cpus()[0]);
            for _ in 0..3 {
                assert_eq!(counted_fixture_naps(100, 2), 2);
            }
        }
        _ => {}
    }
}

fn two_cpus() -> [u64; 2] {
    let set = sched_getaffinity(None).unwrap();
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u64);
    [cpus.next().unwrap(), cpus.next().expect("the test takes two CPUs")]
}

fn touch() {
    pin(two_cpus()[0]);
    // The count includes other tasks on the CPU, so keep them off.
    let first = sched_param { sched_priority: 1 };
    // SAFETY: the kernel only reads the parameter.
    assert_eq!(unsafe { sched_setscheduler(0, SCHED_FIFO, &raw const first) }, 0);
    for (round, pages) in (0..).zip(ROUNDS) {
        let len = (pages as usize + 1) * rustix::param::page_size();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused address.
        let mapped =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) };
        let mapped = mapped.unwrap();
        // SAFETY: the mapping was just created.
        unsafe { madvise(mapped, len, Advice::LinuxNoHugepage) }.unwrap();
        assert_eq!(counted_fixture_touches(pages, mapped.cast(), round), pages);
        // SAFETY: nothing uses the mapping any more.
        unsafe { munmap(mapped, len) }.unwrap();
    }
}

/// Runs `probe` with these arguments on one of this test's functions, counting `event`, with `work`
/// as the command.
fn run(args: &[&str], event: &str, function: &str, work: &str) -> Output {
    let spec = format!("uprobe:{}:{function}", own());
    let mut run = probe([args, &["--ret", "--counter", event, &spec, "--"]].concat());
    succeed(run.args(workload_of("counter_trace", work)))
}

/// The calls of one of this test's functions during `work`, with the counts of `event`.
fn calls(event: &str, function: &str, work: &str) -> Vec<Value> {
    let output = run(&["trace", "-F", "jsonl", "-B", "4M"], event, function, work);
    assert_eq!(ledger(&output).lost, 0);
    json_lines(&output)
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn page_faults_of_a_call_are_the_pages_that_it_touches() {
    for (condition, least) in [("", 0), ("/counter > 5/", 6), ("/arg0:u64 < 9 && counter >= 7/", 7)]
    {
        let mut calls = calls("page-faults", &format!("{TOUCHES}{condition}"), "touches");
        calls.retain(|call| number(call, "round") > 0);
        let expected = (1..).zip(&ROUNDS[1..]).flat_map(|(round, &pages)| {
            // The innermost call returns first.
            (0..=pages).filter(|&pages| pages >= least).map(move |pages| (round, pages))
        });
        let expected: Vec<(u64, u64)> = match condition.contains("arg0") {
            true => expected.filter(|&(_, pages)| pages < 9).collect(),
            false => expected.collect(),
        };
        let touched = |call: &Value| (number(call, "round"), number(call, "pages"));
        assert_eq!(calls.iter().map(touched).collect::<Vec<_>>(), expected, "{condition}");
        for call in &calls {
            assert_eq!(number(call, "page-faults"), number(call, "pages"), "{call}");
        }
    }
}

/// Four events with known relations between their counts.
const FOUR: &str = "cpu-clock,page-faults,software/config=2,config1=0/,task-clock";

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn several_counters_count_as_each_of_them_would() {
    // The largest possible number of fields, so that the stored counts span several parts of a
    // call.
    let many = "counted_fixture_touches(pages=arg0:u64, arg1:u64, round=arg2:u64, arg3:u64, arg4:u64, \
                arg5:u64, retval:u64, latency, pid, tid, uid, comm)";
    for function in [TOUCHES, many] {
        for condition in ["", "/counter2 >= 7 && counter4 > 0 && counter3 >= 7/"] {
            let mut calls = calls(FOUR, &format!("{function}{condition}"), "touches");
            calls.retain(|call| number(call, "round") > 0);
            let all: u64 = ROUNDS[1..].iter().map(|pages| pages + 1).sum();
            let expected = if condition.is_empty() { all } else { 1 + 14 };
            assert_eq!(calls.len() as u64, expected, "{condition}");
            for call in &calls {
                let pages = number(call, "pages");
                assert_eq!(number(call, "page-faults"), pages, "{call}");
                assert_eq!(number(call, "software/config=2,config1=0/"), pages, "{call}");
                assert!(number(call, "cpu-clock") > 0 && number(call, "task-clock") > 0, "{call}");
                assert_eq!(number(call, "retval"), pages, "{call}");
                assert!(call["faults"].is_null(), "{call}");
            }
        }
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn every_counter_is_a_field_of_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let path = path.to_str().unwrap();
    run(&["record", "-o", path], "page-faults,cpu-clock", MOVES, "moves");
    let table = printed(["replay", path, "-F", "table"]);
    let counted = table.lines().filter(|line| line.contains(" page-faults="));
    let is_known = |line: &str| {
        let unknown = line.ends_with(" page-faults=<fault> cpu-clock=<fault>");
        assert_eq!(unknown, line.contains("<fault>"), "{line}");
        assert!(line.contains(" cpu-clock="), "{line}");
        !unknown
    };
    assert_eq!(counted.map(is_known).collect::<Vec<_>>(), [true, false, false, true], "{table}");
    let lines = printed(["replay", path, "-F", "jsonl"]);
    let lines: Vec<_> = lines.lines().map(json_line).collect();
    let calls: Vec<_> = lines.iter().filter(|line| line["type"] == "call").collect();
    assert_eq!(calls.len(), 4, "{lines:?}");
    for call in calls {
        let moved = number(call, "from") != number(call, "to");
        for event in ["page-faults", "cpu-clock"] {
            assert_eq!(call["args"][event].is_null(), moved, "{call}");
        }
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn the_count_of_a_call_on_two_cpus_is_unknown() {
    let calls = calls("cpu-clock", MOVES, "moves");
    assert_eq!(calls.len(), 4, "{calls:?}");
    for call in calls {
        let (from, to) = (number(&call, "from"), number(&call, "to"));
        assert_eq!(call["cpu"], to, "{call}");
        if from == to {
            assert!(number(&call, "cpu-clock") > 0 && call["faults"].is_null(), "{call}");
        } else {
            assert_eq!(call["args"]["cpu-clock"], Value::Null, "{call}");
            assert_eq!(call["faults"], json!(["cpu-clock"]), "{call}");
        }
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn no_condition_holds_for_an_unknown_count() {
    let function = format!("{MOVES}/counter < 1000000/");
    let calls = calls("page-faults", &function, "moves");
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls.iter().all(|call| number(call, "from") == number(call, "to")), "{calls:?}");
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn the_clock_of_a_call_is_its_latency() {
    for event in ["cpu-clock", "task-clock"] {
        let calls = calls(event, NAPS, "naps");
        assert_eq!(calls.len(), 9, "{calls:?}");
        for nested in calls.chunks(3) {
            // The innermost call returns first and is the shortest.
            assert!(nested.is_sorted_by_key(|call| number(call, event)), "{nested:?}");
        }
        for call in &calls {
            let (clock, latency) = (number(call, event), number(call, "latency"));
            // A nap takes 100 ms or more. Even a slow machine should stay within half of that.
            assert!(clock <= latency + latency / 2 + 50_000_000, "{call}");
            assert!(clock + latency / 2 >= number(call, "naps") * 100_000_000, "{call}");
        }
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn what_cannot_be_counted_is_refused() {
    let spec = format!("uprobe:{}:{MOVES}", own());
    let trace = |args: &[&str]| probe([&["trace"], args, &[spec.as_str()]].concat());
    assert_exit(&mut trace(&["--counter", "page-faults"]), 2, "give --ret");
    let counting = |events| trace(&["--ret", "--counter", "cs", "--counter", events]);
    assert_failure(&mut counting("faults,cs"), "the counter context-switches is given twice");
    assert_failure(
        &mut counting("faults,cpu-clock,task-clock,minor-faults"),
        "5 counters are given, but a call can have at most 4",
    );
    let named = format!("{spec}/counter > 1/");
    assert_exit(&mut probe(["trace", "--ret", &named]), 1, "counter");
    let third = format!("{spec}/counter3 > 1/");
    let mut with_two = probe(["trace", "--ret", "--counter", "cs,faults", &third]);
    assert_exit(&mut with_two, 1, "counter3");
    assert_exit(&mut trace(&["--ret", "--counter", "page-fualts"]), 2, "page-faults");
}
