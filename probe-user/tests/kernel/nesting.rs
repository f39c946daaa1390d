//! Programs that interrupt each other in the middle of a record: no record is torn, lost or counted
//! twice.
//!
//! The tests interrupt with a timer and, on kernels that preempt, with other tasks. A non-maskable
//! interrupt, which needs a hardware counter, is not tested. It behaves the same, except that
//! nothing can mask it.

use crate::suite::records::{Called, Interrupting, Numbered};
use crate::suite::{
    Received, adaptive, attach_clock, classifier, detach_clock, generate_on, load, nested, online,
    open, rejecting, stay_on, strict,
};
use aya::Ebpf;
use aya::programs::UProbe;
use aya::programs::uprobe::UProbeScope;
use probe_testing::set_on_drop::SetOnDrop;
use probe_testing::skip::skip;
use probe_testing::version::kernel;
use probe_user::common::tally::{FailureClass, KindTally};
use probe_user::common::{Record, RecordKind};
use probe_user::{EvPipe, Options};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time limit for emulated machines.
const TIME: Duration = Duration::from_secs(15);

pub(crate) fn options() -> Options {
    Options::new().bytes_per_cpu(4 << 20).wakeup(adaptive(Duration::from_millis(10)))
}

/// The eBPF side's tally of `kind`. Asserts that only nesting may have failed, and only if
/// `may_fail`.
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
fn interrupted_records_are_neither_torn_nor_lost() {
    let (mut object, pipe) = open(&options());
    interrupt(&mut object, pipe);
}

/// Interrupts the programs of an object, and checks their records.
pub(crate) fn interrupt(object: &mut Ebpf, mut pipe: EvPipe) {
    /// A ring holds a whole round: 80 bytes each are less than 2 MiB of 4.
    const ROUND: u32 = 20_000;
    /// About one tick in twenty interrupts a record.
    const ENOUGH: u64 = 500;
    attach_clock(object, "emit_interrupting", Duration::from_micros(100));
    classifier(object, "emit_numbered");
    let start = Instant::now();
    let mut received = Received::default();
    let mut ticks = BTreeMap::<u32, Vec<u64>>::new();
    let mut handlers = strict(&mut received);
    handlers.on::<Interrupting, _>(|event| {
        let Interrupting(tick) = event.record;
        assert_eq!(*tick, Numbered::new(tick.number, u64::from(event.cpu)), "torn");
        ticks.entry(event.cpu).or_default().push(tick.number);
    });
    let mut rounds = 0;
    while nested(object, Interrupting::KIND) < ENOUGH && start.elapsed() < TIME {
        rounds += 1;
        let program = classifier(object, "emit_numbered");
        std::thread::scope(|scope| {
            let generators = scope.spawn(|| generate_on(program, &online(), ROUND));
            while !generators.is_finished() {
                let _ = pipe.poll(Some(Duration::from_millis(5)), &mut handlers).unwrap();
            }
        });
        assert!(pipe.drain_all(&mut handlers).is_continue());
    }
    // Nothing interrupts while the ledger is read.
    detach_clock(object, "emit_interrupting");
    assert!(pipe.drain_all(&mut handlers).is_continue());
    drop(handlers);

    let nested = nested(object, Interrupting::KIND);
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
    // A record sent immediately overtakes those of the open block, so sort first.
    let mut count = 0;
    for (cpu, numbers) in &mut ticks {
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "CPU {cpu}: lost, or twice");
        count += numbers.len() as u64;
    }
    assert_eq!(count, of_clock.attempted());
}

/// The probed function: the program emits its arguments.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn suite_called(thread: u64, number: u64) {
    std::hint::black_box((thread, number));
}

/// Full kernel preemption, which includes eBPF programs, until this is dropped.
struct FullPreemption {
    control: PathBuf,
    before: String,
    mounted: Option<tempfile::TempDir>,
}

impl FullPreemption {
    /// Returns `None` if the kernel cannot change its preemption mode at run time, or hides the
    /// switch. It needs kernel 5.13 with `CONFIG_PREEMPT_DYNAMIC`, and no lockdown.
    fn choose() -> Option<Self> {
        let usual = PathBuf::from("/sys/kernel/debug/sched");
        let (folder, mounted) = if usual.exists() {
            (usual, None)
        } else {
            let folder = tempfile::tempdir().unwrap();
            mount("debugfs", folder.path(), "debugfs", MountFlags::empty(), None).ok()?;
            (folder.path().join("sched"), Some(folder))
        };
        let mut this = Self { control: folder.join("preempt"), before: String::new(), mounted };
        // The format is `none voluntary (full) lazy`.
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
            // Panicking again while unwinding would abort.
            let _ = std::fs::write(&self.control, &self.before);
        }
        if let Some(folder) = &self.mounted {
            let _ = unmount(folder.path(), UnmountFlags::DETACH);
        }
    }
}

