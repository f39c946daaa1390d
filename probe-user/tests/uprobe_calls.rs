//! Entry and return in one event, of functions of programs and libraries: this test's own, whose calls are
//! known, and those of the C library.

mod probe;

use probe::{all_json_lines, assert_failure, json_line, json_lines, probe, stderr, stdout};
use rustix::process::{Pid, WaitOptions, waitpid};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::Output;
use std::time::Duration;

/// What is probed: a program's own functions, by their names.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ucalls_fixture_triple(number: u64) -> u64 {
    black_box(number).wrapping_mul(3)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ucalls_fixture_sum(number: u64) -> u64 {
    // Calls itself, so that many are under way at a time.
    if number == 0 { 0 } else { black_box(ucalls_fixture_sum(black_box(number - 1))) + number }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ucalls_fixture_nap(milliseconds: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(black_box(milliseconds)));
    milliseconds + 1
}

/// Returns in a child, too, and there first.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ucalls_fixture_forks(number: u64) -> u64 {
    let Some(child) = Pid::from_raw(fork()) else { return IN_CHILD };
    let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0));
    number + 1
}

const IN_CHILD: u64 = u64::MAX;

// SAFETY: of the C library. A child does nothing but return once, and exit.
unsafe extern "C" {
    safe fn fork() -> i32;
    safe fn _exit(status: i32) -> !;
}

// What no compiler is sure to make of a program: a function that ends with a jump to
// another, and one that is left, as by `longjmp`, for where its caller returns to.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.ucalls_fixture, \"ax\", @progbits",
    ".macro ucalls_function name",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    ".endm",
    "ucalls_function ucalls_fixture_jumps",
    // Five bytes that do nothing, which new kernels replace by a call.
    ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
    "inc rdi",
    "jmp {triple}",
    ".size ucalls_fixture_jumps, . - ucalls_fixture_jumps",
    "ucalls_function ucalls_fixture_leaves",
    "push rbp",
    "mov rbp, rsp",
    "call ucalls_fixture_left",
    "ud2",
    ".size ucalls_fixture_leaves, . - ucalls_fixture_leaves",
    "ucalls_function ucalls_fixture_left",
    "lea rax, [rdi + 5]",
    "mov rsp, rbp",
    "pop rbp",
    "ret",
    ".size ucalls_fixture_left, . - ucalls_fixture_left",
    ".purgem ucalls_function",
    ".popsection",
    triple = sym ucalls_fixture_triple,
);

// SAFETY: they keep to the calling convention, and touch no memory but their stack.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    safe fn ucalls_fixture_jumps(number: u64) -> u64;
    safe fn ucalls_fixture_leaves(number: u64) -> u64;
}

const WORK: &str = "UCALLS_FIXTURE_WORK";
const TRIPLE: &str = "ucalls_fixture_triple";
const SUM: &str = "ucalls_fixture_sum";
const NAP: &str = "ucalls_fixture_nap";

/// Does what the environment says, and without it, nothing.
#[test]
#[ignore = "what the others trace: cargo xtask test"]
fn workload() {
    let work = std::env::var(WORK).unwrap_or_default();
    let mut words = work.split_terminator(' ').peekable();
    while let Some(name) = words.next() {
        let mut numbers = Vec::new();
        while let Some(number) = words.peek().and_then(|word| word.parse().ok()) {
            numbers.push(number);
            words.next();
        }
        work_on(name, &numbers);
    }
}

