//! Adaptive wakeups on a real kernel: no record is lost or late, whatever the consumer's state.

use crate::suite::{
    BURST, Received, classifier, emit_on, emit_one_on, generate_on, make_lazy, map, on_numbered,
    online, open, strict, while_emitting,
};
use aya::Ebpf;
use aya::maps::Array;
use probe_testing::switches::waits;
use probe_user::common::control::{
    CONTROL_MAP, CpuControl, EVENTS_MAP, FLUSH_PROGRAM, MOST_UNANSWERED,
};
use probe_user::common::limits::MAX_PACKED;
use probe_user::{EvHandlers, EvPipe, Options, Progress, Wakeup};
use std::time::{Duration, Instant};

pub(crate) fn adaptive(max_latency: Duration) -> Options {
    Options::new().bytes_per_cpu(4 << 20).wakeup(Wakeup::Adaptive { max_latency })
}

/// Polls until every CPU is eager, that is, until no sweep ends a wait.
pub fn lull(mut poll: impl FnMut(Duration)) {
    const WAIT: Duration = Duration::from_millis(200);
    let until = Instant::now() + Duration::from_secs(60);
    let mut quiet = 0;
    // A machine that stalls can make one wait that long.
    while quiet < 2 {
        assert!(Instant::now() < until, "sweeps go on");
        let start = Instant::now();
        poll(WAIT);
        quiet = if start.elapsed() >= WAIT { quiet + 1 } else { 0 };
    }
}

/// [`lull`], for a pipe whose records are not looked at.
fn lull_of(pipe: &mut EvPipe) {
    lull(|wait| {
        let _ = pipe.poll(Some(wait), &mut EvHandlers::new()).unwrap();
    });
}

