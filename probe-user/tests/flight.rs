//! Pauses, and the flight recorder, on a real kernel: what is given is what it has to be, and the rest is
//! counted for what it is.

mod suite;

use aya::Ebpf;
use aya::maps::{PerCpuArray, PerCpuValues};
use probe_user::common::tally::{FailureClass, OutputTally};
use probe_user::common::{RawRecord, Record};
use probe_user::{
    Consumer, Dump, EvHandlers, EvPipe, Loss, Malformed, Options, Pausing, PipeParts, Stop,
    Summary, Wakeup,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use suite::records::Numbered;
use suite::set_on_drop::SetOnDrop;
use suite::switches::waits;
use suite::{Received, classifier, emit_one_on, generate_on, load, online};
use zerocopy::transmute;

/// Records in all that the recorder sees, at full speed: 800 MB of them.
const MANY: u32 = 10_000_000;
/// The same where each is an output of its own, which takes ten times as long.
const FEWER: u32 = 1_000_000;

const RING: usize = 8 << 20;
/// Bytes of ring that a record takes by itself.
const SPAN: usize = 96;

/// What dumps gave: checks that nothing is torn, that nothing comes twice, and the order of time.
#[derive(Debug, Default)]
struct Tails {
    dumps: Vec<Dump>,
    losses: u64,
    /// By CPU, in the last dump: the first number, and the one after the last.
    last: BTreeMap<u32, (u64, u64)>,
    /// By CPU, the number after the last that came in any.
    next: BTreeMap<u32, u64>,
    given: u64,
    gaps: u64,
    time: u64,
    break_at: Option<u64>,
    panic_at: Option<u64>,
}

impl Consumer for Tails {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        assert_eq!(record.kind, Numbered::KIND);
        let (numbered, _) = record.read::<Numbered>().expect("a payload as long as its type");
        let number = numbered.number;
        assert_eq!(*numbered, Numbered::new(number, u64::from(cpu)), "torn or of another CPU");
        assert!(record.time >= self.time, "not in the order of time");
        self.time = record.time;
        let next = self.next.entry(cpu).or_default();
        assert!(number >= *next, "CPU {cpu}: {number} comes again");
        let is_first = !self.last.contains_key(&cpu);
        self.gaps += u64::from(!is_first && number != *next);
        *next = number + 1;
        self.last.entry(cpu).or_insert((number, number)).1 = number + 1;
        self.given += 1;
        assert!(self.panic_at != Some(self.given), "on purpose");
        if self.break_at == Some(self.given) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.losses += loss.records.unwrap();
        ControlFlow::Continue(())
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        panic!("{malformed}")
    }

    fn dump(&mut self, dump: Dump) {
        assert_eq!(dump.number, self.dumps.len() as u64);
        self.dumps.push(dump);
        self.last.clear();
    }
}

impl Tails {
    fn overwritten(&self) -> u64 {
        self.dumps.iter().map(|dump| dump.overwritten.unwrap()).sum()
    }

    /// The last dump had, of each CPU, the numbers up to `next`, without a gap.
    fn assert_newest(&self, next: u64) {
        assert_eq!(self.last.keys().copied().collect::<Vec<_>>(), online());
        assert_eq!(self.gaps, 0, "a tail has gaps");
        for (cpu, (first, end)) in &self.last {
            assert!(first < end);
            assert_eq!(*end, next, "CPU {cpu}: not the newest");
        }
    }
}

/// Of records that are not emitted alone.
fn recorder(object: &mut Ebpf, bytes: usize, packed: bool) -> EvPipe {
    let mut options = Options::new().bytes_per_cpu(bytes).overwrite();
    if !packed {
        options = options.wakeup(Wakeup::PollOnly);
    }
    open(PipeParts::of_object(object).unwrap().never_alone(), &options)
}

fn open(parts: PipeParts, options: &Options) -> EvPipe {
    let pipe = EvPipe::open(parts, options).unwrap();
    assert_eq!(pipe.fallback(), None);
    pipe
}

fn generate_each(object: &mut Ebpf, count: u32) {
    // For the kernel, none at all is one.
    if count > 0 {
        generate_on(classifier(object, "emit_numbered"), &online(), count);
    }
}

