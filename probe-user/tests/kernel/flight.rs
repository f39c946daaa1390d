//! Pauses and the flight recorder on a real kernel: dumps hold what they should, and the rest is
//! accounted for.

use crate::suite::records::Numbered;
use crate::suite::{
    End, Loaded, Log, classifier, emit_on, emit_one_on, generate_on, is_readable, online, open,
    wait_until, while_running,
};
use aya::Ebpf;
use aya::maps::{PerCpuArray, PerCpuValues};
use probe_testing::set_on_drop::SetOnDrop;
use probe_testing::switches::waits;
use probe_user::common::RawRecord;
use probe_user::common::control::OUTPUTS_MAP;
use probe_user::common::tally::{FailureClass, OutputTally};
use probe_user::flight::Dump;
use probe_user::{
    Consumer, EvHandlers, EvPipe, Item, Loss, Malformed, Options, OwnedRecords, Summary, Wakeup,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zerocopy::transmute;

/// Records in total that the recorder sees at full speed: 800 MB.
const MANY: u32 = 10_000_000;
/// The same for unpacked records, which take ten times as long.
const FEWER: u32 = 1_000_000;

const RING: usize = 8 << 20;
/// Bytes of ring per unpacked record.
const SPAN: usize = 96;

/// Collects dumps. Checks that records are complete, unique and in time order.
#[derive(Debug, Default)]
struct Dumps {
    all: Vec<Dump>,
    log: Log,
    /// By CPU, in the last dump: the first number, and one past the last.
    last: BTreeMap<u32, (u64, u64)>,
    /// Numbers that are missing between two records of a dump.
    gaps: u64,
    time: u64,
}

impl Consumer for Dumps {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        assert!(record.time >= self.time, "not in the order of time");
        self.time = record.time;
        let flow = self.log.record(cpu, record);
        let next = self.log.received.by_cpu[&cpu].next;
        let (_, end) = self.last.entry(cpu).or_insert((next - 1, next - 1));
        self.gaps += next - 1 - *end;
        *end = next;
        flow
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.log.lost(loss)
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        panic!("{malformed}")
    }

    fn dump(&mut self, dump: Dump) {
        assert_eq!(dump.number, self.all.len() as u64);
        self.all.push(dump);
        self.last.clear();
    }
}

impl Dumps {
    fn records(&self) -> u64 {
        self.log.received.total()
    }

    fn overwritten(&self) -> u64 {
        self.all.iter().map(|dump| dump.overwritten.unwrap()).sum()
    }

    /// Asserts that the last dump holds the newest records of each CPU, up to `next` and without a
    /// gap.
    fn assert_newest(&self, next: u64) {
        assert_eq!(self.last.keys().copied().collect::<Vec<_>>(), online());
        assert_eq!(self.gaps, 0, "a tail has gaps");
        for (cpu, (first, end)) in &self.last {
            assert!(first < end);
            assert_eq!(*end, next, "CPU {cpu}: not the newest");
        }
    }
}

fn recorder(bytes: usize, packed: bool) -> (Loaded, EvPipe) {
    let mut options = Options::new().bytes_per_cpu(bytes).overwrite();
    if !packed {
        options = options.wakeup(Wakeup::PollOnly);
    }
    let (object, pipe) = open(&options);
    assert_eq!(pipe.fallback(), None);
    (object, pipe)
}

fn emit_each(object: &mut Ebpf, count: u32) {
    // The kernel runs a program once for a repeat count of 0.
    if count > 0 {
        emit_on(object, &online(), count);
    }
}

fn assert_balances(summary: &Summary, attempted: u64, dumps: &Dumps) {
    let ledger = summary.ledger.as_ref().unwrap();
    assert!(ledger.balances(), "{ledger}");
    assert_eq!(ledger.attempted(), attempted, "{ledger}");
    assert_eq!(ledger.handled(), dumps.records(), "{ledger}");
    assert_eq!(ledger.overwritten(), dumps.overwritten(), "{ledger}");
    assert_eq!(ledger.failed(), dumps.log.lost_records(), "{ledger}");
    let all = ledger.handled() + ledger.overwritten() + ledger.failed() + ledger.unread();
    assert_eq!(all, attempted, "{ledger}");
}

