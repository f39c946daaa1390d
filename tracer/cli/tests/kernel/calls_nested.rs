//! Calls in progress at the same time, with the tracer as a library: recursive ones, those of kernel
//! functions inside those of a program's, and more than the tracer keeps or the kernel tracks.

use crate::probe::commands::own;
use probe_testing::version;
use probe_tracer::{Missed, Probe, Target, TraceEvent, Tracer, TracerBuilder, Value};
use probe_user::common::RawRecord;
use probe_user::{Consumer, Loss, Malformed, Stop};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Start and end times of calls, whose fields are the latency and optionally the result.
struct Calls {
    probe: Probe,
    spans: Vec<(u64, u64)>,
}

impl Consumer for Calls {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        if let Some(event) = TraceEvent::decode(cpu, record) {
            let values: Vec<_> = event.values(&self.probe).map(|(_, value)| value).collect();
            let [Value::Integer(latency), results @ ..] = &values[..] else { panic!("{values:?}") };
            assert!(results.iter().all(|result| matches!(result, Value::Integer(..10))));
            self.spans.push((event.time - latency, event.time));
        }
        ControlFlow::Continue(())
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        panic!("{loss}")
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        panic!("{malformed}")
    }
}

/// The calls of one probe up to now, and those without an event.
fn close(mut tracer: Tracer) -> (Vec<(u64, u64)>, Missed) {
    let mut calls = Calls { probe: tracer.probes()[0].clone(), spans: Vec::new() };
    let stop = Stop::new().unwrap();
    stop.stop();
    tracer.run(&stop, &mut calls).unwrap();
    let ledger = tracer.close(&mut calls).unwrap();
    assert!(ledger.records.balances(), "{ledger}");
    (calls.spans, ledger.missed[0])
}

/// A shell that waits for its input to close, then runs `count` concurrent `sleep`s and waits for
/// them.
fn sleepers(count: u32, seconds: &str) -> Child {
    let script = format!(
        "read go; i=0; while [ $i -lt {count} ]; do sleep {seconds} & i=$((i+1)); done; wait"
    );
    Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap()
}

/// The `sleep` children of a shell that are sleeping now.
fn asleep(shell: u32) -> Vec<Pid> {
    let is_asleep = |pid: &String| {
        let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        // For a blocked task, the file starts with the number of its system call.
        let waits_in = read("syscall");
        let number = waits_in.split(' ').next().and_then(|number| number.parse().ok());
        let sleeps = matches!(number, Some(libc::SYS_nanosleep | libc::SYS_clock_nanosleep));
        // Only children of the shell in the sleeping state. A runnable task may be anywhere in the
        // system call.
        let own = format!(" S {shell} ");
        let waits = read("stat").rsplit(')').next().is_some_and(|rest| rest.starts_with(&own));
        read("comm") == "sleep\n" && sleeps && waits
    };
    let entries = fs::read_dir("/proc").unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(is_asleep).map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
}

