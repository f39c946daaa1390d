//! CPUs that become eager on a real kernel, more often than a pipe would have it: a pipe waits for milliseconds before
//! that, which leaves a few thousand races in the time of a test. This test runs a million.

use super::EvPipe;
use crate::pipe::options::{Options, Wakeup};
use crate::pipe::waiting::Waiting;
use crate::suite::{Received, classifier, generate, load, online, stay_on};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often emission races the consumer, unless the time runs out first. A race takes two or three interrupts on
/// another CPU: 20 µs where those cost a few microseconds, so a million races take 20 s; 140 µs in virtual machines
/// where each interrupt leaves the guest, so there are 200,000.
const RACES: u64 = 1_000_000;
/// How long to race, in seconds, unless [`SECONDS_VARIABLE`] overrides it.
const SECONDS: u64 = 20;
const SECONDS_VARIABLE: &str = "PROBE_RACE_SECONDS";
/// A wakeup that takes longer than this is lost: no machine is that slow.
const LOST: Duration = Duration::from_secs(20);

/// The most records that a CPU emits in one race. Each may be an output of its own of 96 bytes, and a ring of one
/// page, which keeps the blocks short, has room for 42.
const MOST: u64 = 32;

/// The part of a CPU in a race: how long it waits, in 1024ths of the time that the consumer takes, and how many
/// records it emits then. Some CPUs emit nothing; otherwise they would always be busy.
fn plan(race: u64, cpu: u32) -> (u64, u64) {
    // The finalizer of splitmix64: each bit of the result depends on each bit of the race and the CPU.
    let mut x = (race << 16 | u64::from(cpu)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    // Short bursts are as frequent as long ones: in a short burst, the race hits the last record more often.
    let most = if x & 1 == 0 { 4 } else { MOST };
    // Occasionally, the wait is so long that the CPU is certainly eager when its first record arrives.
    let longer = if x >> 1 & 7 == 0 { 8 } else { 1 };
    ((x >> 8 & 0x3ff) * longer, (x >> 32) % (most + 1))
}

/// The state that the consumer and the generators share.
struct Races {
    /// The current race; `u64::MAX` ends the races.
    race: AtomicU64,
    /// The number of CPUs that have emitted all their records in this race.
    done: AtomicU64,
    /// How long it takes to make the CPUs eager, in nanoseconds.
    window: AtomicU64,
}

impl Races {
    /// Takes part in every race, on `cpu`.
    fn run_on(&self, cpu: u32, emit: impl Fn(u32)) {
        stay_on(cpu);
        let mut last = 0;
        loop {
            let race = self.race.load(Ordering::Acquire);
            if race == u64::MAX {
                return;
            }
            if race == last {
                spin_loop();
                continue;
            }
            last = race;
            let (pause, count) = plan(race, cpu);
            let pause = self.window.load(Ordering::Relaxed) * pause / 1024;
            let until = Instant::now() + Duration::from_nanos(pause);
            while Instant::now() < until {
                spin_loop();
            }
            if count > 0 {
                emit(count as u32);
            }
            self.done.fetch_add(1, Ordering::Release);
        }
    }
}

/// Ends the races, even if the consumer panics.
struct End<'r>(&'r Races);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.race.store(u64::MAX, Ordering::Release);
    }
}

/// How the races went.
#[derive(Debug, Default)]
struct Outcome {
    races: u64,
    /// How often all CPUs were eager.
    rested: u64,
    /// How often the last look at the rings found records that have woken nobody.
    found: u64,
    /// How often a record woke the consumer.
    woken: u64,
    /// How often a CPU stopped waking by itself, or woke too often.
    stirred: u64,
}

/// The time that it takes to make all CPUs eager.
fn window(pipe: &mut EvPipe) -> Duration {
    const TIMES: u32 = 200;
    let start = Instant::now();
    for _ in 0..TIMES {
        pipe.waiting.adaptive.as_mut().unwrap().stir();
        assert!(rest(pipe), "nobody emits");
    }
    start.elapsed() / TIMES
}

/// Tries to make all CPUs eager.
fn rest(pipe: &mut EvPipe) -> bool {
    let Waiting { adaptive, due, .. } = &mut pipe.waiting;
    adaptive.as_mut().unwrap().rest(|cpu| due.add(cpu))
}

