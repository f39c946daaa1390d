//! Several consumers of the same maps: at the same time, or one after the other.

use crate::suite::records::Numbered;
use crate::suite::{
    AMPLE, Log, classifier, emit_on, generate, generate_on, load, map, number_from, on_each_cpu,
    online, open, while_running,
};
use probe_user::common::RawRecord;
use probe_user::common::control::EVENTS_MAP;
use probe_user::ledger::HandedOver;
use probe_user::{
    Consumer, CpuChange, EvHandlers, EvPipe, Failure, Loss, OpenError, Options, PerCpuPipe,
    PipeParts, Stop, Summary, Wakeup,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a consumer sleeps unless it is woken.
const ASLEEP: Duration = Duration::from_secs(60);

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_is_refused_while_another_one_lives() {
    let (mut object, mut first) = open(&Options::new());
    let in_use = |opened: Result<EvPipe, OpenError>| {
        let error = opened.unwrap_err();
        assert!(error.to_string().contains("Options::take_over"), "{error}");
        let OpenError::InUse { cpus } = error else { panic!("{error}") };
        cpus
    };
    let of_map = |options: &Options| EvPipe::from_map(map(&object, EVENTS_MAP), options);
    assert_eq!(in_use(of_map(&Options::new())), online());
    assert_eq!(in_use(of_map(&Options::new().cpus([online()[1]]))), online()[1..2]);
    assert_eq!(in_use(EvPipe::from_object(&mut object, &Options::new())), online());
    let refused = PerCpuPipe::from_object(&mut object, &Options::new(), |_| EvHandlers::new());
    assert!(matches!(refused, Err(OpenError::InUse { .. })));
    // The first one has noticed nothing of that.
    emit_on(&mut object, &online(), 10);
    let mut log = Log::default();
    assert!(first.drain_all(&mut log).is_continue());
    log.received.assert_complete(&online(), 10);
    assert_eq!(log.changes, [""; 0]);
    drop(first);
    let second = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    assert!(second.ledger().unwrap().is_complete());
}

/// Polls until the consumer has been told of every CPU that another one has taken.
fn poll_until_taken_over(pipe: &mut EvPipe, log: &mut Log) {
    let start = Instant::now();
    while log.changes.len() < online().len() {
        let _ = pipe.poll(Some(ASLEEP), log).unwrap();
        assert!(start.elapsed() < ASLEEP, "{:?}", log.changes);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_sleeps_is_told_of_the_one_that_takes_over() {
    let (mut object, mut first) = open(&Options::new());
    let mut log = Log::default();
    let _ = first.drain(&mut log);
    let mut second = EvPipe::from_object(&mut object, &Options::new().take_over()).unwrap();
    poll_until_taken_over(&mut first, &mut log);
    let taken = |cpu| format!("another consumer has taken over CPU {cpu}");
    assert_eq!(log.changes, online().into_iter().map(taken).collect::<Vec<_>>());
    assert!(first.queues().iter().all(|queue| queue.is_taken_over() && !queue.is_online()));
    emit_on(&mut object, &online(), 10);
    let closed = first.close(&mut log);
    assert_eq!((closed.ledger.unwrap().attempted(), log.received.total()), (0, 0));
    let mut log = Log::default();
    assert!(second.drain_all(&mut log).is_continue());
    log.received.assert_complete(&online(), 10);
    assert!(second.ledger().unwrap().is_complete());
}

/// As in an upgrade that fails.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_is_told_of_one_that_has_taken_over_and_is_gone() {
    let (mut object, mut first) = open(&Options::new());
    let mut log = Log::default();
    let _ = first.drain(&mut log);
    let mut second = EvPipe::from_object(&mut object, &Options::new().take_over()).unwrap();
    emit_on(&mut object, &online(), 10);
    let mut seen = Log::default();
    assert!(second.drain_all(&mut seen).is_continue());
    seen.received.assert_complete(&online(), 10);
    assert!(second.close(&mut seen).ledger.unwrap().is_complete());
    poll_until_taken_over(&mut first, &mut log);
    let ledger = first.close(&mut log).ledger.unwrap();
    assert!(ledger.is_complete() && ledger.attempted() == 0, "{ledger}");
}

/// What would wake the first one may have no room in its rings. The kernel counts that as a loss, and no program does.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn full_rings_are_handed_over_with_exact_accounts() {
    // The rings are full to different bytes.
    for numbered in 1..9 {
        let options = Options::new().bytes_per_cpu(4096);
        let (mut object, mut first) = open(&options);
        let mut handlers = EvHandlers::new();
        let _ = first.drain(&mut handlers);
        emit_on(&mut object, &online(), numbered);
        generate_on(classifier(&mut object, "emit_tailed"), &online(), 1000);
        let second = EvPipe::from_object(&mut object, &options.take_over()).unwrap();
        emit_on(&mut object, &online(), 1000);
        let first = first.close(&mut handlers);
        second.meter().begin_after(&first.handed_over);
        let ledgers = [first.ledger.unwrap(), second.close(&mut handlers).ledger.unwrap()];
        for ledger in &ledgers {
            assert!(ledger.balances() && ledger.unread() == 0, "{numbered}: {ledger}");
        }
        let attempted: u64 = ledgers.iter().map(|ledger| ledger.attempted()).sum();
        assert_eq!(attempted, (2000 + u64::from(numbered)) * online().len() as u64);
        assert!(ledgers[0].tally().failed() > 0, "{}", ledgers[0]);
    }
}

/// The new one has the map of events only.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_sleeps_is_told_of_one_that_knows_no_other_maps() {
    let (mut object, mut first) = open(&Options::new());
    let mut log = Log::default();
    let _ = first.drain(&mut log);
    let options = Options::new().take_over();
    let mut second = EvPipe::from_map(map(&object, EVENTS_MAP), &options).unwrap();
    poll_until_taken_over(&mut first, &mut log);
    emit_on(&mut object, &online(), 10);
    assert_eq!(first.close(&mut log).ledger.unwrap().attempted(), 0);
    let mut log = Log::default();
    assert!(second.drain_all(&mut log).is_continue());
    log.received.assert_complete(&online(), 10);
}

