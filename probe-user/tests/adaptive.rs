//! Adaptive wakeups on a real kernel: nothing is lost or late, whatever the consumer is doing.

mod suite;

use aya::programs::RawTracePoint;
use probe_user::{EvHandlers, EvPipe, Options, Progress, Stop, Wakeup};
use std::time::{Duration, Instant};
use suite::records::Numbered;
use suite::switches::waits;
use suite::{
    Received, classifier, emit_one_on, generate_on, load, online, strict, try_to_emit_one,
};

fn adaptive(max_latency: Duration) -> Options {
    Options::new().bytes_per_cpu(4 << 20).wakeup(Wakeup::Adaptive { max_latency })
}

/// Polls until nothing has come for so long that the consumer sleeps: no tick ends its wait. A
/// consumer that never sleeps gets away with 10 seconds.
fn lull(pipe: &mut EvPipe) {
    const WAIT: Duration = Duration::from_millis(200);
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        let start = Instant::now();
        let _ = pipe.poll(Some(WAIT), &mut EvHandlers::new()).unwrap();
        if start.elapsed() >= WAIT {
            return;
        }
    }
}

fn poll(pipe: &mut EvPipe, received: &mut Received) -> Progress {
    pipe.poll(Some(Duration::from_secs(20)), &mut strict(received)).unwrap()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn it_is_what_every_tested_kernel_has() {
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    assert_eq!(pipe.fallback(), None);
    assert!(matches!(pipe.wakeup(), Wakeup::Adaptive { .. }));
    let Some(aya::maps::Map::PerfEventArray(map)) = object.map("PIPE_EVENTS") else {
        panic!("there is no PIPE_EVENTS")
    };
    drop(pipe);
    let pipe = EvPipe::from_map(map.fd(), &Options::new()).unwrap();
    assert!(matches!(pipe.wakeup(), Wakeup::Watermark(_)));
    assert!(pipe.fallback().unwrap().starts_with("only the map of events is known"));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn records_are_packed_and_arrive_in_order() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &adaptive(Duration::from_secs(5))).unwrap();
    let mut received = Received::default();
    let cpu = online()[0];
    // 80 bytes each in a block of 8192: 102 of them fill it.
    generate_on(classifier(&mut object, "emit_numbered"), &[cpu], 1000);
    while poll(&mut pipe, &mut received).pending {}
    let at_once = received.by_cpu[&cpu].count;
    assert_eq!(at_once, 1000 / 102 * 102, "what is in full blocks");
    while received.total() < 1000 {
        let _ = poll(&mut pipe, &mut received);
    }
    received.assert_complete(&[cpu], 1000);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_idle_pipe_does_not_wake() {
    let mut object = load();
    let max_latency = Duration::from_millis(2);
    let mut pipe = EvPipe::from_object(&mut object, &adaptive(max_latency)).unwrap();
    emit_one_on(&mut object, online()[0]);
    lull(&mut pipe);
    let (before, until) = (waits(), Instant::now() + Duration::from_secs(10));
    let mut polls = 0;
    // A tick would end a poll: what counts is the time.
    while let left = until.saturating_duration_since(Instant::now())
        && !left.is_zero()
    {
        let progress = pipe.poll(Some(left), &mut EvHandlers::new()).unwrap();
        assert_eq!(progress.records, 0);
        polls += 1;
    }
    // At 2 ms, a timer would have ticked thousands of times; the timeout ends one wait, and the
    // reading of the counter may be two. A descriptor that is readable all the time wakes nobody, but
    // it does not let anybody sleep either.
    let woken = waits() - before;
    assert!(woken <= 3 && polls <= 2, "woke {woken} times, in {polls} polls");
}

/// By the first record that `program` emits on each CPU.
fn a_sleeping_consumer_is_woken_by(program: &str) {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &adaptive(Duration::from_millis(2))).unwrap();
    let program: &mut RawTracePoint = object.program_mut(program).unwrap().try_into().unwrap();
    program.load().unwrap();
    for cpu in online() {
        lull(&mut pipe);
        try_to_emit_one(program, cpu).unwrap();
        let mut received = Received::default();
        let start = Instant::now();
        while received.total() == 0 && start.elapsed() < Duration::from_secs(20) {
            let _ = poll(&mut pipe, &mut received);
        }
        assert_eq!(received.total(), 1, "CPU {cpu} woke nobody");
        assert!(start.elapsed() < Duration::from_secs(10), "CPU {cpu} woke nobody");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_sleeping_consumer_is_woken_by_every_cpu() {
    a_sleeping_consumer_is_woken_by("emit_numbered_raw");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_sleeping_consumer_is_woken_by_a_record_that_is_emitted_alone() {
    a_sleeping_consumer_is_woken_by("emit_alone_raw");
}

/// Emits while the consumer falls asleep, again and again: in the middle of it, sooner or later.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn no_wakeup_is_lost() {
    const ROUNDS: u32 = 1500;
    let mut object = load();
    // The least there is: the consumer falls asleep after two sweeps of 400 µs.
    let mut pipe = EvPipe::from_object(&mut object, &adaptive(Duration::from_millis(1))).unwrap();
    let program = classifier(&mut object, "emit_numbered");
    let cpus = online();
    let (ask, asked) = std::sync::mpsc::channel::<u32>();
    let mut received = Received::default();
    std::thread::scope(|scope| {
        let cpus = &cpus;
        scope.spawn(move || {
            for round in asked {
                // From none to two milliseconds, in steps that hit every phase of a sweep.
                let pause = Duration::from_nanos(u64::from(round) * 7_919 % 2_000_000);
                let until = Instant::now() + pause;
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                let cpu = cpus[round as usize % cpus.len()];
                generate_on(program, &[cpu], 1 + round % 3);
            }
        });
        let mut expected = 0;
        for round in 0..ROUNDS {
            ask.send(round).unwrap();
            expected += u64::from(1 + round % 3);
            let start = Instant::now();
            while received.total() < expected {
                let progress = poll(&mut pipe, &mut received);
                let waited = start.elapsed() > Duration::from_secs(15);
                assert!(progress.records > 0 || !waited, "round {round}: nobody woke the consumer");
            }
        }
        drop(ask);
    });
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_busy_cpu_does_not_keep_the_blocks_of_others() {
    const BUSY: u32 = 5000;
    let mut object = load();
    let (first, last) = (online()[0], *online().last().unwrap());
    assert_ne!(first, last, "this needs two CPUs");
    // With a budget of a block, the first CPU has more than that at each of its 98 turns.
    let options = adaptive(Duration::from_millis(20)).budget(1);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    generate_on(classifier(&mut object, "emit_numbered"), &[first], BUSY);
    emit_one_on(&mut object, last);
    let (mut of_first, mut of_last) = (0, 0);
    while of_last == 0 {
        let mut handlers = EvHandlers::new();
        handlers.on::<Numbered, _>(|event| {
            if event.cpu == last {
                of_last += 1;
            } else {
                of_first += 1;
                // 10 ms for a block: half a latency, and about a second for all.
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let _ = pipe.poll(Some(Duration::from_secs(20)), &mut handlers).unwrap();
    }
    assert!(of_first < BUSY / 2, "the other CPU's record waited for {of_first} of this one's");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn lost_blocks_are_counted_in_records() {
    let mut object = load();
    let options = Options::new().bytes_per_cpu(16 << 10);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let mut received = Received::default();
    let mut handlers = EvHandlers::new();
    handlers.on::<Numbered, _>(|event| received.take(&event));
    const COUNT: u32 = 50_000;
    let stop = Stop::new().unwrap();
    let program = classifier(&mut object, "emit_numbered");
    std::thread::scope(|scope| {
        let consumer = scope.spawn(|| pipe.run(&stop, &mut handlers).unwrap());
        generate_on(program, &online(), COUNT);
        stop.stop();
        consumer.join().unwrap();
    });
    let tally = pipe.tally().unwrap().total().unwrap();
    let summary = pipe.close(&mut handlers);
    drop(handlers);
    assert_eq!(tally.attempted(), u64::from(COUNT) * online().len() as u64);
    assert!(tally.failed() > 0, "the rings were not starved");
    assert_eq!(summary.total.records, tally.sent);
    assert_eq!(received.total(), tally.sent);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_closed_pipe_has_everything_that_was_packed() {
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &adaptive(Duration::from_secs(60))).unwrap();
    generate_on(classifier(&mut object, "emit_numbered"), &online(), 7);
    let mut received = Received::default();
    let summary = pipe.close(&mut strict(&mut received));
    received.assert_complete(&online(), 7);
    assert_eq!(summary.total.records, 7 * online().len() as u64);
    // From then on nothing is packed: it fails at once, for want of an event.
    generate_on(classifier(&mut object, "emit_numbered"), &online(), 7);
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    assert_eq!(pipe.tally().unwrap().total().unwrap().failed(), 7 * online().len() as u64);
}
