//! Programs that interrupt each other in the middle of a record: nothing is torn, lost or counted
//! twice.
//!
//! What interrupts here is a timer's interrupt and, where the kernel preempts, another task. A
//! non-maskable interrupt, which takes a hardware counter, does nothing else, but nobody can hold it
//! off: that is not tested.

mod suite;

use aya::programs::UProbe;
use aya::programs::uprobe::UProbeScope;
use probe_user::common::tally::{FailureClass, KindTally};
use probe_user::common::{Record, RecordKind};
use probe_user::{EvHandlers, EvPipe, Options, Wakeup};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use suite::records::{Called, Interrupting, Numbered};
use suite::version::kernel;
use suite::{
    Received, attach_clock, classifier, detach_clock, generate_on, load, nested, online, stay_on,
};

/// Emulated machines have no more time than this to nest.
const TIME: Duration = Duration::from_secs(15);

fn options() -> Options {
    let max_latency = Duration::from_millis(10);
    Options::new().bytes_per_cpu(4 << 20).wakeup(Wakeup::Adaptive { max_latency })
}

/// What the eBPF side counted of `kind`. Only nesting may have failed, and only `may_fail`.
fn tally(pipe: &EvPipe, kind: RecordKind, may_fail: bool) -> KindTally {
    let mut sum = KindTally::default();
    for cpu in pipe.tally().unwrap().of(kind).unwrap() {
        sum += cpu.tally;
    }
    assert_eq!(sum.failed(), sum.failed_for(FailureClass::Nested), "{sum:?}");
    assert!(may_fail || sum.failed() == 0, "{sum:?}");
    sum
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn interrupts_in_the_middle_of_a_record_do_no_harm() {
    /// A ring takes all of a round: 80 bytes each are less than 2 MiB of 4.
    const ROUND: u32 = 20_000;
    /// Of the ticks, about one in twenty comes in the middle of a record.
    const ENOUGH: u64 = 500;
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &options()).unwrap();
    attach_clock(&mut object, "emit_interrupting", Duration::from_micros(100));
    classifier(&mut object, "emit_numbered");
    let start = Instant::now();
    let mut received = Received::default();
    let mut ticks = BTreeMap::<u32, Vec<u64>>::new();
    let mut handlers = EvHandlers::new();
    handlers
        .on::<Numbered, _>(|event| received.take(&event))
        .on::<Interrupting, _>(|event| {
            let Interrupting(tick) = event.record;
            assert_eq!(*tick, Numbered::new(tick.number, u64::from(event.cpu)), "torn");
            ticks.entry(event.cpu).or_default().push(tick.number);
        })
        .on_unknown::<()>(|cpu, record| panic!("CPU {cpu}: {record:?}"))
        .on_loss::<()>(|loss| panic!("{loss:?}"))
        .on_malformed::<()>(|malformed| panic!("{malformed}"));
    let mut rounds = 0;
    while nested(&object, Interrupting::KIND) < ENOUGH && start.elapsed() < TIME {
        rounds += 1;
        let program = classifier(&mut object, "emit_numbered");
        std::thread::scope(|scope| {
            let generators = scope.spawn(|| generate_on(program, &online(), ROUND));
            while !generators.is_finished() {
                let _ = pipe.poll(Some(Duration::from_millis(5)), &mut handlers).unwrap();
            }
        });
        assert!(pipe.drain_all(&mut handlers).is_continue());
    }
    // Nobody interrupts any more when the ledger is read.
    detach_clock(&mut object, "emit_interrupting");
    assert!(pipe.drain_all(&mut handlers).is_continue());
    drop(handlers);

    let nested = nested(&object, Interrupting::KIND);
    let of_clock = tally(&pipe, Interrupting::KIND, false);
    println!("{rounds} rounds, {} ticks, {nested} of them nested", of_clock.attempted());
    assert!(
        nested >= 20,
        "{nested} of {} ticks came in the middle of a record",
        of_clock.attempted()
    );
    assert!(nested < of_clock.attempted(), "none was packed");
    received.assert_complete(&online(), u64::from(ROUND) * rounds);
    let emitted = u64::from(ROUND) * rounds * online().len() as u64;
    assert_eq!(tally(&pipe, Numbered::KIND, false).attempted(), emitted);
    // One that is sent at once overtakes those of the open block, so they are sorted first.
    let mut count = 0;
    for (cpu, numbers) in &mut ticks {
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "CPU {cpu}: lost, or twice");
        count += numbers.len() as u64;
    }
    assert_eq!(count, of_clock.attempted());
}

