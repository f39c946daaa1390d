//! `max_latency` on a real kernel: how long the pipe delays records at various rates.
//!
//! Machines delay them as well, emulated ones for seconds. So a thread on each CPU sleeps and wakes repeatedly
//! while a test runs; the largest delay of these threads is what scheduling costs on this machine at this time. A
//! block waits for two sweeps and a drain, and each of them may be delayed as much. These threads do not see every
//! delay: an attempt in which the machine stalled decides nothing if a record was late. One in which it did not
//! stall decides.

use crate::suite::{
    Loaded, adaptive, classifier, emit_one_on, generate, now, on_numbered, online, open, stay_on,
};
use aya::Ebpf;
use probe_testing::set_on_drop::SetOnDrop;
use probe_user::{EvHandlers, EvPipe, Options};
use rustix::time::ClockId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

const MAX_LATENCY: Duration = Duration::from_millis(100);
/// Time that neither the pipe nor the scheduler accounts for: emitting, draining and handling.
const WORK: Duration = Duration::from_millis(50);
/// A machine that is no later than this did not stall.
const CALM: Duration = Duration::from_millis(10);
/// A record that has not arrived after this time is lost.
const NEVER: Duration = Duration::from_secs(30);

/// A pipe, with counts of emitted and received records.
struct Run {
    pipe: EvPipe,
    // Dropped after the pipe, because dropping checks for leaks.
    object: Loaded,
    emitted: AtomicU64,
    received: u64,
    worst: u64,
    /// Count only records of this CPU for `worst`.
    only: Option<u32>,
}

impl Run {
    fn new(max_latency: Duration) -> Self {
        // Eight blocks. At saturation, a slow machine would have to work through everything in a
        // larger ring.
        let options = Options::new().bytes_per_cpu(32 << 10).wakeup(adaptive(max_latency));
        let (mut object, pipe) = open(&options);
        classifier(&mut object, "emit_numbered");
        Self { object, pipe, emitted: 0.into(), received: 0, worst: 0, only: None }
    }

    /// The pipe, the object, the count of emitted records, and handlers that count received ones.
    fn parts(&mut self) -> (&mut EvPipe, &mut Ebpf, &AtomicU64, EvHandlers<'_>) {
        let Self { pipe, object, emitted, received, worst, only } = self;
        let handlers = on_numbered(|event| {
            *received += 1;
            if only.is_none_or(|cpu| cpu == event.cpu) {
                *worst = (*worst).max(now(ClockId::Monotonic).saturating_sub(event.time));
            }
        });
        (pipe, object, emitted, handlers)
    }

    fn emit_one_on(&mut self, cpu: u32) {
        emit_one_on(&mut self.object, cpu);
        *self.emitted.get_mut() += 1;
    }

    fn poll(&mut self, timeout: Duration) {
        let (pipe, _, _, mut handlers) = self.parts();
        let _ = pipe.poll(Some(timeout), &mut handlers).unwrap();
    }

    fn poll_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            self.poll(left);
        }
    }

    /// Polls for `time` while each of `cpus` runs `emit` in a loop. The argument of `emit` is a
    /// function that emits a number of records.
    fn poll_while(&mut self, cpus: &[u32], time: Duration, emit: impl Fn(&dyn Fn(u32)) + Sync) {
        let (pipe, object, emitted, mut handlers) = self.parts();
        let program = classifier(object, "emit_numbered");
        let emit = &emit;
        let until = Instant::now() + time;
        std::thread::scope(|scope| {
            let generators: Vec<_> = cpus
                .iter()
                .map(|&cpu| {
                    scope.spawn(move || {
                        stay_on(cpu);
                        while Instant::now() < until {
                            emit(&|count| {
                                generate(program, count);
                                emitted.fetch_add(u64::from(count), Ordering::Relaxed);
                            });
                        }
                    })
                })
                .collect();
            while !generators.iter().all(|generator| generator.is_finished()) {
                let _ = pipe.poll(Some(MAX_LATENCY), &mut handlers).unwrap();
            }
        });
    }

    /// Polls until all records that fit into a ring have arrived. Returns the worst latency.
    fn worst(mut self) -> Duration {
        let start = Instant::now();
        let emitted = *self.emitted.get_mut();
        while self.received + self.pipe.tally().unwrap().total().unwrap().failed() < emitted {
            assert!(start.elapsed() < NEVER, "{} of {emitted} records arrived", self.received);
            self.poll(NEVER);
        }
        Duration::from_nanos(self.worst)
    }
}