fn poll(pipe: &mut EvPipe, received: &mut Received) -> Progress {
    pipe.poll(Some(Duration::from_secs(20)), &mut strict(received)).unwrap()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn every_tested_kernel_supports_adaptive_wakeups() {
    let (object, pipe) = open(&Options::new());
    assert_eq!(pipe.fallback(), None);
    assert!(matches!(pipe.wakeup(), Wakeup::Adaptive { .. }));
    drop(pipe);
    let pipe = EvPipe::from_map(map(&object, EVENTS_MAP), &Options::new()).unwrap();
    assert!(matches!(pipe.wakeup(), Wakeup::Watermark(_)));
    assert!(pipe.fallback().unwrap().starts_with("only the map of events is known"));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn records_are_packed_and_arrive_in_order() {
    let (mut object, pipe) = open(&adaptive(Duration::from_secs(5)));
    check_packing(&mut object, pipe);
}

/// Checks that the programs of an object pack their records. The wakeups of the pipe are adaptive.
pub(crate) fn check_packing(object: &mut Ebpf, mut pipe: EvPipe) {
    let mut received = Received::default();
    let cpu = online()[0];
    // The CPU gets no answer to its first wakeups, so it ends its eager period.
    emit_on(object, &[cpu], BURST);
    let _ = pipe.drain(&mut strict(&mut received));
    // A block of 8192 bytes holds 102 records of 80 bytes.
    emit_on(object, &[cpu], 1000);
    let _ = pipe.drain(&mut strict(&mut received));
    let at_once = received.by_cpu[&cpu].count - u64::from(BURST);
    assert_eq!(at_once, 1000 / 102 * 102, "what is in full blocks");
    while received.total() < u64::from(BURST) + 1000 {
        let _ = poll(&mut pipe, &mut received);
    }
    received.assert_complete(&[cpu], u64::from(BURST) + 1000);
}

/// What a CPU's entry in the control page says.
fn entry(object: &Ebpf, cpu: u32) -> CpuControl {
    let page: Array<_, [u32; 16]> = object.map(CONTROL_MAP).unwrap().try_into().unwrap();
    zerocopy::transmute!(page.get(&cpu, 0).unwrap())
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_burst_that_nobody_answers_causes_few_wakeups() {
    let (mut object, mut pipe) = open(&adaptive(Duration::from_secs(5)));
    let _ = pipe.drain(&mut EvHandlers::new());
    let cpu = online()[0];
    let before = entry(&object, cpu);
    assert_ne!((before.eager, before.limit), (0, before.eager), "the CPU is eager at first");
    emit_on(&mut object, &[cpu], 1000);
    let after = entry(&object, cpu);
    assert_eq!(after.wakeups.wrapping_sub(before.wakeups), MOST_UNANSWERED);
    assert_eq!((after.ending, after.ended), (after.eager, after.eager));
    // The consumer learns of it, and sweeps the CPU from now on.
    assert_eq!(poll(&mut pipe, &mut Received::default()).records, 1000);
    let lazy = entry(&object, cpu);
    assert_eq!((lazy.eager, lazy.limit), (0, MAX_PACKED));
}

/// The number of runs of the flush program, which interrupts a CPU.
fn interrupts(object: &Ebpf) -> u64 {
    object.program(FLUSH_PROGRAM).unwrap().info().unwrap().run_count()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_slow_cpu_interrupts_nobody_and_a_burst_only_its_own() {
    let _stats = aya::sys::enable_stats(aya::sys::Stats::RunTime).unwrap();
    let (mut object, mut pipe) = open(&adaptive(Duration::from_millis(10)));
    lull_of(&mut pipe);
    let cpu = online()[0];
    let before = interrupts(&object);
    for _ in 0..50 {
        emit_one_on(&mut object, cpu);
        assert_eq!(poll(&mut pipe, &mut Received::default()).records, 1);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(interrupts(&object), before);
    make_lazy(&mut object, &mut pipe, &[cpu]);
    lull_of(&mut pipe);
    // One makes the CPU eager again. Others may find a program in the middle of a record: here, there is none.
    assert_eq!(interrupts(&object), before + 1);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_idle_pipe_does_not_wake() {
    let (mut object, mut pipe) = open(&adaptive(Duration::from_millis(2)));
    emit_one_on(&mut object, online()[0]);
    lull_of(&mut pipe);
    let (before, until) = (waits(), Instant::now() + Duration::from_secs(10));
    let mut polls = 0;
    // A sweep would end a poll early, so poll until the full time has passed.
    while let left = until.saturating_duration_since(Instant::now())
        && !left.is_zero()
    {
        let progress = pipe.poll(Some(left), &mut EvHandlers::new()).unwrap();
        assert_eq!(progress.records, 0);
        polls += 1;
    }
    // With a 2 ms latency, a timer would have fired thousands of times. The timeout accounts for
    // one wait, and reading the counter for up to two. The limit on polls catches a descriptor that
    // is always readable: it causes no wakeups, but prevents sleep.
    let woken = waits() - before;
    assert!(woken <= 3 && polls <= 2, "woke {woken} times, in {polls} polls");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_waiting_consumer_is_woken_by_every_cpu() {
    let (mut object, mut pipe) = open(&adaptive(Duration::from_millis(2)));
    for cpu in online() {
        lull_of(&mut pipe);
        emit_one_on(&mut object, cpu);
        let mut received = Received::default();
        let start = Instant::now();
        while received.total() == 0 && start.elapsed() < Duration::from_secs(20) {
            let _ = poll(&mut pipe, &mut received);
        }
        assert_eq!(received.total(), 1, "CPU {cpu} did not wake the consumer");
        assert!(start.elapsed() < Duration::from_secs(10), "CPU {cpu}: {:?}", start.elapsed());
    }
}

/// Emits while CPUs become eager, over and over, to hit every moment of the transition.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn no_wakeup_is_lost() {
    const ROUNDS: u32 = 1500;
    // The shortest latency: sweeps of 400 µs.
    let (mut object, mut pipe) = open(&adaptive(Duration::from_millis(1)));
    let program = classifier(&mut object, "emit_numbered");
    let cpus = online();
    let (ask, asked) = std::sync::mpsc::channel::<u32>();
    let mut received = Received::default();
    std::thread::scope(|scope| {
        let cpus = &cpus;
        scope.spawn(move || {
            for round in asked {
                // Pauses of 0 to 2 ms, in steps that hit every phase of a sweep.
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
                assert!(progress.records > 0 || !waited, "round {round}: not woken");
            }
        }
        drop(ask);
    });
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_busy_cpu_does_not_keep_the_blocks_of_others() {
    const BUSY: u32 = 5000;
    let (first, last) = (online()[0], *online().last().unwrap());
    assert_ne!(first, last, "this needs two CPUs");
    // The budget ends each time slice after one block, and the first CPU has 49 of them.
    let (mut object, mut pipe) = open(&adaptive(Duration::from_millis(20)).budget(1));
    emit_on(&mut object, &[first], BUSY);
    emit_one_on(&mut object, last);
    let (mut of_first, mut of_last) = (0, 0);
    while of_last == 0 {
        let mut handlers = on_numbered(|event| {
            if event.cpu == last {
                of_last += 1;
            } else {
                of_first += 1;
                // About 20 ms per block, as long as the latency, and a second in total.
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let _ = pipe.poll(Some(Duration::from_secs(20)), &mut handlers).unwrap();
    }
    assert!(of_first < BUSY / 2, "the other CPU's record waited for {of_first} records");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn lost_blocks_are_counted_in_records() {
    const COUNT: u32 = 50_000;
    let (mut object, mut pipe) = open(&Options::new().bytes_per_cpu(16 << 10));
    let (mut received, mut lost) = (Received::default(), 0);
    let mut handlers = on_numbered(|event| received.take(&event));
    handlers.on_loss(|loss| lost += loss.records.unwrap());
    while_emitting(&mut object, COUNT, |stop| pipe.run(stop, &mut handlers).unwrap());
    let tally = pipe.tally().unwrap().total().unwrap();
    let summary = pipe.close(&mut handlers);
    drop(handlers);
    assert_eq!(tally.attempted(), u64::from(COUNT) * online().len() as u64);
    assert!(tally.failed() > 0, "the rings were not starved");
    assert_eq!((received.total(), lost), (tally.sent, tally.failed()));
    assert_eq!(summary.total.records, tally.sent);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn closing_a_pipe_delivers_packed_records() {
    let (mut object, pipe) = open(&adaptive(Duration::from_secs(60)));
    emit_on(&mut object, &online(), 7);
    let mut received = Received::default();
    let summary = pipe.close(&mut strict(&mut received));
    received.assert_complete(&online(), 7);
    assert_eq!(summary.total.records, 7 * online().len() as u64);
    // Without an open pipe nothing is packed: each record fails at once, because the map has no
    // event.
    emit_on(&mut object, &online(), 7);
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    assert_eq!(pipe.tally().unwrap().total().unwrap().failed(), 7 * online().len() as u64);
}