/// The function that is probed: its arguments are what the program emits.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn suite_called(thread: u64, number: u64) {
    std::hint::black_box((thread, number));
}

/// The kernel preempts its own code for as long as this lives, programs included.
struct FullPreemption {
    control: PathBuf,
    before: String,
    mounted: Option<tempfile::TempDir>,
}

impl FullPreemption {
    /// `None` where the kernel cannot change that while it runs, or lets nobody see it: it takes
    /// kernel 5.13 with `CONFIG_PREEMPT_DYNAMIC`, and no lockdown.
    fn choose() -> Option<Self> {
        let usual = PathBuf::from("/sys/kernel/debug/sched");
        let (folder, mounted) = if usual.exists() {
            (usual, None)
        } else {
            let folder = tempfile::tempdir().unwrap();
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("debugfs", folder.path(), "debugfs", flags, None).ok()?;
            (folder.path().join("sched"), Some(folder))
        };
        let mut this = Self { control: folder.join("preempt"), before: String::new(), mounted };
        // As in `none voluntary (full) lazy`.
        let all = std::fs::read_to_string(&this.control).ok()?;
        let chosen = all.split_once('(')?.1.split_once(')')?.0.to_owned();
        std::fs::write(&this.control, "full").ok()?;
        this.before = chosen;
        Some(this)
    }
}