/// The worst wakeup delay of a thread on any CPU while `run` ran.
fn stall_of<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    const NAP: Duration = Duration::from_millis(2);
    let (stop, worst) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        for cpu in online() {
            let (stop, worst) = (&stop, &worst);
            scope.spawn(move || {
                stay_on(cpu);
                while !stop.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    sleep(NAP);
                    let late = start.elapsed().saturating_sub(NAP);
                    worst.fetch_max(late.as_nanos() as u64, Ordering::Relaxed);
                }
            });
        }
        run()
    });
    (done, Duration::from_nanos(worst.into_inner()))
}

/// Asserts that no record of `run` is late because of the pipe.
///
/// It waits for a machine that lets the threads run, for three attempts at most.
fn assert_punctual(run: impl Fn(&mut Run)) {
    assert_latency(MAX_LATENCY, || {
        let mut state = Run::new(MAX_LATENCY);
        run(&mut state);
        state.worst()
    });
}

/// The same for the latency that `worst` returns.
fn assert_latency(max_latency: Duration, worst: impl Fn() -> Duration) {
    const ATTEMPTS: u32 = 3;
    for _ in 0..ATTEMPTS {
        let (worst, stall) = stall_of(&worst);
        println!("the worst latency is {worst:?}, where the machine was {stall:?} late");
        if worst <= max_latency + stall * 3 + WORK {
            return;
        }
        assert!(stall > CALM, "late after {worst:?}, while the machine was only {stall:?} late");
    }
    panic!("late each time, and the machine stalled each time");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn no_record_is_late_at_one_a_second() {
    assert_punctual(|run| {
        for cpu in online().into_iter().cycle().take(3) {
            run.emit_one_on(cpu);
            run.poll_for(Duration::from_secs(1));
        }
    });
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn no_record_is_late_at_a_thousand_a_second() {
    assert_punctual(|run| {
        let cpus = online();
        run.poll_while(&cpus[cpus.len() - 1..], Duration::from_secs(1), |emit| {
            emit(1);
            sleep(Duration::from_millis(1));
        });
    });
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn no_record_is_late_at_saturation() {
    let time = Duration::from_secs(1);
    assert_punctual(|run| run.poll_while(&online(), time, |emit| emit(1000)));
    // The consumer shares a CPU with the producer.
    let here = online()[0];
    stay_on(here);
    assert_punctual(|run| run.poll_while(&[here], time, |emit| emit(1000)));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_end_of_a_burst_is_not_late() {
    assert_punctual(|run| {
        // The first burst finds the consumer awake, the last one asleep.
        for pause in [0, 10, 40, 70, 110, 170, 300] {
            for cpu in online() {
                for _ in 0..7 {
                    run.emit_one_on(cpu);
                }
            }
            run.poll_for(Duration::from_millis(pause));
        }
    });
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_lone_record_of_an_idle_cpu_is_not_late() {
    let (here, idle) = (online()[0], *online().last().unwrap());
    assert_ne!(here, idle, "this needs two CPUs");
    stay_on(here);
    assert_punctual(|run| {
        run.only = Some(idle);
        // The other CPU's records keep the consumer awake, so it has to look for the lone record
        // itself.
        for step in 0..100 {
            run.emit_one_on(here);
            if step % 33 == 5 {
                run.emit_one_on(idle);
            }
            run.poll_for(Duration::from_millis(10));
        }
    });
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_close_does_not_wait_for_the_latency() {
    // Far less than the latency, and more than a close takes: it waits until programs have ended.
    assert_latency(Duration::from_secs(1), || {
        let mut run = Run::new(Duration::from_secs(600));
        for cpu in online() {
            run.emit_one_on(cpu);
        }
        let (mut worst, mut received) = (0, 0);
        let mut handlers = on_numbered(|event| {
            received += 1;
            worst = worst.max(now(ClockId::Monotonic) - event.time);
        });
        let _ = run.pipe.close(&mut handlers);
        drop(handlers);
        assert_eq!(received, online().len());
        Duration::from_nanos(worst)
    });
}