fn work_on(name: &str, numbers: &[u64]) {
    match (name, numbers) {
        ("triple", &[calls]) => triple(0..calls),
        ("threads", &[threads, calls, depth]) => std::thread::scope(|scope| {
            for first in (0..threads).map(|thread| thread * calls) {
                scope.spawn(move || {
                    triple(first..first + calls);
                    assert_eq!(ucalls_fixture_sum(depth), depth * (depth + 1) / 2);
                });
            }
        }),
        ("sum", &[depth]) => assert_eq!(ucalls_fixture_sum(depth), depth * (depth + 1) / 2),
        ("naps", naps) => naps.iter().for_each(|&nap| assert_eq!(ucalls_fixture_nap(nap), nap + 1)),
        ("forks", &[calls]) => {
            for number in 0..calls {
                match ucalls_fixture_forks(number) {
                    IN_CHILD => _exit(0),
                    returned => assert_eq!(returned, number + 1),
                }
            }
        }
        ("dies", &[nap]) => std::thread::scope(|scope| {
            scope.spawn(|| ucalls_fixture_nap(1_000_000));
            std::thread::sleep(Duration::from_millis(nap));
            std::process::exit(0);
        }),
        #[cfg(target_arch = "x86_64")]
        ("jumps", &[calls]) => {
            (0..calls).for_each(|n| assert_eq!(ucalls_fixture_jumps(n), 3 * (n + 1)));
        }
        #[cfg(target_arch = "x86_64")]
        ("leaves", &[calls]) => {
            (0..calls).for_each(|n| assert_eq!(ucalls_fixture_leaves(n), n + 5));
        }
        _ => panic!("{name} {numbers:?}"),
    }
}

fn triple(numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| assert_eq!(ucalls_fixture_triple(number), number * 3));
}

fn own() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

/// A command that does such work, and prints nothing.
fn workload_command() -> [String; 4] {
    let script = "exec \"$0\" --ignored --exact workload >/dev/null";
    ["sh", "-c", script, &own()].map(str::to_owned)
}