/// Programs go on, and fail from the moment at which the pipe has left the map.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_pipe_that_closes_stays_away() {
    let (mut object, mut pipe) = open(&Options::new());
    let mut log = Log::default();
    for _ in 0..2 {
        // A pipe looks for failures once a second. It would repair those that it finds now.
        let _ = pipe.drain(&mut log);
        std::thread::sleep(Duration::from_millis(1100));
    }
    let program = classifier(&mut object, "emit_numbered");
    let emit = |stop: &Stop| on_each_cpu(stop, || generate(program, 100));
    let closed = while_running(emit, || {
        std::thread::sleep(Duration::from_millis(100));
        pipe.close(&mut log)
    });
    assert_eq!(log.changes, [""; 0]);
    let ledger = closed.ledger.unwrap();
    assert!(ledger.balances() && ledger.unread() == 0, "{ledger}");
    assert!(EvPipe::from_object(&mut object, &Options::new()).is_ok());
}

/// What wakes the first one is read with records that it has not seen yet.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_with_records_is_told_of_the_one_that_takes_over() {
    let (mut object, mut first) = open(&Options::new());
    let mut log = Log::default();
    let _ = first.drain(&mut log);
    emit_on(&mut object, &online(), 1);
    let second = EvPipe::from_object(&mut object, &Options::new().take_over()).unwrap();
    poll_until_taken_over(&mut first, &mut log);
    let closed = first.close(&mut log);
    second.meter().begin_after(&closed.handed_over);
    log.received.assert_complete(&online(), 1);
    assert!(second.close(&mut log).ledger.unwrap().is_complete());
}

/// A consumer of some CPUs.
#[derive(Default)]
struct Partial {
    records: u64,
    failures: Vec<Failure>,
}

impl Consumer for &mut Partial {
    fn record(&mut self, _: u32, _: RawRecord<'_>) -> ControlFlow<()> {
        self.records += 1;
        ControlFlow::Continue(())
    }