fn assert_balances(summary: &Summary, attempted: u64, tails: &Tails) {
    let ledger = summary.ledger.as_ref().unwrap();
    assert!(ledger.is_complete(), "{ledger}");
    assert_eq!(ledger.attempted(), attempted, "{ledger}");
    assert_eq!(ledger.handled(), tails.given, "{ledger}");
    assert_eq!(ledger.overwritten(), tails.overwritten(), "{ledger}");
    assert_eq!(ledger.failed(), tails.losses, "{ledger}");
    let all = ledger.handled() + ledger.overwritten() + ledger.failed() + ledger.unread();
    assert_eq!(all, attempted, "{ledger}");
}

fn the_newest_come(packed: bool, records: u32) -> u64 {
    let mut object = load();
    let mut pipe = recorder(&mut object, RING, packed);
    let each = records / online().len() as u32;
    generate_each(&mut object, each);
    let mut tails = Tails::default();
    pipe.trigger().unwrap().pull();
    let progress = pipe.poll(None, &mut tails).unwrap();
    tails.assert_newest(each.into());
    assert_eq!(progress.records, tails.given);
    let attempted = u64::from(each) * online().len() as u64;
    assert_eq!(tails.overwritten(), attempted - tails.given);
    let given = tails.given;
    let summary = pipe.close(&mut tails);
    assert_eq!((tails.dumps.len(), tails.dumps[1].records), (2, 0));
    assert_balances(&summary, attempted, &tails);
    given / online().len() as u64
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_newest_records_come_and_no_others() {
    let given = the_newest_come(true, MANY);
    // A block of 102 records takes 8176 bytes; the one that was open at the end, and the oldest, cost one each.
    let most = RING as u64 / 8176 * 102;
    assert!((most - 2 * 102..=most).contains(&given), "{given} of {most}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_newest_records_come_that_are_not_packed() {
    assert_eq!(the_newest_come(false, FEWER), (RING / SPAN) as u64);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_ring_that_was_never_full_has_all() {
    for packed in [true, false] {
        let mut object = load();
        let pipe = recorder(&mut object, RING, packed);
        generate_each(&mut object, 1000);
        let mut tails = Tails::default();
        let summary = pipe.close(&mut tails);
        tails.assert_newest(1000);
        assert_eq!(tails.dumps[0].overwritten, Some(0));
        assert_balances(&summary, 1000 * online().len() as u64, &tails);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn no_record_comes_in_two_dumps() {
    for packed in [true, false] {
        let mut object = load();
        let mut pipe = recorder(&mut object, 64 << 10, packed);
        let mut tails = Tails::default();
        let mut emitted = 0;
        // From nothing at all to many times the ring.
        for count in [0, 1, 7, 600, 700, 5000, 1, 0, 683, 682] {
            generate_each(&mut object, count);
            emitted += u64::from(count);
            let given = tails.given;
            let progress = pipe.dump(&mut tails).unwrap();
            assert_eq!(progress.records, tails.given - given);
            if count > 0 {
                tails.assert_newest(emitted);
            } else {
                assert_eq!(progress.records, 0);
            }
        }
        let summary = pipe.close(&mut tails);
        assert_balances(&summary, emitted * online().len() as u64, &tails);
        assert!(tails.overwritten() > 0 && tails.losses == 0);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn dumps_are_exact_while_records_are_emitted() {
    /// Of each CPU at a time, more than its ring holds; until there were so many dumps.
    const EACH: u32 = 20_000;
    const DUMPS: usize = 30;
    /// The first of them finds records, the others what is emitted meanwhile.
    const AT_ONCE: usize = 3;
    for (name, packed) in [("emit_numbered", true), ("emit_numbered", false), ("emit_alone", true)]
    {
        let mut object = load();
        let mut pipe = match name {
            "emit_alone" => {
                let options = Options::new().bytes_per_cpu(256 << 10).overwrite();
                open(PipeParts::of_object(&mut object).unwrap(), &options)
            }
            _ => recorder(&mut object, 256 << 10, packed),
        };
        let program = classifier(&mut object, name);
        let (mut tails, stop) = (Tails::default(), AtomicBool::new(false));
        let (ended, ends) = std::sync::mpsc::channel();
        let emitted = std::thread::scope(|scope| {
            let stop = &stop;
            let generator = scope.spawn(move || {
                let mut emitted = 0;
                while !stop.load(Ordering::Relaxed) {
                    generate_on(program, &online(), EACH);
                    emitted += u64::from(EACH);
                    let _ = ended.send(());
                }
                emitted
            });
            let stopping = SetOnDrop(stop);
            while tails.dumps.len() < DUMPS {
                // Rings that are dumped all the time are paused all the time.
                ends.try_iter().for_each(drop);
                ends.recv().unwrap();
                for _ in 0..AT_ONCE {
                    // What is packed while a dump is given overtakes nothing, but it can be older
                    // than records of other CPUs that the dump before had.
                    tails.time = 0;
                    let _ = pipe.dump(&mut tails).unwrap();
                }
            }
            drop(stopping);
            generator.join().unwrap()
        });
        tails.time = 0;
        let summary = pipe.close(&mut tails);
        assert_eq!(tails.gaps, 0, "what is lost, is lost between two dumps");
        // How many of those that were emitted alone are gone, nobody knows.
        let unknown = match name {
            "emit_alone" => emitted * online().len() as u64 - tails.given - tails.losses,
            _ => 0,
        };
        assert_balances(&summary, emitted * online().len() as u64 - unknown, &tails);
        assert!(tails.given > 0 && tails.overwritten() + tails.losses + unknown > 0, "{tails:?}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_recorder_that_runs_waits_for_triggers_alone() {
    let mut object = load();
    let mut pipe = recorder(&mut object, 64 << 10, true);
    let (stop, trigger) = (Stop::new().unwrap(), pipe.trigger().unwrap());
    let mut tails = Tails::default();
    let waited = std::thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let before = waits();
            pipe.run(&stop, &mut tails).unwrap();
            waits() - before
        });
        for _ in 0..3 {
            // Rings that are overwritten many times wake nobody.
            generate_each(&mut object, 100_000);
        }
        stop.stop();
        consumer.join().unwrap()
    });
    // A wakeup for each time that a ring was full would be hundreds. Code that is read from a file is waited for, too.
    assert!(waited <= 10, "it woke {waited} times");
    assert!(tails.dumps.is_empty());
    assert!(!is_readable(&pipe, Duration::from_millis(300)), "somebody is to look");
    std::thread::scope(|scope| {
        let stop = Stop::new().unwrap();
        let (pipe, tails) = (&mut pipe, &mut tails);
        let ending = stop.clone();
        let consumer = scope.spawn(move || pipe.run(&ending, tails).unwrap());
        // Whatever it is asked for until it looks, it is one dump.
        trigger.pull();
        while is_readable(&trigger, Duration::ZERO) {
            std::thread::yield_now();
        }
        stop.stop();
        consumer.join().unwrap();
    });
    assert_eq!(tails.dumps.len(), 1);
    tails.assert_newest(300_000);
    let summary = pipe.close(&mut tails);
    assert_balances(&summary, 300_000 * online().len() as u64, &tails);
}

/// Whether a descriptor is readable, or becomes so in this time.
fn is_readable(descriptor: &impl AsFd, within: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let within = within.try_into().unwrap();
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&within)).unwrap() > 0
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn whatever_a_consumer_does_recording_goes_on() {
    for panics in [false, true] {
        let mut object = load();
        let mut pipe = recorder(&mut object, 64 << 10, true);
        generate_each(&mut object, 300);
        let mut tails = Tails::default();
        *(if panics { &mut tails.panic_at } else { &mut tails.break_at }) = Some(10);
        let outcome = catch_unwind(AssertUnwindSafe(|| pipe.dump(&mut tails).unwrap()));
        assert_eq!(outcome.is_err(), panics);
        assert_eq!(tails.given, 10);
        let unread = 300 * online().len() as u64 - 10;
        let ledger = pipe.ledger().unwrap();
        assert_eq!((ledger.unread(), ledger.overwritten()), (unread, 0), "{ledger}");
        assert!(ledger.is_complete(), "{ledger}");
        generate_each(&mut object, 200);
        // What the dump had and was not given is not given now.
        let summary = pipe.close(&mut tails);
        tails.assert_newest(500);
        assert_eq!(tails.given, 10 + 200 * online().len() as u64);
        assert_eq!(summary.ledger.as_ref().unwrap().unread(), unread);
        assert_balances(&summary, 500 * online().len() as u64, &tails);
    }
}

/// Emits before, during and after a pause.
fn paused(how: Pausing, wakeup: Option<Wakeup>, sleeps: bool) {
    const BEFORE: u32 = 1000;
    const DURING: u32 = 3000;
    const AFTER: u32 = 500;
    let mut object = load();
    let mut options = Options::new().bytes_per_cpu(1 << 20);
    if let Some(wakeup) = wakeup {
        options = options.wakeup(wakeup);
    }
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let cpus = online().len() as u64;
    let mut received = Counting::default();
    generate_each(&mut object, BEFORE);
    if sleeps {
        // It finds nothing for some sweeps.
        for _ in 0..20 {
            let _ = pipe.poll(Some(Duration::from_millis(10)), &mut received).unwrap();
        }
    }
    pipe.pause(how).unwrap();
    assert_eq!(pipe.paused(), Some(how));
    generate_each(&mut object, DURING);
    let _ = pipe.drain_all(&mut received);
    assert_eq!(received.records.total(), u64::from(BEFORE) * cpus, "{how:?}: before the pause");
    for _ in 0..5 {
        generate_each(&mut object, 1);
        let _ = pipe.poll(Some(Duration::from_millis(10)), &mut received).unwrap();
    }
    assert_eq!(received.records.total(), u64::from(BEFORE) * cpus, "{how:?}: during the pause");
    pipe.resume().unwrap();
    assert_eq!(pipe.paused(), None);
    generate_each(&mut object, AFTER);
    let _ = pipe.drain_all(&mut received);
    let summary = pipe.close(&mut received);
    let (during, given) = (u64::from(DURING + 5) * cpus, u64::from(BEFORE + AFTER) * cpus);
    assert_eq!(received.records.total(), given, "{how:?}: after the pause");
    for seen in received.records.by_cpu.values() {
        assert_eq!(seen.missing, u64::from(DURING + 5), "{how:?}");
    }
    let ledger = summary.ledger.unwrap();
    assert!(ledger.is_complete(), "{ledger}");
    assert_eq!((ledger.attempted(), ledger.handled()), (given + during, given), "{ledger}");
    let (class, told) = match how {
        Pausing::Output => (FailureClass::NoSpace, during),
        _ => (FailureClass::NoEvent, 0),
    };
    assert_eq!(ledger.tally().failed_for(class), during, "{ledger}");
    assert_eq!(received.lost, told, "{how:?}: what the consumer is told");
}

/// As [`Received`], of a pipe that loses.
#[derive(Default)]
struct Counting {
    records: Received,
    lost: u64,
}

impl Consumer for Counting {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.records.record(cpu, record)
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.lost += loss.records.unwrap();
        ControlFlow::Continue(())
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        panic!("{malformed}")
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn nothing_comes_of_a_pause_and_all_of_it_is_counted() {
    for how in [Pausing::Output, Pausing::Slots] {
        paused(how, None, false);
        paused(how, None, true);
        for wakeup in [Wakeup::EveryRecord, Wakeup::Watermark(64 << 10), Wakeup::PollOnly] {
            paused(how, Some(wakeup), false);
        }
    }
}

/// A program counts what was in an output a moment after the kernel has counted the output.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_is_counted_after_its_output_was_told_is_told_at_the_end() {
    const LATE: u64 = 3;
    let mut object = load();
    let mut pipe = recorder(&mut object, 64 << 10, false);
    pipe.pause(Pausing::Output).unwrap();
    generate_each(&mut object, 10);
    let mut tails = Tails::default();
    let _ = pipe.dump(&mut tails).unwrap();
    let cpus = online().len() as u64;
    assert_eq!(tails.losses, 10 * cpus);
    let map = object.map_mut(probe_user::common::control::OUTPUTS_MAP).unwrap();
    let mut outputs = PerCpuArray::<_, [u64; size_of::<OutputTally>() / 8]>::try_from(map).unwrap();
    let counted: Vec<_> = outputs
        .get(&0, 0)
        .unwrap()
        .iter()
        .copied()
        .map(|counted| {
            let tally: OutputTally = transmute!(counted);
            transmute!(OutputTally { lost_records: tally.lost_records + LATE, ..tally })
        })
        .collect();
    outputs.set(0, PerCpuValues::try_from(counted).unwrap(), 0).unwrap();
    let _ = pipe.close(&mut tails);
    assert_eq!(tails.losses, (10 + LATE) * cpus);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn pauses_are_exact_while_records_are_emitted() {
    const EACH: u32 = 300_000;
    for how in [Pausing::Output, Pausing::Slots] {
        let mut object = load();
        let options = Options::new().bytes_per_cpu(32 << 20);
        let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
        let program = classifier(&mut object, "emit_numbered");
        let (mut received, mut pauses) = (Counting::default(), 0);
        std::thread::scope(|scope| {
            let generator = scope.spawn(|| generate_on(program, &online(), EACH));
            while !generator.is_finished() {
                pipe.pause(how).unwrap();
                let _ = pipe.drain_all(&mut received);
                let before = received.records.total();
                for _ in 0..10 {
                    let _ = pipe.drain_all(&mut received);
                }
                assert_eq!(received.records.total(), before, "{how:?}: during a pause");
                pipe.resume().unwrap();
                pauses += 1;
            }
        });
        // So that the ring tells what it lost last.
        online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
        let ledger = pipe.close(&mut received).ledger.unwrap();
        assert!(ledger.is_complete() && pauses > 0, "{ledger}");
        assert_eq!(ledger.attempted(), u64::from(EACH + 1) * online().len() as u64, "{ledger}");
        assert_eq!(ledger.handled() + ledger.failed(), ledger.attempted(), "{ledger}");
        let class =
            if how == Pausing::Output { FailureClass::NoSpace } else { FailureClass::NoEvent };
        assert_eq!(ledger.tally().failed_for(class), ledger.failed(), "{ledger}");
        let missing: u64 = received.records.by_cpu.values().map(|seen| seen.missing).sum();
        assert_eq!(missing, ledger.failed(), "{ledger}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_recorder_may_be_paused_and_dumped() {
    let cpus = online().len() as u64;
    for (how, class, told) in [
        (Pausing::Output, FailureClass::NoSpace, 100 * cpus),
        (Pausing::Slots, FailureClass::NoEvent, 0),
    ] {
        let mut object = load();
        let mut pipe = recorder(&mut object, 64 << 10, true);
        let mut tails = Tails::default();
        generate_each(&mut object, 200);
        pipe.pause(how).unwrap();
        generate_each(&mut object, 100);
        let _ = pipe.dump(&mut tails).unwrap();
        tails.assert_newest(200);
        assert_eq!((pipe.paused(), tails.losses), (Some(how), told));
        pipe.resume().unwrap();
        generate_each(&mut object, 50);
        let ledger = pipe.close(&mut tails).ledger.unwrap();
        tails.assert_newest(350);
        assert!(ledger.is_complete(), "{ledger}");
        assert_eq!(ledger.tally().failed_for(class), 100 * cpus, "{ledger}");
        assert_eq!(ledger.handled(), 250 * cpus, "{ledger}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn handlers_are_told_of_a_dump_before_its_records() {
    let mut object = load();
    let mut pipe = recorder(&mut object, 64 << 10, true);
    let told = std::sync::Mutex::new(Vec::new());
    let mut handlers = EvHandlers::new();
    handlers
        .on_dump(|dump| told.lock().unwrap().push((dump.records, 0)))
        .on::<Numbered, _>(|_| told.lock().unwrap().last_mut().expect("a dump").1 += 1);
    for count in [300, 0, 20] {
        generate_each(&mut object, count);
        let _ = pipe.dump(&mut handlers).unwrap();
    }
    drop(handlers);
    let cpus = online().len() as u64;
    assert_eq!(told.into_inner().unwrap(), [300, 0, 20].map(|each| (each * cpus, each * cpus)));
}
