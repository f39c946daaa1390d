//! Records of all CPUs by time, on a real kernel.

mod suite;

use probe_user::common::control::EVENTS_MAP;
use probe_user::{
    AsyncEvPipe, EvHandlers, EvPipe, Item, Options, OrderedPipe, Progress, RecordStream, Stop,
    Wakeup,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::time::ClockId;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use suite::records::Numbered;
use suite::{Received, classifier, emit_one_on, generate_on, load, now, online, strict};

const AMPLE: usize = 4 << 20;

/// Longer than any test: what is given before is not given by a window.
const AGES: Duration = Duration::from_secs(3600);

/// Emulated machines are slow, and never idle.
const SCHEDULING: Duration = Duration::from_secs(5);

fn adaptive(max_latency: Duration) -> Options {
    Options::new().bytes_per_cpu(AMPLE).wakeup(Wakeup::Adaptive { max_latency })
}

fn poll_only() -> Options {
    Options::new().bytes_per_cpu(AMPLE).wakeup(Wakeup::PollOnly)
}

/// Two CPUs.
fn two() -> (u32, u32) {
    let online = online();
    assert!(online.len() > 1, "this needs two CPUs");
    (online[0], online[1])
}

fn poll(pipe: &mut OrderedPipe, handlers: &mut EvHandlers<'_>) -> Progress {
    pipe.poll(Some(Duration::from_secs(20)), handlers).unwrap()
}

/// What came, in this order: the times, and each CPU's records.
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
fn records_of_all_cpus_come_by_time() {
    const N: u32 = 20_000;
    // The window is for producers that do not get to run in the midst of a record.
    let max_latency = Duration::from_millis(50);
    let soon = Some(Duration::from_millis(100));
    for options in [adaptive(max_latency), poll_only(), poll_only().budget(10_000)] {
        let mut object = load();
        let pipe = EvPipe::from_object(&mut object, &options).unwrap();
        let mut pipe = pipe.ordered(SCHEDULING).unwrap();
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
fn records_of_all_cpus_come_by_time_through_tokio() {
    const N: u32 = 20_000;
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &adaptive(Duration::from_millis(50))).unwrap();
    let pipe = pipe.ordered(SCHEDULING).unwrap();
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
    generate_on(classifier(&mut object, "emit_numbered"), &online(), N);
    let (merged, pipe) = runtime.block_on(task).unwrap();
    merged.assert_merged(&online(), u64::from(N));
    assert_eq!((pipe.late(), pipe.early(), pipe.held()), (0, 0, 0));
}

/// Nothing follows it: what ends the wait is the window.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_lone_record_comes_through_a_stream() {
    let window = Duration::from_millis(300);
    let options = Options::new().wakeup(Wakeup::EveryRecord);
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &options).unwrap().ordered(window).unwrap();
    runtime().block_on(async {
        let mut records = RecordStream::new(pipe).unwrap();
        for cpu in online() {
            emit_one_on(&mut object, cpu);
            let next = tokio::time::timeout(Duration::from_secs(30), records.next());
            match next.await.expect("it comes when it is due").unwrap() {
                Item::Record(record) => {
                    let delay = Duration::from_nanos(now(ClockId::Monotonic) - record.time);
                    assert_eq!(record.cpu, cpu);
                    assert!(delay >= window, "{delay:?}");
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_lone_record_comes_when_its_window_is_over() {
    let window = Duration::from_millis(300);
    for options in [
        adaptive(Duration::from_millis(10)),
        adaptive(Duration::from_millis(1200)),
        Options::new().wakeup(Wakeup::EveryRecord),
        Options::new().wakeup(Wakeup::PollOnly).sweep(Duration::from_millis(50)),
    ] {
        let mut object = load();
        let pipe = EvPipe::from_object(&mut object, &options).unwrap();
        let mut pipe = pipe.ordered(window).unwrap();
        for cpu in online() {
            let mut delay = None;
            emit_one_on(&mut object, cpu);
            // Where nobody wakes, it is the poll's own interval that finds the record. Elsewhere,
            // the test must not wait for ever.
            let polls = pipe.get_ref().wakeup() == Wakeup::PollOnly;
            let timeout = (!polls).then_some(Duration::from_secs(30));
            while delay.is_none() {
                let mut handlers = EvHandlers::new();
                handlers.on::<Numbered, _>(|e| {
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
fn the_descriptor_tells_when_a_record_is_due() {
    let window = Duration::from_millis(300);
    let mut object = load();
    let options = Options::new().wakeup(Wakeup::EveryRecord);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap().ordered(window).unwrap();
    let _ = pipe.drain(&mut EvHandlers::new());
    let readable = |pipe: &OrderedPipe, seconds| {
        let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
        rustix::event::poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout)).unwrap() == 1
    };
    assert!(!readable(&pipe, 0));
    let mut given = 0;
    for (round, cpu) in (1..).zip(online()) {
        emit_one_on(&mut object, cpu);
        emit_one_on(&mut object, cpu);
        while given < 2 * round {
            assert!(readable(&pipe, 20), "the descriptor does not tell");
            // One at a time: what a break leaves keeps it readable.
            let mut handlers = EvHandlers::new();
            handlers.on::<Numbered, _>(|_| ControlFlow::Break(()));
            given += pipe.drain(&mut handlers).records;
        }
        assert!(!readable(&pipe, 0));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_late_record_is_counted_and_given() {
    let mut object = load();
    let (packs, sends) = two();
    // A record that is packed waits for a minute; the window is over long before.
    let options = adaptive(Duration::from_secs(60));
    let pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let mut pipe = pipe.ordered(Duration::from_millis(1)).unwrap();
    let _ = pipe.drain(&mut EvHandlers::new());
    generate_on(classifier(&mut object, "emit_numbered"), &[packs], 1);
    // Full blocks do not wait.
    generate_on(classifier(&mut object, "emit_numbered"), &[sends], 1000);
    let mut received = Received::default();
    while received.total() == 0 {
        // Nobody wakes for them, either.
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
    let mut object = load();
    let (packs, sends) = two();
    let pipe = EvPipe::from_object(&mut object, &adaptive(Duration::from_secs(2))).unwrap();
    let window = Duration::from_secs(3);
    let mut pipe = pipe.ordered(window).unwrap();
    let mut merged = Merged::default();
    let _ = pipe.drain(&mut merged.handlers());
    // While nobody sweeps, this one is in a block that nobody has seen.
    generate_on(classifier(&mut object, "emit_numbered"), &[packs], 1);
    generate_on(classifier(&mut object, "emit_numbered"), &[sends], 1000);
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
    let mut object = load();
    // A sweep every 3.2 seconds: the second finds the consumer idle, and the second after it wakes
    // settles what came before the first.
    let latency = Duration::from_secs(8);
    let pipe = EvPipe::from_object(&mut object, &adaptive(latency)).unwrap();
    let window = Duration::from_millis(100);
    let mut pipe = pipe.ordered(window).unwrap();
    // Asleep for longer than the latency.
    let until = Instant::now() + 2 * latency;
    while Instant::now() < until {
        let _ = pipe.poll(Some(Duration::from_secs(1)), &mut EvHandlers::new()).unwrap();
    }
    emit_one_on(&mut object, online()[0]);
    let start = Instant::now();
    while poll(&mut pipe, &mut EvHandlers::new()).records == 0 {}
    assert!(start.elapsed() < window + SCHEDULING, "{:?}", start.elapsed());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_idle_pipe_does_not_wake() {
    let mut object = load();
    let options = adaptive(Duration::from_millis(2));
    let pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let mut pipe = pipe.ordered(Duration::from_millis(5)).unwrap();
    emit_one_on(&mut object, online()[0]);
    let (mut records, until) = (0, Instant::now() + Duration::from_secs(1));
    while records == 0 || Instant::now() < until {
        records +=
            pipe.poll(Some(Duration::from_millis(100)), &mut EvHandlers::new()).unwrap().records;
    }
    let before = suite::switches::waits();
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now());
        assert_eq!(pipe.poll(Some(left), &mut EvHandlers::new()).unwrap().records, 0);
    }
    // The timeout ends one wait, and the reading of the counter may be two. Ticks would be hundreds.
    let woken = suite::switches::waits() - before;
    assert!(woken <= 10, "woke {woken} times");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_stop_and_a_close_release_everything_by_time() {
    const N: u32 = 5000;
    let mut object = load();
    let options = adaptive(Duration::from_millis(10));
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap().ordered(AGES).unwrap();
    let mut merged = Merged::default();
    let stop = Stop::new().unwrap();
    std::thread::scope(|scope| {
        let program = classifier(&mut object, "emit_numbered");
        scope.spawn(|| {
            generate_on(program, &online(), N);
            stop.stop();
        });
        pipe.run(&stop, &mut merged.handlers()).unwrap();
    });
    merged.assert_merged(&online(), u64::from(N));
    generate_on(classifier(&mut object, "emit_numbered"), &online(), N);
    assert_eq!(pipe.drain(&mut merged.handlers()).records, 0);
    let summary = pipe.close(&mut merged.handlers());
    merged.assert_merged(&online(), 2 * u64::from(N));
    assert_eq!((summary.late, summary.early), (0, 0));
    assert_eq!(summary.pipe.total.records, 2 * u64::from(N) * online().len() as u64);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_stops_or_panics_gets_every_record_once() {
    const N: u32 = 50;
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &poll_only()).unwrap();
    let mut pipe = pipe.ordered(Duration::ZERO).unwrap();
    generate_on(classifier(&mut object, "emit_numbered"), &online(), N);
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
    let mut object = load();
    let options = Options::new().bytes_per_cpu(64 << 10).budget(1000).wakeup(Wakeup::PollOnly);
    let pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let mut pipe = pipe.ordered(Duration::ZERO).unwrap();
    let mut given = 0;
    // 96 bytes each, of which a drain takes eleven.
    for _ in 0..200 {
        generate_on(classifier(&mut object, "emit_numbered"), &online()[..1], 20);
        let progress = pipe.drain(&mut EvHandlers::new());
        assert!(progress.pending);
        given += progress.records;
    }
    assert!(given > 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn without_room_the_oldest_are_given_early() {
    const N: u32 = 10_000;
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &poll_only()).unwrap();
    let mut pipe = pipe.ordered(AGES).unwrap().memory(0);
    generate_on(classifier(&mut object, "emit_numbered"), &online(), N);
    let mut received = Received::default();
    let progress = pipe.drain(&mut strict(&mut received));
    assert!(pipe.early() > 0);
    assert_eq!(progress.records, pipe.early() + pipe.late());
    // What 256 KiB have room for.
    assert!(pipe.held() < (256 << 10) / 88);
    let summary = pipe.close(&mut strict(&mut received));
    received.assert_complete(&online(), u64::from(N));
    assert!(summary.early > 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_good_window_is_longer_than_the_latency() {
    let mut object = load();
    let latency = Duration::from_millis(700);
    let pipe = EvPipe::from_object(&mut object, &adaptive(latency)).unwrap();
    assert!(pipe.good_window() > latency);
    drop(pipe);
    let Some(aya::maps::Map::PerfEventArray(map)) = object.map(EVENTS_MAP) else {
        panic!("there is no {EVENTS_MAP}")
    };
    // It has fallen back, and nothing is packed.
    let pipe = EvPipe::from_map(map.fd(), &adaptive(latency)).unwrap();
    assert!(pipe.good_window() < latency);
}