/// Traces the sleeps of a shell until the shell exits or, with `until`, until that many are in
/// progress. In the second case it kills them after the trace. Returns the number of events.
fn trace(set_up: TracerBuilder, mut shell: Child, until: Option<usize>) -> (u64, Missed) {
    let target = Target::Descendants(shell.id());
    let probe = "hrtimer_nanosleep(latency)".parse().unwrap();
    let tracer = set_up.target(target).probe(probe).calls().attach().unwrap();
    drop(shell.stdin.take());
    match until {
        Some(count) => {
            let start = Instant::now();
            while asleep(shell.id()).len() < count {
                assert!(start.elapsed() < Duration::from_secs(60), "they do not sleep");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        None => assert!(shell.wait().unwrap().success()),
    }
    let (spans, missed) = close(tracer);
    if until.is_some() {
        asleep(shell.id()).into_iter().for_each(|pid| kill_process(pid, Signal::KILL).unwrap());
        shell.wait().unwrap();
    }
    (spans.len() as u64, missed)
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn calls_beyond_the_tracers_limit_are_counted() {
    // Fewer calls than the kernel can track at once.
    let (events, missed) = trace(Tracer::builder().keep_calls(2), sleepers(4, "1000"), Some(4));
    assert_eq!((events, missed.no_room, missed.no_return), (0, 2, 2), "{missed}");
    assert_eq!(missed.by_kernel.unwrap_or(0), 0, "{missed}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn returns_that_the_kernel_does_not_report_are_counted() {
    let (events, missed) = trace(Tracer::builder(), sleepers(40, "8"), None);
    assert_eq!(events + missed.no_return, 40, "{missed}");
    assert_eq!(missed.no_room, 0, "{missed}");
    // Old kernels track one call per CPU; new ones ten, or two per CPU.
    assert!((4..40).contains(&events), "{events} events, {missed}");
    if let Some(hits) = missed.by_kernel {
        assert_eq!(hits, missed.no_return, "{missed}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn calls_in_progress_at_the_end_are_counted() {
    let (events, missed) = trace(Tracer::builder(), sleepers(3, "1000"), Some(3));
    assert_eq!((events, missed.no_return, missed.no_room), (0, 3, 0), "{missed}");
}

/// When one epoll is added to another, the kernel searches recursively for loops.
#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_recursive_function_has_an_event_for_each_call() {
    let tracer = Tracer::builder()
        .target(Target::Process(std::process::id()))
        .probe("ep_loop_check_proc(latency, retval)".parse().unwrap())
        .calls()
        .attach()
        .unwrap();
    let chain: Vec<_> = (0..4).map(|_| epoll::create(CreateFlags::CLOEXEC).unwrap()).collect();
    for pair in chain.windows(2).rev() {
        epoll::add(&pair[0], &pair[1], EventData::new_u64(0), EventFlags::IN).unwrap();
    }
    let (mut spans, missed) = close(tracer);
    assert!(missed.is_nothing(), "{missed}");
    // A single call, then one with a nested call, then one with two.
    spans.sort_unstable();
    assert_eq!(spans.len(), 1 + 2 + 3, "{spans:?}");
    for group in [&spans[..1], &spans[1..3], &spans[3..]] {
        assert!(group.is_sorted_by(|outer, inner| inner.1 <= outer.1), "{spans:?}");
    }
    assert!(spans[0].1 < spans[1].0 && spans[1].1 < spans[3].0, "{spans:?}");
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn nested_fixture(depth: u64) -> u64 {
    // Recursive, so that many calls are in progress at once.
    if depth == 0 { 1 } else { black_box(nested_fixture(black_box(depth - 1))) + 1 }
}

/// The kernel calls this function with a map's lock held, when it evicts the map's oldest entry.
#[test]
#[ignore = "needs root, BPF, kprobes and uprobes: cargo xtask test"]
fn calls_in_the_kernel_do_not_wait_for_the_map_that_they_interrupt() {
    const ROUNDS: u64 = 200;
    const DEPTH: u64 = 19;
    let user = format!("uprobe:{}:nested_fixture", own());
    let stopwatch = Tracer::builder()
        .target(Target::Process(std::process::id()))
        .probe("kprobe:htab_lru_map_delete_node".parse().unwrap())
        .probe(user.parse().unwrap())
        .keep_calls(4)
        .time_with(|_| {})
        .unwrap();
    for _ in 0..ROUNDS {
        assert_eq!(nested_fixture(DEPTH), DEPTH + 1);
    }
    let latencies = stopwatch.close().unwrap();
    let [(_, kernel), (_, user)] = &latencies.probes[..] else { panic!("{latencies:?}") };
    let (timed, missed) = (user.histogram.calls(), user.missed);
    assert_eq!(timed + user.untimed + missed.calls(), ROUNDS * (DEPTH + 1), "{missed}");
    assert!(missed.no_room > 0, "{missed}");
    // Before 6.0 the kernel runs no kprobe program inside a uprobe program.
    if version::kernel() >= (6, 0) {
        assert!(kernel.histogram.calls() > 0, "{}", kernel.missed);
    }
}