    fn failed(&mut self, failure: Failure) -> ControlFlow<()> {
        self.failures.push(failure);
        ControlFlow::Continue(())
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn each_consumer_accounts_for_its_own_cpus() {
    let (a, b) = (online()[0], online()[1]);
    let mut object = load();
    let of_a = EvPipe::from_object(&mut object, &Options::new().cpus([a])).unwrap();
    // These fail, but not for the first consumer.
    emit_on(&mut object, &[b], 5);
    let options = Options::new().cpus([b]);
    let of_b = PerCpuPipe::from_object(&mut object, &options, |_| EvHandlers::new()).unwrap();
    emit_on(&mut object, &[a], 10);
    emit_on(&mut object, &[b], 20);
    assert_eq!(of_a.meter().ledger().unwrap().attempted(), 10);
    assert_eq!(of_b.meter().ledger().unwrap().attempted(), 20);
    let mut partial = Partial::default();
    let ledger = of_a.close(&mut &mut partial).ledger.unwrap();
    assert!(ledger.is_complete() && ledger.attempted() == 10, "{ledger}");
    assert_eq!((partial.records, partial.failures), (10, vec![]));
    let ledger = of_b.close().ledger.unwrap();
    assert!(ledger.is_complete() && ledger.attempted() == 20, "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn one_cpu_can_be_taken_over() {
    let (a, b) = (online()[0], online()[1]);
    let (mut object, first) = open(&Options::new().cpus([a, b]));
    emit_on(&mut object, &[a, b], 10);
    let options = Options::new().cpus([b]).take_over();
    let second = EvPipe::from_object(&mut object, &options).unwrap();
    emit_on(&mut object, &[a, b], 20);
    let closed = first.close(&mut EvHandlers::new());
    let ledger = closed.ledger.unwrap();
    assert!(ledger.is_complete() && ledger.attempted() == 30 + 10, "{ledger}");
    assert_eq!(closed.handed_over.cpus().collect::<Vec<_>>(), [b]);
    second.meter().begin_after(&closed.handed_over);
    let ledger = second.close(&mut EvHandlers::new()).ledger.unwrap();
    assert!(ledger.is_complete() && ledger.attempted() == 20, "{ledger}");
}

/// The numbers of the records that a consumer has received.
#[derive(Default)]
struct Numbers {
    by_cpu: BTreeMap<u32, Vec<u64>>,
    taken_over: usize,
}

impl Numbers {
    fn total(&self) -> u64 {
        self.by_cpu.values().map(|numbers| numbers.len() as u64).sum()
    }
}

impl Consumer for Numbers {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        let (numbered, _) = record.read::<Numbered>().unwrap();
        assert_eq!(*numbered, Numbered::new(numbered.number, u64::from(cpu)));
        self.by_cpu.entry(cpu).or_default().push(numbered.number);
        ControlFlow::Continue(())
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        panic!("{loss:?}")
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        assert!(matches!(change, CpuChange::TakenOver { .. }), "{change}");
        self.taken_over += 1;
    }
}

/// How many handovers there are, unless the variable overrides it.
const HANDOVERS: u32 = 100;
const HANDOVERS_VARIABLE: &str = "PROBE_HANDOVERS";

/// The most records that are on their way. They fit in the rings.
const MOST: u64 = 20_000;

/// Each record reaches exactly one of the consumers, and each ledger has exactly the records of its consumer.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn handovers_under_load_lose_and_repeat_nothing() {
    let handovers = number_from(HANDOVERS_VARIABLE, HANDOVERS);
    let mut object = load();
    let parts = PipeParts::of_object(&mut object).unwrap();
    let program = classifier(&mut object, "emit_numbered");
    let (emitted, received) = (AtomicU64::new(0), AtomicU64::new(0));
    let emit = || {
        let before = emitted.load(Ordering::Relaxed);
        match before.saturating_sub(received.load(Ordering::Relaxed)) < MOST {
            true => {
                emitted.fetch_add(100, Ordering::Relaxed);
                generate(program, 100);
            }
            false => std::thread::yield_now(),
        }
    };
    for wakeup in [Options::new(), Options::new().wakeup(Wakeup::PollOnly)] {
        let options = wakeup.bytes_per_cpu(AMPLE).take_over();
        let before = emitted.load(Ordering::Relaxed);
        let mut all: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let mut end = |summary: Summary, numbers: Numbers| -> HandedOver {
            let ledger = summary.ledger.unwrap();
            assert!(ledger.is_complete(), "{ledger}");
            assert_eq!((ledger.attempted(), ledger.handled()), (numbers.total(), numbers.total()));
            for (cpu, numbers) in numbers.by_cpu {
                all.entry(cpu).or_default().extend(numbers);
            }
            summary.handed_over
        };
        let mut pipe = EvPipe::open(parts.clone(), &options).unwrap();
        // Nothing wakes the other one: it looks at its own interval.
        let timeout = (pipe.wakeup() != Wakeup::PollOnly).then_some(ASLEEP);
        let mut numbers = Numbers::default();
        while_running(
            |stop| on_each_cpu(stop, emit),
            || {
                for _ in 0..handovers {
                    let progress = pipe.poll(None, &mut numbers).unwrap();
                    received.fetch_add(progress.records, Ordering::Relaxed);
                    let next = EvPipe::open(parts.clone(), &options).unwrap();
                    let start = Instant::now();
                    while numbers.taken_over < online().len() {
                        let progress = pipe.poll(timeout, &mut numbers).unwrap();
                        received.fetch_add(progress.records, Ordering::Relaxed);
                        assert!(start.elapsed() < ASLEEP, "it has not noticed the next one");
                    }
                    let polled = numbers.total();
                    let earlier = std::mem::replace(&mut pipe, next);
                    let summary = earlier.close(&mut numbers);
                    received.fetch_add(numbers.total() - polled, Ordering::Relaxed);
                    let handed_over = end(summary, std::mem::take(&mut numbers));
                    let handed_over = HandedOver::from_bytes(&handed_over.to_bytes()).unwrap();
                    pipe.meter().begin_after(&handed_over);
                }
            },
        );
        let summary = pipe.close(&mut numbers);
        assert_eq!(summary.handed_over, HandedOver::default());
        end(summary, numbers);
        let total = all.values().map(|numbers| numbers.len() as u64).sum::<u64>();
        assert_eq!(total, emitted.load(Ordering::Relaxed) - before);
        for (cpu, numbers) in all {
            let first = numbers[0];
            let expected = (first..).take(numbers.len());
            assert!(
                numbers.iter().copied().eq(expected),
                "CPU {cpu}: lost, repeated or out of order"
            );
        }
    }
}