/// Threads on one CPU that call the probed function.
struct Callers {
    stop: AtomicBool,
    /// Calls made by each thread.
    called: Vec<AtomicU64>,
    /// Calls of each thread whose records were received or have failed.
    settled: Vec<AtomicU64>,
}

impl Callers {
    /// More than there are slots.
    const THREADS: u64 = 6;
    /// How far a thread may be ahead of the consumer. The records of all six threads, 272 bytes
    /// each, take less than 2 MiB.
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

    /// A thread that wakes preempts another one and finishes first. Threads that never sleep are
    /// preempted at the end of their time slice, and release their slots in any order.
    fn pause(thread: u64, number: u64) {
        if thread >= Self::THREADS / 2 && number.is_multiple_of(thread) {
            std::thread::sleep(Duration::from_micros(20 + 7 * thread));
        }
    }

    /// Runs `drain`, which consumes everything emitted before the call.
    fn settle(&self, drain: impl FnOnce()) {
        let called: Vec<u64> =
            self.called.iter().map(|called| called.load(Ordering::Relaxed)).collect();
        drain();
        for (settled, called) in self.settled.iter().zip(called) {
            settled.store(called, Ordering::Relaxed);
        }
    }
}

/// Another probed function, for a program that only checks its stack.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn suite_kept(thread: u64, number: u64) {
    std::hint::black_box((thread, number));
}

/// Attaches a program to a function of this executable.
fn attach_uprobe(object: &mut Ebpf, program: &str, function: &str) {
    let program: &mut UProbe = object.program_mut(program).unwrap().try_into().unwrap();
    program.load().unwrap();
    program.attach(function, "/proc/self/exe", UProbeScope::AllProcesses).unwrap();
}

/// Since 6.13 a program's stack may be per CPU, shared with programs that preempt it.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn programs_that_preempt_each_other_have_stacks_of_their_own() {
    const TIME: Duration = Duration::from_secs(4);
    if kernel() < (6, 13) {
        return skip("on this kernel, no program has a stack for each CPU: it can since 6.13");
    }
    let Some(_preemption) = FullPreemption::choose() else {
        return skip(
            "nothing shows that programs preempt each other: the kernel's preemption cannot be chosen",
        );
    };
    let mut object = load();
    attach_uprobe(&mut object, "keep_stack", "suite_kept");
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
fn preempted_records_are_neither_torn_nor_counted_twice() {
    const ENOUGH: u64 = 1500;
    let preemption = FullPreemption::choose();
    let (mut object, mut pipe) = open(&options());
    attach_uprobe(&mut object, "emit_called", "suite_called");
    let zeros = || (0..Callers::THREADS).map(|_| AtomicU64::new(0)).collect();
    let callers = Callers { stop: AtomicBool::new(false), called: zeros(), settled: zeros() };
    let mut numbers = vec![Vec::new(); Callers::THREADS as usize];
    let mut handlers = rejecting();
    handlers.on::<Called, _>(|event| {
        let Called { thread, number, fill } = *event.record;
        let whole = |(at, word): (usize, &u64)| *word == Called::word(thread, number, at);
        assert!(fill.iter().enumerate().all(whole), "torn: {:?}", event.record);
        numbers[thread as usize].push((number, event.time));
    });
    let cpu = *online().last().unwrap();
    // Without preemption there is nothing to wait for.
    let time = if preemption.is_some() { TIME } else { Duration::from_secs(2) };
    let start = Instant::now();
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&callers.stop);
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
        // A record sent immediately overtakes those of the open block.
        numbers.sort_unstable();
        assert!(numbers.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1), "twice");
    }
    // Kernel 6.1 runs the programs of a probed function without preemption, whatever its mode. There, and where the
    // mode cannot be changed, the test leaves out the last check.
    if preemption.is_some() && kernel() >= (6, 12) {
        assert!(nested >= 20, "{nested} of {called} calls preempted another one");
    } else {
        println!("nothing had to be preempted: this kernel cannot, or does not choose to");
    }
}