fn is_at_rest(pipe: &EvPipe) -> bool {
    pipe.waiting.adaptive.as_ref().unwrap().lazy().next().is_none()
}

/// Races until there were `end` races, or until `until`. A race is over only when everything emitted in it has been
/// received, so no later race can wake the consumer in place of a lost wakeup.
fn race(
    pipe: &mut EvPipe,
    received: &mut Received,
    races: &Races,
    generators: &[u32],
    (end, until): (u64, Instant),
    outcome: &mut Outcome,
) {
    let mut expected = received.total();
    while outcome.races < end && Instant::now() < until {
        outcome.races += 1;
        let race = outcome.races;
        pipe.waiting.adaptive.as_mut().unwrap().stir();
        expected += generators.iter().map(|&cpu| plan(race, cpu).1).sum::<u64>();
        races.done.store(0, Ordering::Relaxed);
        races.race.store(race, Ordering::Release);
        // The order matters: what the generators did before this check has caused a wakeup by now, or will.
        let is_over = || races.done.load(Ordering::Acquire) == generators.len() as u64;
        'race: loop {
            outcome.rested += u64::from(rest(pipe));
            outcome.found += u64::from(pipe.drain_due(received).records > 0);
            // From here on, nothing looks at the ring of an eager CPU before a wakeup.
            while is_at_rest(pipe) {
                let over = is_over();
                if over && received.total() == expected {
                    break 'race;
                }
                let patience = if over { LOST } else { Duration::ZERO };
                let (before, start) = (received.total(), Instant::now());
                pipe.waiting.wait(Some(patience)).unwrap();
                outcome.woken += u64::from(pipe.drain_due(received).records > 0);
                if over && received.total() == before && start.elapsed() >= LOST {
                    panic!(
                        "race {race}: {} records, and no wakeup: {outcome:?}",
                        expected - before
                    );
                }
            }
            outcome.stirred += 1;
        }
    }
}

/// Emission on all other CPUs races the consumer that makes them eager. At whatever point a record is emitted, the last
/// look at the ring finds it, or it wakes the consumer.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn no_record_stays_behind_when_a_cpu_becomes_eager() {
    let mut object = load();
    // No sweep may hide a lost wakeup.
    let max_latency = Duration::from_secs(24 * 3600);
    let options = Options::new()
        .bytes_per_cpu(rustix::param::page_size())
        .wakeup(Wakeup::Adaptive { max_latency });
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let cpus = online();
    assert!(cpus.len() > 1, "this needs two CPUs");
    let mut received = Received::default();
    let program = classifier(&mut object, "emit_numbered");
    let mut outcome = Outcome::default();
    let seconds = std::env::var(SECONDS_VARIABLE).ok().map(|seconds| seconds.parse().unwrap());
    let time = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let start = Instant::now();
    let _ = pipe.drain(&mut received);
    for (turn, &here) in cpus.iter().enumerate() {
        stay_on(here);
        let window = AtomicU64::new(window(&mut pipe).as_nanos() as u64);
        let races = Races { race: 0.into(), done: 0.into(), window };
        let generators: Vec<u32> = cpus.iter().copied().filter(|&cpu| cpu != here).collect();
        let turns = turn as u32 + 1;
        let end = RACES * u64::from(turns) / cpus.len() as u64;
        let until = start + time * turns / cpus.len() as u32;
        std::thread::scope(|scope| {
            let _end = End(&races);
            for &cpu in &generators {
                let races = &races;
                scope.spawn(move || races.run_on(cpu, |count| generate(program, count)));
            }
            race(&mut pipe, &mut received, &races, &generators, (end, until), &mut outcome);
        });
    }
    println!("{outcome:?} in {:?}", start.elapsed());
    let Outcome { races, rested, found, woken, .. } = outcome;
    assert!(races >= 1000, "the machine is too slow: {races} races");
    // The outcome of a race depends on chance: virtual CPUs that share a physical one seldom run at the same time.
    let least = rested.min(found).min(woken);
    assert!(
        least >= races / 200,
        "of {races} races: {rested} rested, {found} found a record, {woken} were woken"
    );
    let ledger = pipe.ledger().unwrap();
    assert!(ledger.balances(), "{ledger}");
    assert_eq!((ledger.attempted(), ledger.failed()), (received.total(), 0));
}
