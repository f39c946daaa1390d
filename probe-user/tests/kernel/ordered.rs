//! Records of all CPUs in time order, on a real kernel.

use crate::adaptive::lull;
use crate::pipe::runtime;
use crate::suite::records::Numbered;
use crate::suite::{
    Loaded, Received, classifier, emit_on, emit_one_on, generate_on, is_readable, make_lazy, map,
    now, on_numbered, online, open, strict, while_emitting,
};
use probe_testing::switches::waits;
use probe_user::common::control::EVENTS_MAP;
use probe_user::{
    AsyncEvPipe, EvHandlers, EvPipe, Item, Options, OrderedPipe, Progress, RecordStream, Wakeup,
};
use rustix::time::ClockId;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const AMPLE: usize = 4 << 20;

/// Longer than any test, so no record is released because its window ended.
const AGES: Duration = Duration::from_secs(3600);

/// Emulated machines are slow, and never idle.
const SCHEDULING: Duration = Duration::from_secs(5);

fn adaptive(max_latency: Duration) -> Options {
    Options::new().bytes_per_cpu(AMPLE).wakeup(Wakeup::Adaptive { max_latency })
}

fn poll_only() -> Options {
    Options::new().bytes_per_cpu(AMPLE).wakeup(Wakeup::PollOnly)
}

fn open_ordered(options: &Options, window: Duration) -> (Loaded, OrderedPipe) {
    let (object, pipe) = open(options);
    (object, pipe.ordered(window).unwrap())
}

fn two() -> (u32, u32) {
    let online = online();
    assert!(online.len() > 1, "this needs two CPUs");
    (online[0], online[1])
}

fn poll(pipe: &mut OrderedPipe, handlers: &mut EvHandlers<'_>) -> Progress {
    pipe.poll(Some(Duration::from_secs(20)), handlers).unwrap()
}

/// What arrived, in order: timestamps, and the records of each CPU.
#[derive(Default)]
struct Merged {
    times: Vec<u64>,
    received: Received,
}