impl Drop for FullPreemption {
    fn drop(&mut self) {
        if !self.before.is_empty() {
            // A failure would be told twice in a panic.
            let _ = std::fs::write(&self.control, &self.before);
        }
        if let Some(folder) = &self.mounted {
            let _ = rustix::mount::unmount(folder.path(), rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// What the threads on one CPU do, which call the probed function.
struct Callers {
    stop: AtomicBool,
    /// How many calls each has made.
    called: Vec<AtomicU64>,
    /// How many calls of each the consumer is done with: they are received, or have failed.
    settled: Vec<AtomicU64>,
}

impl Callers {
    /// More than there are slots.
    const THREADS: u64 = 6;
    /// How far a thread may be ahead of the consumer: six times as many records of 272 bytes are
    /// less than 2 MiB.
    const AHEAD: u64 = 1024;

    fn call(&self, thread: u64) {
        let mut number = 0;
        while !self.stop.load(Ordering::Relaxed) {
            if number >= self.settled[thread as usize].load(Ordering::Relaxed) + Self::AHEAD {
                std::thread::yield_now();
                continue;
            }
            suite_called(thread, number);
            number += 1;
            self.called[thread as usize].store(number, Ordering::Relaxed);
            Self::pause(thread, number);
        }
    }

    /// Who wakes preempts another one and is done before that goes on. Those who never sleep are
    /// preempted when their time is over, and give back their slots in any order.
    fn pause(thread: u64, number: u64) {
        if thread >= Self::THREADS / 2 && number.is_multiple_of(thread) {
            std::thread::sleep(Duration::from_micros(20 + 7 * thread));
        }
    }

    /// Runs `drain`, which consumes everything that was emitted before it began.
    fn settle(&self, drain: impl FnOnce()) {
        let called: Vec<u64> =
            self.called.iter().map(|called| called.load(Ordering::Relaxed)).collect();
        drain();
        for (settled, called) in self.settled.iter().zip(called) {
            settled.store(called, Ordering::Relaxed);
        }
    }
}

/// The same, for a program that only looks at its stack.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn suite_kept(thread: u64, number: u64) {
    std::hint::black_box((thread, number));
}

/// From 6.13 on, a program's stack can be one for each CPU, whoever preempts it.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn programs_that_preempt_each_other_have_stacks_of_their_own() {
    const TIME: Duration = Duration::from_secs(4);
    if kernel() < (6, 13) {
        println!("not tested: on this kernel, no program has a stack for each CPU");
        return;
    }
    let _preemption = FullPreemption::choose();
    let mut object = load();
    let program: &mut UProbe = object.program_mut("keep_stack").unwrap().try_into().unwrap();
    program.load().unwrap();
    program.attach("suite_kept", "/proc/self/exe", UProbeScope::AllProcesses).unwrap();
    let stacks = aya::maps::Array::<_, u64>::try_from(object.map("STACKS").unwrap()).unwrap();
    let cpu = *online().last().unwrap();
    let start = Instant::now();
    let called: u64 = std::thread::scope(|scope| {
        let callers = (0..Callers::THREADS).map(|thread| {
            scope.spawn(move || {
                stay_on(cpu);
                let mut number = 0;
                while start.elapsed() < TIME {
                    suite_kept(thread, number);
                    number += 1;
                    Callers::pause(thread, number);
                }
                number
            })
        });
        callers.collect::<Vec<_>>().into_iter().map(|caller| caller.join().unwrap()).sum()
    });
    let [ran, changed] = [0, 1].map(|at| stacks.get(&at, 0).unwrap());
    println!("{ran} runs, {changed} of them with a stack that was changed");
    assert_eq!((ran, changed), (called, 0));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn tasks_that_preempt_each_other_in_the_middle_of_a_record_do_no_harm() {
    const ENOUGH: u64 = 1500;
    let preemption = FullPreemption::choose();
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &options()).unwrap();
    let program: &mut UProbe = object.program_mut("emit_called").unwrap().try_into().unwrap();
    program.load().unwrap();
    program.attach("suite_called", "/proc/self/exe", UProbeScope::AllProcesses).unwrap();
    let zeros = || (0..Callers::THREADS).map(|_| AtomicU64::new(0)).collect();
    let callers = Callers { stop: AtomicBool::new(false), called: zeros(), settled: zeros() };
    let mut numbers = vec![Vec::new(); Callers::THREADS as usize];
    let mut handlers = EvHandlers::new();
    handlers
        .on::<Called, _>(|event| {
            let Called { thread, number, fill } = *event.record;
            let whole = |(at, word): (usize, &u64)| *word == Called::word(thread, number, at);
            assert!(fill.iter().enumerate().all(whole), "torn: {:?}", event.record);
            numbers[thread as usize].push((number, event.time));
        })
        .on_unknown::<()>(|cpu, record| panic!("CPU {cpu}: {record:?}"))
        .on_loss::<()>(|loss| panic!("{loss:?}"))
        .on_malformed::<()>(|malformed| panic!("{malformed}"));
    let cpu = *online().last().unwrap();
    // Without preemption there is nothing to wait for.
    let time = if preemption.is_some() { TIME } else { Duration::from_secs(2) };
    let start = Instant::now();
    std::thread::scope(|scope| {
        /// Ends the threads, even if the consumer panics.
        struct Stop<'s>(&'s AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&callers.stop);
        for thread in 0..Callers::THREADS {
            let callers = &callers;
            scope.spawn(move || {
                stay_on(cpu);
                callers.call(thread);
            });
        }
        while nested(&object, Called::KIND) < ENOUGH && start.elapsed() < time {
            let _ = pipe.poll(Some(Duration::from_millis(5)), &mut handlers).unwrap();
            callers.settle(|| assert!(pipe.drain_all(&mut handlers).is_continue()));
        }
    });
    assert!(pipe.drain_all(&mut handlers).is_continue());
    drop(handlers);

    let nested = nested(&object, Called::KIND);
    let tally = tally(&pipe, Called::KIND, true);
    let called: u64 = callers.called.iter().map(|called| called.load(Ordering::Relaxed)).sum();
    println!("{called} calls, {nested} of them nested, {} failed", tally.failed());
    assert_eq!(tally.attempted(), called);
    assert_eq!(numbers.iter().map(|of| of.len() as u64).sum::<u64>(), tally.sent);
    for numbers in &mut numbers {
        // One that is sent at once overtakes those of the open block.
        numbers.sort_unstable();
        assert!(numbers.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1), "twice");
    }
    // 6.1 runs programs of a probed function without preemption, whatever it does elsewhere.
    if preemption.is_some() && kernel() >= (6, 12) {
        assert!(nested >= 20, "{nested} of {called} calls preempted another one");
    } else {
        println!("nothing had to be preempted: this kernel cannot, or does not choose to");
    }
}