fn run(args: &[&str], work: &str) -> Output {
    let mut run = probe(args);
    let output = run.arg("--").args(workload_command()).env(WORK, work).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// The calls that were told, by the function, and of each function how many returns were not seen.
fn calls(specs: &[&str], work: &str) -> (BTreeMap<String, Vec<Value>>, Vec<u64>) {
    let specs: Vec<_> = specs.iter().map(|spec| spec.replace("OWN", &own())).collect();
    let specs = specs.iter().map(String::as_str);
    let args: Vec<_> =
        ["trace", "-F", "jsonl", "-B", "4M", "--ret"].into_iter().chain(specs).collect();
    told(&run(&args, work))
}

fn told(output: &Output) -> (BTreeMap<String, Vec<Value>>, Vec<u64>) {
    let lines = all_json_lines(output);
    let ledger = &lines[lines.len() - 1];
    assert_eq!((&ledger["lost"], &ledger["complete"]), (&json!(0), &json!(true)), "{ledger}");
    let missed = |one: &Value| {
        assert_eq!(one["no_room"], 0, "{ledger}");
        one["no_return"].as_u64().unwrap()
    };
    let missed = ledger["missed"].as_array().unwrap().iter().map(missed).collect();
    let mut calls = BTreeMap::<_, Vec<_>>::new();
    for event in json_lines(output) {
        assert_eq!(event["type"], "call");
        assert!(event["args"]["latency"].as_u64().is_some_and(|latency| latency > 0), "{event}");
        calls.entry(event["probe"].as_str().unwrap().to_owned()).or_default().push(event);
    }
    (calls, missed)
}

fn number(event: &Value, name: &str) -> u64 {
    event["args"][name].as_u64().unwrap_or_else(|| panic!("{name} of {event}"))
}

/// An argument and the result of each call, in order.
fn pairs(events: &[Value]) -> Vec<(u64, u64)> {
    let mut pairs: Vec<_> =
        events.iter().map(|event| (number(event, "n"), number(event, "retval"))).collect();
    pairs.sort_unstable();
    pairs
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
    // A call ends after those in it, and began before them.
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
fn conditions_are_decided_when_what_they_need_is_known() {
    for (condition, expected) in [
        ("arg0 >= 50 && retval < 180 && latency > 0", 10),
        ("arg0 < 5 || retval > 290", 8),
        ("latency > 3600000000000", 0),
    ] {
        let spec = format!("u:OWN:{TRIPLE}{PAIR}/{condition}/");
        let (calls, missed) = calls(&[&spec], "triple 100");
        let told = calls.get(TRIPLE).map_or(0, Vec::len);
        assert_eq!((told, &missed[..]), (expected, &[0][..]), "{condition}");
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_pattern_is_the_calls_of_each_function_that_matches() {
    // Without fields, there are all arguments.
    let (calls, missed) = calls(&["uprobe:OWN:ucalls_fixture_*"], "threads 1 50 20");
    assert!(missed.iter().all(|&missed| missed == 0), "{missed:?}");
    let counts: Vec<_> = calls.iter().map(|(name, calls)| (name.as_str(), calls.len())).collect();
    assert_eq!(counts, [(SUM, 21), (TRIPLE, 50)]);
    let names: Vec<_> = calls[SUM][0]["args"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5", "latency", "retval"]);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn slow_calls_are_told_and_timed() {
    const SLOW: u64 = 300;
    let (work, longer) =
        (format!("naps {}{SLOW} 0 {SLOW}", "0 ".repeat(20)), ["--longer", "200ms"]);
    let spec = format!("uprobe:{}:{NAP}(n=arg0:u64, retval:u64, latency)", own());
    let args = [&["trace", "-F", "jsonl", &spec][..], &longer].concat();
    let (calls, missed) = told(&run(&args, &work));
    let told = &calls[NAP];
    assert_eq!(
        (told.iter().filter(|event| number(event, "n") == SLOW).count(), missed),
        (2, vec![0])
    );
    // The machine may be slow itself now and then.
    assert!(told.len() < 10, "{told:#?}");
    for event in told {
        let least = number(event, "n").max(200) * 1_000_000;
        assert!(number(event, "latency") >= least, "{event}");
        assert_eq!(number(event, "retval"), number(event, "n") + 1);
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn every_call_is_in_a_bucket() {
    let own = own();
    let specs = [TRIPLE, NAP].map(|name| format!("uprobe:{own}:{name}"));
    let timed = |specs: &[&str], work| {
        let output = run(&[&["latency", "-F", "jsonl"], specs].concat(), work);
        let lines: Vec<_> = stdout(&output).lines().map(json_line).collect();
        lines
            .into_iter()
            .map(|line| (line["probe"].as_str().unwrap().to_owned(), line))
            .collect::<BTreeMap<_, _>>()
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
    let few = format!("{}/retval < 300 && arg0 > 9/", specs[0]);
    assert_eq!(in_buckets(&timed(&[&few], "triple 1000")[TRIPLE]), 90);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_recording_has_the_same_calls() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("calls");
    let file = file.to_str().unwrap();
    let spec = format!("uprobe:{}:{TRIPLE}{PAIR}", own());
    run(&["record", "--ret", "-o", file, "-B", "4M", &spec], "triple 100");
    let replayed = probe(["replay", "-F", "jsonl", file]).output().unwrap();
    let (calls, missed) = told(&replayed);
    assert_eq!(pairs(&calls[TRIPLE]), (0..100).map(|n| (n, 3 * n)).collect::<Vec<_>>());
    assert_eq!(missed, [0]);
}

/// Where a function forks, it returns in two processes: the call returns in the one that began it.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_call_that_forks_returns_once() {
    let (calls, missed) = calls(&[&format!("uprobe:OWN:ucalls_fixture_forks{PAIR}")], "forks 10");
    let calls = &calls["ucalls_fixture_forks"];
    assert_eq!((pairs(calls), &missed[..]), ((0..10).map(|n| (n, n + 1)).collect(), &[0][..]));
    assert!(calls.iter().all(|event| event["pid"] == calls[0]["pid"]), "{calls:#?}");
}

/// Where the kernel is one that preempts, programs of a probe preempt each other in the middle of a call.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn calls_that_preempt_each_other_are_all_timed() {
    const EACH: u64 = 2000;
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8; do \
           dd if=/dev/zero of=/dev/null bs=7 count={EACH} status=none & done; wait"
    );
    let spec = "uprobe:libc:read/arg0 == 0 && arg2 == 7/";
    let start = std::time::Instant::now();
    let mut run = probe(["latency", "-F", "jsonl", spec, "--", "sh", "-c"]);
    let output = run.arg(script).output().unwrap();
    let line = json_line(stdout(&output).lines().next().expect("a line"));
    let expected = [("calls", 8 * EACH), ("missed", 0), ("untimed", 0)];
    assert_eq!(expected.map(|(key, _)| (key, line[key].as_u64().unwrap())), expected, "{line}");
    // None of eight processes was there for longer.
    let most = 8 * start.elapsed().as_nanos();
    assert!(u128::from(line["total"].as_u64().unwrap()) < most, "{line}");
}

/// Processes that one forks have their stacks at the same addresses.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn calls_of_processes_at_the_same_place_of_their_stacks_are_told_apart() {
    const COUNT: usize = 8;
    // They read at the same time, until there is nobody who could write.
    let script = format!(
        "sleep 1 | {{ exec 3<&0; i=0; while [ $i -lt {COUNT} ]; do (read x <&3) & i=$((i+1)); done; wait; }}"
    );
    let spec = "uprobe:libc:read(file=arg0:s32, size=arg2:u64, retval:s64, latency)/arg0 == 0/";
    let mut run = probe(["trace", "-F", "jsonl", "--ret", spec, "--", "sh", "-c"]);
    let output = run.arg(script).output().unwrap();
    let (calls, missed) = told(&output);
    let calls = &calls["read"];
    assert_eq!((calls.len(), &missed[..]), (COUNT, &[0][..]), "{}", stderr(&output));
    let pids: std::collections::BTreeSet<_> =
        calls.iter().map(|event| event["pid"].as_u64()).collect();
    assert_eq!(pids.len(), COUNT);
    assert!(calls.iter().all(|event| event["args"]["retval"] == 0), "{calls:#?}");
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
fn a_call_that_is_left_is_missed_and_no_other_is() {
    let specs = ["leaves", "left"].map(|name| format!("uprobe:OWN:ucalls_fixture_{name}{PAIR}"));
    let (calls, missed) = calls(&specs.each_ref().map(String::as_str), "leaves 30");
    // Each is replaced by the next, but for the last.
    assert_eq!(missed, [0, 30]);
    let names: Vec<_> = calls.keys().collect();
    assert_eq!(names, ["ucalls_fixture_leaves"]);
    let expected: Vec<_> = (0..30).map(|n| (n, n + 5)).collect();
    assert_eq!(pairs(&calls["ucalls_fixture_leaves"]), expected);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn calls_whose_return_the_kernel_does_not_tell_of_are_counted() {
    let (calls, missed) = calls(&[&format!("u:OWN:{SUM}{PAIR}")], "sum 99");
    // Of calls in one another, it tells 64 returns: those of the outer ones.
    assert_eq!((calls[SUM].len(), &missed[..]), (64, &[36][..]));
    let expected: Vec<_> = (36..100).map(|n| (n, n * (n + 1) / 2)).collect();
    assert_eq!(pairs(&calls[SUM]), expected);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_call_in_which_its_process_ends_is_counted() {
    let (calls, missed) = calls(&[&format!("u:OWN:{NAP}")], "dies 500");
    assert_eq!((calls.len(), &missed[..]), (0, &[1][..]));
    // One that becomes another program has left the call for good.
    let spec = "u:libc:execve(retval, latency)/comm == \"sh\"/";
    let mut run = probe(["trace", "-F", "jsonl", "--ret", spec, "--", "sh", "-c"]);
    let output = run.arg("exec /bin/sh -c 'exec /bin/true'").output().unwrap();
    let (calls, missed) = told(&output);
    assert_eq!((calls.len(), &missed[..]), (0, &[2][..]), "{}", stderr(&output));
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn what_is_no_call_is_refused() {
    let told = "that is for functions by their names";
    for spec in ["ur:libc:malloc", "u:libc:malloc+4"] {
        for command in [&["trace", "--ret"][..], &["trace", "--longer", "1ms"], &["latency"]] {
            assert_failure(probe(command).arg(spec), told);
        }
    }
}