impl Merged {
    fn handlers(&mut self) -> EvHandlers<'_> {
        let Self { times, received } = self;
        let mut handlers = strict(received);
        handlers.on::<Numbered, _>(|event| times.push(event.time));
        handlers
    }

    fn assert_merged(&self, cpus: &[u32], count: u64) {
        self.received.assert_complete(cpus, count);
        assert!(self.times.is_sorted());
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn records_of_all_cpus_arrive_in_time_order() {
    const N: u32 = 20_000;
    // The window covers producers that are preempted in the middle of a record.
    let max_latency = Duration::from_millis(50);
    let soon = Some(Duration::from_millis(100));
    for options in [adaptive(max_latency), poll_only(), poll_only().budget(10_000)] {
        let (mut object, mut pipe) = open_ordered(&options, SCHEDULING);
        let program = classifier(&mut object, "emit_numbered");
        let mut merged = Merged::default();
        let mut handlers = merged.handlers();
        let (mut count, total) = (0, u64::from(N) * online().len() as u64);
        std::thread::scope(|scope| {
            scope.spawn(|| generate_on(program, &online(), N));
            while count < total {
                count += pipe.poll(soon, &mut handlers).unwrap().records;
            }
        });
        drop(handlers);
        merged.assert_merged(&online(), u64::from(N));
        assert_eq!((count, pipe.late(), pipe.early(), pipe.held()), (total, 0, 0, 0));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn records_of_all_cpus_arrive_in_time_order_through_tokio() {
    const N: u32 = 20_000;
    let (mut object, pipe) = open_ordered(&adaptive(Duration::from_millis(50)), SCHEDULING);
    let total = u64::from(N) * online().len() as u64;
    let runtime = runtime();
    let task = runtime.spawn(async move {
        let mut pipe = AsyncEvPipe::new(pipe).unwrap();
        let mut merged = Merged::default();
        let mut handlers = merged.handlers();
        let mut count = 0;
        while count < total {
            count += pipe.poll(&mut handlers).await.unwrap().records;
        }
        drop(handlers);
        (merged, pipe.into_inner())
    });
    emit_on(&mut object, &online(), N);
    let (merged, pipe) = runtime.block_on(task).unwrap();
    merged.assert_merged(&online(), u64::from(N));
    assert_eq!((pipe.late(), pipe.early(), pipe.held()), (0, 0, 0));
}

/// No record follows, so the end of the window ends the wait.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_lone_record_arrives_through_a_stream() {
    let window = Duration::from_millis(300);
    for wakeup in [Wakeup::EveryRecord, Wakeup::PollOnly] {
        let (mut object, pipe) = open_ordered(&Options::new().wakeup(wakeup), window);
        runtime().block_on(async {
            let mut records = RecordStream::new(pipe).unwrap();
            for cpu in online() {
                emit_one_on(&mut object, cpu);
                let next = tokio::time::timeout(Duration::from_secs(30), records.next());
                let item = next.await.expect("it arrives when it is due").unwrap();
                let Item::Record(record) = item else { panic!("{item:?}") };
                let delay = Duration::from_nanos(now(ClockId::Monotonic) - record.time);
                assert_eq!(record.cpu, cpu);
                assert!(delay >= window, "{delay:?}");
            }
        });
    }
}

/// Registering the pipe takes the readiness of its rings.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_record_that_is_there_before_the_runtime_arrives() {
    for wakeup in [Options::new(), Options::new().wakeup(Wakeup::EveryRecord)] {
        let (mut object, pipe) = open_ordered(&wakeup, Duration::from_millis(300));
        emit_one_on(&mut object, online()[0]);
        runtime().block_on(async {
            let mut records = RecordStream::new(pipe).unwrap();
            let next = tokio::time::timeout(Duration::from_secs(30), records.next());
            assert!(matches!(next.await.expect("it arrives").unwrap(), Item::Record(_)));
        });
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_lone_record_arrives_although_the_window_is_0_and_widened() {
    let wide = Duration::from_millis(300);
    for options in [adaptive(Duration::from_millis(10)), Options::new().wakeup(Wakeup::EveryRecord)]
    {
        let (mut object, pipe) = open_ordered(&options, Duration::ZERO);
        let mut pipe = pipe.widen_while(wide, || true);
        emit_one_on(&mut object, online()[0]);
        let mut delay = None;
        while delay.is_none() {
            let mut handlers = on_numbered(|e| {
                delay = Some(Duration::from_nanos(now(ClockId::Monotonic) - e.time))
            });
            let _ = poll(&mut pipe, &mut handlers);
        }
        let delay = delay.unwrap();
        assert!((wide..wide + SCHEDULING).contains(&delay), "{options:?}: {delay:?}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn records_that_are_dropped_with_the_order_are_unread() {
    let (mut object, mut pipe) = open_ordered(&poll_only(), AGES);
    emit_on(&mut object, &online(), 10);
    let _ = pipe.drain(&mut EvHandlers::new());
    let held = 10 * online().len() as u64;
    assert_eq!(pipe.held() as u64, held);
    let ledger = pipe.into_inner().close(&mut EvHandlers::new()).ledger.unwrap();
    assert_eq!((ledger.handled(), ledger.unread()), (0, held), "{ledger}");
    assert!(ledger.balances() && !ledger.is_complete(), "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_lone_record_arrives_at_the_end_of_its_window() {
    let window = Duration::from_millis(300);
    for options in [
        adaptive(Duration::from_millis(10)),
        adaptive(Duration::from_millis(1200)),
        Options::new().wakeup(Wakeup::EveryRecord),
        Options::new().wakeup(Wakeup::PollOnly).sweep(Duration::from_millis(50)),
    ] {
        let (mut object, mut pipe) = open_ordered(&options, window);
        for cpu in online() {
            let mut delay = None;
            emit_one_on(&mut object, cpu);
            // Without wakeups, the sweep finds the record. In all other cases, a timeout keeps the
            // test from hanging.
            let polls = pipe.get_ref().wakeup() == Wakeup::PollOnly;
            let timeout = (!polls).then_some(Duration::from_secs(30));
            while delay.is_none() {
                let mut handlers = on_numbered(|e| {
                    delay = Some(Duration::from_nanos(now(ClockId::Monotonic) - e.time))
                });
                let _ = pipe.poll(timeout, &mut handlers).unwrap();
            }
            let delay = delay.unwrap();
            assert!(delay >= window, "{options:?}: {delay:?}");
            assert!(delay <= window + SCHEDULING, "{options:?}: {delay:?}");
        }
        assert_eq!((pipe.late(), pipe.held()), (0, 0));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_descriptor_is_readable_when_a_record_is_due() {
    let options = Options::new().wakeup(Wakeup::EveryRecord);
    let (mut object, mut pipe) = open_ordered(&options, Duration::from_millis(300));
    let _ = pipe.drain(&mut EvHandlers::new());
    assert!(!is_readable(&pipe, Duration::ZERO));
    let mut delivered = 0;
    for (round, cpu) in (1..).zip(online()) {
        emit_one_on(&mut object, cpu);
        emit_one_on(&mut object, cpu);
        while delivered < 2 * round {
            assert!(is_readable(&pipe, Duration::from_secs(20)));
            // One record at a time: the descriptor stays readable for those left after a break.
            let mut handlers = on_numbered(|_| ControlFlow::Break(()));
            delivered += pipe.drain(&mut handlers).records;
        }
        assert!(!is_readable(&pipe, Duration::ZERO));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn records_are_held_while_the_window_is_wide() {
    let options = Options::new().wakeup(Wakeup::EveryRecord);
    let (mut object, pipe) = open_ordered(&options, Duration::from_millis(20));
    let is_wide = Arc::new(AtomicBool::new(true));
    let mut pipe = pipe.widen_while(AGES, {
        let is_wide = Arc::clone(&is_wide);
        move || is_wide.load(Ordering::Relaxed)
    });
    emit_one_on(&mut object, online()[0]);
    let before = waits();
    let until = Instant::now() + Duration::from_millis(400);
    while Instant::now() < until {
        let soon = Some(Duration::from_millis(100));
        assert_eq!(pipe.poll(soon, &mut EvHandlers::new()).unwrap().records, 0);
    }
    // It looks again each time that a window has passed, and does not spin.
    let woken = waits() - before;
    assert!(woken <= 60, "woke {woken} times");
    assert!(pipe.drain_all(&mut EvHandlers::new()).is_continue());
    assert_eq!(pipe.held(), 1);
    is_wide.store(false, Ordering::Relaxed);
    while poll(&mut pipe, &mut EvHandlers::new()).records == 0 {}
    assert_eq!((pipe.held(), pipe.late()), (0, 0));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_late_record_is_counted_and_delivered() {
    let (packs, sends) = two();
    // A packed record waits for up to a minute; the window ends long before.
    let options = adaptive(Duration::from_secs(60));
    let (mut object, mut pipe) = open(&options);
    make_lazy(&mut object, &mut pipe, &[packs, sends]);
    let mut pipe = pipe.ordered(Duration::from_millis(1)).unwrap();
    emit_on(&mut object, &[packs], 1);
    // Full blocks do not wait.
    emit_on(&mut object, &[sends], 1000);
    let mut received = Received::default();
    while received.total() == 0 {
        // Full blocks cause no wakeup either.
        let _ = pipe.drain(&mut strict(&mut received));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!received.by_cpu.contains_key(&packs));
    assert_eq!(pipe.late(), 0);
    assert!(pipe.drain_all(&mut strict(&mut received)).is_continue());
    assert_eq!((received.by_cpu[&packs].count, received.by_cpu[&sends].count), (1, 1000));
    assert_eq!(pipe.late(), 1);
    assert_eq!(pipe.close(&mut EvHandlers::new()).late, 1);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn no_record_is_late_because_the_consumer_is() {
    let (packs, sends) = two();
    let window = Duration::from_secs(3);
    let (mut object, mut pipe) = open(&adaptive(Duration::from_secs(2)));
    make_lazy(&mut object, &mut pipe, &[packs, sends]);
    let mut pipe = pipe.ordered(window).unwrap();
    let mut merged = Merged::default();
    // Without a sweep, this record sits in a block that the consumer has not seen.
    emit_on(&mut object, &[packs], 1);
    emit_on(&mut object, &[sends], 1000);
    std::thread::sleep(window + Duration::from_secs(1));
    while merged.received.total() < 1001 {
        let _ = poll(&mut pipe, &mut merged.handlers());
    }
    assert!(merged.times.is_sorted());
    assert_eq!(pipe.late(), 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_record_that_wakes_the_consumer_does_not_wait_for_sweeps() {
    // A sweep would come after 3.2 seconds.
    let window = Duration::from_millis(100);
    let (mut object, mut pipe) = open_ordered(&adaptive(Duration::from_secs(8)), window);
    emit_one_on(&mut object, online()[0]);
    let start = Instant::now();
    while poll(&mut pipe, &mut EvHandlers::new()).records == 0 {}
    assert!(start.elapsed() < window + SCHEDULING, "{:?}", start.elapsed());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_idle_pipe_does_not_wake() {
    let options = adaptive(Duration::from_millis(2));
    let (mut object, mut pipe) = open_ordered(&options, Duration::from_millis(5));
    emit_one_on(&mut object, online()[0]);
    while poll(&mut pipe, &mut EvHandlers::new()).records == 0 {}
    lull(|wait| {
        let _ = pipe.poll(Some(wait), &mut EvHandlers::new()).unwrap();
    });
    let before = waits();
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now());
        assert_eq!(pipe.poll(Some(left), &mut EvHandlers::new()).unwrap().records, 0);
    }
    // The timeout accounts for one wait, and reading the counter for up to two. Periodic sweeps
    // would add hundreds.
    let woken = waits() - before;
    assert!(woken <= 10, "woke {woken} times");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_stop_and_a_close_release_everything_in_time_order() {
    const N: u32 = 5000;
    let (mut object, mut pipe) = open_ordered(&adaptive(Duration::from_millis(10)), AGES);
    let mut merged = Merged::default();
    while_emitting(&mut object, N, |stop| pipe.run(stop, &mut merged.handlers()).unwrap());
    merged.assert_merged(&online(), u64::from(N));
    emit_on(&mut object, &online(), N);
    assert_eq!(pipe.drain(&mut merged.handlers()).records, 0);
    let summary = pipe.close(&mut merged.handlers());
    merged.assert_merged(&online(), 2 * u64::from(N));
    assert_eq!((summary.late, summary.early), (0, 0));
    assert_eq!(summary.total.records, 2 * u64::from(N) * online().len() as u64);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_stops_or_panics_gets_every_record_once() {
    const N: u32 = 50;
    let (mut object, mut pipe) = open_ordered(&poll_only(), Duration::ZERO);
    emit_on(&mut object, &online(), N);
    let total = N as usize * online().len();
    let mut merged = Merged::default();
    while merged.times.len() < total {
        let panics = merged.times.len() % 2 == 0;
        let mut handlers = merged.handlers();
        handlers.on::<Numbered, _>(|_| {
            assert!(!panics, "on purpose");
            ControlFlow::Break(())
        });
        let drained = catch_unwind(AssertUnwindSafe(|| pipe.drain(&mut handlers)));
        assert_eq!(drained.is_err(), panics);
    }
    merged.assert_merged(&online(), u64::from(N));
    assert_eq!((pipe.held(), pipe.drain(&mut EvHandlers::new()).records), (0, 0));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_cpu_that_never_stops_does_not_hold_up_what_is_due() {
    let (mut object, mut pipe) = open_ordered(
        &Options::new().bytes_per_cpu(64 << 10).budget(1000).wakeup(Wakeup::PollOnly),
        Duration::ZERO,
    );
    let mut delivered = 0;
    // 96 bytes each; a drain takes eleven.
    for _ in 0..200 {
        emit_on(&mut object, &online()[..1], 20);
        let progress = pipe.drain(&mut EvHandlers::new());
        assert!(progress.pending);
        delivered += progress.records;
    }
    assert!(delivered > 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_oldest_are_delivered_early_when_memory_is_full() {
    const N: u32 = 10_000;
    let (mut object, pipe) = open_ordered(&poll_only(), AGES);
    let mut pipe = pipe.memory(0);
    emit_on(&mut object, &online(), N);
    let mut received = Received::default();
    let progress = pipe.drain(&mut strict(&mut received));
    assert!(pipe.early() > 0);
    assert_eq!(progress.records, pipe.early() + pipe.late());
    // The capacity of 256 KiB.
    assert!(pipe.held() < (256 << 10) / 88);
    let summary = pipe.close(&mut strict(&mut received));
    received.assert_complete(&online(), u64::from(N));
    assert!(summary.early > 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_good_window_is_longer_than_the_latency() {
    let latency = Duration::from_millis(700);
    let (object, pipe) = open(&adaptive(latency));
    assert!(pipe.good_window() > latency);
    drop(pipe);
    // The pipe has fallen back to a policy without packing.
    let pipe = EvPipe::from_map(map(&object, EVENTS_MAP), &adaptive(latency)).unwrap();
    assert!(pipe.good_window() < latency);
}