/// Returns the number of records of each CPU in a dump after many records.
fn newest_records(packed: bool, emitted: u32) -> u64 {
    let (mut object, mut pipe) = recorder(RING, packed);
    let cpus = online().len() as u64;
    let each = emitted / cpus as u32;
    emit_each(&mut object, each);
    let mut dumps = Dumps::default();
    pipe.trigger().unwrap().pull();
    let progress = pipe.poll(None, &mut dumps).unwrap();
    dumps.assert_newest(each.into());
    let records = dumps.records();
    assert_eq!(progress.records, records);
    let attempted = u64::from(each) * cpus;
    assert_eq!(dumps.overwritten(), attempted - records);
    let summary = pipe.close(&mut dumps);
    assert_eq!((dumps.all.len(), dumps.all[1].records), (2, 0));
    assert_balances(&summary, attempted, &dumps);
    records / cpus
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_dump_has_the_newest_records_and_no_others() {
    let records = newest_records(true, MANY);
    // A block of 102 records takes 8176 bytes. The block open at the end and the oldest one may be
    // missing.
    let most = RING as u64 / 8176 * 102;
    assert!((most - 2 * 102..=most).contains(&records), "{records} of {most}");
    assert_eq!(newest_records(false, FEWER), (RING / SPAN) as u64);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_ring_that_was_never_full_has_every_record() {
    for packed in [true, false] {
        let (mut object, pipe) = recorder(RING, packed);
        emit_each(&mut object, 1000);
        let mut dumps = Dumps::default();
        let summary = pipe.close(&mut dumps);
        dumps.assert_newest(1000);
        assert_eq!(dumps.all[0].overwritten, Some(0));
        assert_balances(&summary, 1000 * online().len() as u64, &dumps);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn owned_records_are_all_records_of_a_dump() {
    let (mut object, pipe) = recorder(RING, true);
    let trigger = pipe.trigger().unwrap();
    let mut records = OwnedRecords::new(pipe);
    for dump in 1..=2 {
        emit_each(&mut object, 5000);
        trigger.pull();
        let mut next = || records.next_within(Duration::from_secs(1)).unwrap();
        let dumped = std::iter::from_fn(|| next().filter(|item| matches!(item, Item::Record(_))));
        assert_eq!(dumped.count(), 5000 * online().len(), "in dump {dump}");
    }
    emit_each(&mut object, 10);
    let ledger = records.close().ledger.unwrap();
    assert_eq!(ledger.handled(), 10_000 * online().len() as u64, "{ledger}");
    assert_eq!(ledger.unread(), 10 * online().len() as u64, "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn no_record_is_in_two_dumps() {
    for packed in [true, false] {
        let (mut object, mut pipe) = recorder(64 << 10, packed);
        let mut dumps = Dumps::default();
        let mut emitted = 0;
        // From nothing to many times the ring's capacity.
        for count in [0, 1, 7, 600, 700, 5000, 1, 0, 683, 682] {
            emit_each(&mut object, count);
            emitted += u64::from(count);
            let before = dumps.records();
            let progress = pipe.dump(&mut dumps).unwrap();
            assert_eq!(progress.records, dumps.records() - before);
            if count > 0 {
                dumps.assert_newest(emitted);
            } else {
                assert_eq!(progress.records, 0);
            }
        }
        let summary = pipe.close(&mut dumps);
        assert_balances(&summary, emitted * online().len() as u64, &dumps);
        assert!(dumps.overwritten() > 0 && dumps.log.lost.is_empty());
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn dumps_are_exact_while_records_are_emitted() {
    /// Each CPU repeatedly emits more than its ring holds, until there are enough dumps.
    const EACH: u32 = 20_000;
    const DUMPS: usize = 30;
    /// Consecutive dumps. The first one finds records, the others find what is emitted meanwhile.
    const AT_ONCE: usize = 3;
    for packed in [true, false] {
        let (mut object, mut pipe) = recorder(256 << 10, packed);
        let program = classifier(&mut object, "emit_numbered");
        let (mut dumps, stop) = (Dumps::default(), AtomicBool::new(false));
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
            while dumps.all.len() < DUMPS {
                // Wait for new records, or continuous dumps would keep the rings paused.
                ends.try_iter().for_each(drop);
                ends.recv().unwrap();
                for _ in 0..AT_ONCE {
                    // Records packed during a dump stay in order on their CPU. They can still be
                    // older than records of other CPUs in the previous dump.
                    dumps.time = 0;
                    let _ = pipe.dump(&mut dumps).unwrap();
                }
            }
            drop(stopping);
            generator.join().unwrap()
        });
        dumps.time = 0;
        let summary = pipe.close(&mut dumps);
        assert_eq!(dumps.gaps, 0, "losses are only between dumps");
        assert_balances(&summary, emitted * online().len() as u64, &dumps);
        let not_delivered = dumps.overwritten() + dumps.log.lost_records();
        assert!(dumps.records() > 0 && not_delivered > 0, "{dumps:?}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_running_recorder_wakes_only_for_triggers() {
    let (mut object, mut pipe) = recorder(64 << 10, true);
    let trigger = pipe.trigger().unwrap();
    let mut dumps = Dumps::default();
    let mut waited = 0;
    let run = |stop: &_| {
        let before = waits();
        pipe.run(stop, &mut dumps).unwrap();
        waited = waits() - before;
    };
    // Overwriting the rings many times causes no wakeup.
    while_running(run, || (0..3).for_each(|_| emit_each(&mut object, 100_000)));
    // A wakeup each time a ring was full would mean hundreds. Page faults on code account for a
    // few.
    assert!(waited <= 10, "it woke {waited} times");
    assert!(dumps.all.is_empty());
    assert!(
        !is_readable(&pipe, Duration::from_millis(300)),
        "the descriptor is readable without a trigger"
    );
    let run = |stop: &_| pipe.run(stop, &mut dumps).unwrap();
    while_running(run, || {
        // Pulls before the consumer looks count as one dump.
        trigger.pull();
        wait_until(|| !is_readable(&trigger, Duration::ZERO));
    });
    assert_eq!(dumps.all.len(), 1);
    dumps.assert_newest(300_000);
    let summary = pipe.close(&mut dumps);
    assert_balances(&summary, 300_000 * online().len() as u64, &dumps);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn recording_goes_on_after_a_consumer_breaks_or_panics() {
    for end in [End::Break, End::Panic] {
        let (mut object, mut pipe) = recorder(64 << 10, true);
        emit_each(&mut object, 300);
        let mut dumps = Dumps::default();
        dumps.log.end = Some((9, end));
        let outcome = catch_unwind(AssertUnwindSafe(|| pipe.dump(&mut dumps).unwrap()));
        assert_eq!(outcome.is_err(), end == End::Panic);
        let cpus = online().len() as u64;
        let delivered = dumps.records();
        assert!((10..300 * cpus).contains(&delivered), "{delivered}");
        // One CPU has reached the record that ends the dump, and nothing was delivered after it.
        let reached = dumps.log.received.by_cpu.values().filter(|seen| seen.next > 9);
        assert_eq!(reached.map(|seen| seen.next).collect::<Vec<_>>(), [10]);
        let unread = 300 * cpus - delivered;
        let ledger = pipe.ledger().unwrap();
        assert_eq!((ledger.unread(), ledger.overwritten()), (unread, 0), "{ledger}");
        assert!(ledger.balances(), "{ledger}");
        emit_each(&mut object, 200);
        // Undelivered records of the earlier dump are not delivered now.
        let summary = pipe.close(&mut dumps);
        dumps.assert_newest(500);
        assert_eq!(dumps.records(), delivered + 200 * cpus);
        assert_eq!(summary.ledger.as_ref().unwrap().unread(), unread);
        assert_balances(&summary, 500 * cpus, &dumps);
    }
}

/// Emits before, during and after a pause.
fn paused(wakeup: Option<Wakeup>, sleeps: bool) {
    const BEFORE: u32 = 1000;
    const DURING: u32 = 3000;
    const AFTER: u32 = 500;
    let mut options = Options::new().bytes_per_cpu(1 << 20);
    if let Some(wakeup) = wakeup {
        options = options.wakeup(wakeup);
    }
    let (mut object, mut pipe) = open(&options);
    let cpus = online().len() as u64;
    let mut log = Log::default();
    emit_each(&mut object, BEFORE);
    if sleeps {
        // Several empty sweeps put the consumer to sleep.
        for _ in 0..20 {
            let _ = pipe.poll(Some(Duration::from_millis(10)), &mut log).unwrap();
        }
    }
    pipe.pause().unwrap();
    assert!(pipe.is_paused());
    emit_each(&mut object, DURING);
    let _ = pipe.drain_all(&mut log);
    assert_eq!(log.received.total(), u64::from(BEFORE) * cpus, "before the pause");
    for _ in 0..5 {
        emit_each(&mut object, 1);
        let _ = pipe.poll(Some(Duration::from_millis(10)), &mut log).unwrap();
    }
    assert_eq!(log.received.total(), u64::from(BEFORE) * cpus, "during the pause");
    pipe.resume().unwrap();
    assert!(!pipe.is_paused());
    emit_each(&mut object, AFTER);
    let _ = pipe.drain_all(&mut log);
    let summary = pipe.close(&mut log);
    let (during, delivered) = (u64::from(DURING + 5) * cpus, u64::from(BEFORE + AFTER) * cpus);
    assert_eq!(log.received.total(), delivered, "after the pause");
    for seen in log.received.by_cpu.values() {
        assert_eq!(seen.missing, u64::from(DURING + 5));
    }
    let ledger = summary.ledger.unwrap();
    assert!(ledger.balances(), "{ledger}");
    let counted = (ledger.attempted(), ledger.handled());
    assert_eq!(counted, (delivered + during, delivered), "{ledger}");
    assert_eq!(ledger.tally().failed_for(FailureClass::NoSpace), during, "{ledger}");
    assert_eq!(log.lost_records(), during, "reported losses");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn records_of_a_pause_are_counted_and_not_delivered() {
    paused(None, false);
    paused(None, true);
    for wakeup in [Wakeup::EveryRecord, Wakeup::Watermark(64 << 10), Wakeup::PollOnly] {
        paused(Some(wakeup), false);
    }
}

/// A program counts the records of a failed output shortly after the kernel counts the output.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn records_counted_after_their_lost_output_are_reported_at_the_end() {
    const LATE: u64 = 3;
    let (mut object, mut pipe) = recorder(64 << 10, false);
    pipe.pause().unwrap();
    emit_each(&mut object, 10);
    let mut dumps = Dumps::default();
    let _ = pipe.dump(&mut dumps).unwrap();
    let cpus = online().len() as u64;
    assert_eq!(dumps.log.lost_records(), 10 * cpus);
    let map = object.map_mut(OUTPUTS_MAP).unwrap();
    let mut outputs = PerCpuArray::<_, [u64; size_of::<OutputTally>() / 8]>::try_from(map).unwrap();
    let add = |&counted: &_| {
        let tally: OutputTally = transmute!(counted);
        transmute!(OutputTally { lost_records: tally.lost_records + LATE, ..tally })
    };
    let counted: Vec<_> = outputs.get(&0, 0).unwrap().iter().map(add).collect();
    outputs.set(0, PerCpuValues::try_from(counted).unwrap(), 0).unwrap();
    let _ = pipe.close(&mut dumps);
    assert_eq!(dumps.log.lost_records(), (10 + LATE) * cpus);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn pauses_are_exact_while_records_are_emitted() {
    const EACH: u32 = 300_000;
    let (mut object, mut pipe) = open(&Options::new().bytes_per_cpu(32 << 20));
    let program = classifier(&mut object, "emit_numbered");
    let (mut log, mut pauses) = (Log::default(), 0);
    std::thread::scope(|scope| {
        let generator = scope.spawn(|| generate_on(program, &online(), EACH));
        while !generator.is_finished() {
            pipe.pause().unwrap();
            let _ = pipe.drain_all(&mut log);
            let before = log.received.total();
            for _ in 0..10 {
                let _ = pipe.drain_all(&mut log);
            }
            assert_eq!(log.received.total(), before, "during a pause");
            pipe.resume().unwrap();
            pauses += 1;
        }
    });
    // Makes the ring report its last loss.
    online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
    let ledger = pipe.close(&mut log).ledger.unwrap();
    assert!(ledger.balances() && pauses > 0, "{ledger}");
    assert_eq!(ledger.attempted(), u64::from(EACH + 1) * online().len() as u64, "{ledger}");
    assert_eq!(ledger.handled() + ledger.failed(), ledger.attempted(), "{ledger}");
    assert_eq!(ledger.tally().failed_for(FailureClass::NoSpace), ledger.failed(), "{ledger}");
    let missing: u64 = log.received.by_cpu.values().map(|seen| seen.missing).sum();
    assert_eq!(missing, ledger.failed(), "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_paused_recorder_can_be_dumped() {
    let cpus = online().len() as u64;
    let (mut object, mut pipe) = recorder(64 << 10, true);
    let mut dumps = Dumps::default();
    emit_each(&mut object, 200);
    pipe.pause().unwrap();
    emit_each(&mut object, 100);
    let _ = pipe.dump(&mut dumps).unwrap();
    dumps.assert_newest(200);
    assert!(pipe.is_paused());
    assert_eq!(dumps.log.lost_records(), 100 * cpus);
    pipe.resume().unwrap();
    emit_each(&mut object, 50);
    let ledger = pipe.close(&mut dumps).ledger.unwrap();
    dumps.assert_newest(350);
    assert!(ledger.balances(), "{ledger}");
    assert_eq!(ledger.tally().failed_for(FailureClass::NoSpace), 100 * cpus, "{ledger}");
    assert_eq!(ledger.handled(), 250 * cpus, "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn handlers_receive_a_dump_before_its_records() {
    let (mut object, mut pipe) = recorder(64 << 10, true);
    let dumps = Mutex::new(Vec::new());
    let mut handlers = EvHandlers::new();
    handlers
        .on_dump(|dump| dumps.lock().unwrap().push((dump.records, 0)))
        .on::<Numbered, _>(|_| dumps.lock().unwrap().last_mut().expect("a dump").1 += 1);
    for count in [300, 0, 20] {
        emit_each(&mut object, count);
        let _ = pipe.dump(&mut handlers).unwrap();
    }
    drop(handlers);
    let cpus = online().len() as u64;
    assert_eq!(dumps.into_inner().unwrap(), [300, 0, 20].map(|each| (each * cpus, each * cpus)));
}
