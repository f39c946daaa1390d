//! The ledger on a real kernel: what was attempted, was handled or lost, to the record.
//!
//! `PROBE_ATTEMPTS` is how many records each CPU emits; 100,000 unless it is set.

mod suite;

use aya::maps::Map;
use aya::programs::SchedClassifier;
use probe_user::common::control::{EVENTS_MAP, OUTPUTS_MAP, TALLY_MAP};
use probe_user::common::tally::FailureClass;
use probe_user::common::{RawRecord, Record};
use probe_user::{
    Consumer, EvHandlers, EvPipe, Ledger, Loss, Malformed, Options, PipeParts, Stop, Tally,
    TallyError, Wakeup,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use suite::records::{Numbered, Tailed};
use suite::{Received, classifier, generate, generate_on, load, online, page_size, stay_on};

fn attempts() -> u32 {
    let set = std::env::var("PROBE_ATTEMPTS").ok();
    set.map_or(100_000, |number| number.parse().expect("PROBE_ATTEMPTS is a number"))
}

/// Losses as they were told, by CPU: outputs and records.
type Told = BTreeMap<u32, (u64, u64)>;

/// Emits on every CPU while a pipe is run, after a while in which nobody reads; closes it. Gives what
/// came, what was told of losses, and the ledger.
fn trace(options: &Options, unread: Duration) -> (Received, Told, Ledger) {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, options).unwrap();
    let (mut received, mut told) = (Received::default(), Told::new());
    let mut handlers = EvHandlers::new();
    handlers.on::<Numbered, _>(|event| received.take(&event)).on_loss(|loss| {
        let told = told.entry(loss.cpu).or_default();
        told.0 += loss.count;
        told.1 += loss.records.expect("the pipe has a tally");
    });
    let stop = Stop::new().unwrap();
    let program = classifier(&mut object, "emit_numbered");
    std::thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            std::thread::sleep(unread);
            pipe.run(&stop, &mut handlers).unwrap();
        });
        generate_on(program, &online(), attempts());
        stop.stop();
        consumer.join().unwrap();
    });
    let summary = pipe.close(&mut handlers);
    drop(handlers);
    let ledger = summary.ledger.unwrap();
    assert_eq!(summary.total.records, ledger.handled());
    (received, told, ledger)
}

/// Every identity, for each CPU: between what the generator did, what the eBPF side counted, what the
/// consumer was given, what it was told of losses, and what the kernel says.
fn balances(received: &Received, told: &Told, ledger: &Ledger) {
    assert!(ledger.is_complete(), "{ledger}");
    let cpus = online();
    assert_eq!(ledger.entries.iter().map(|entry| entry.cpu).collect::<Vec<_>>(), cpus);
    for entry in &ledger.entries {
        let cpu = entry.cpu;
        let seen = received.by_cpu.get(&cpu);
        let came = seen.map_or(0, |seen| seen.count);
        assert_eq!(entry.kind, Numbered::KIND);
        assert_eq!(entry.tally.attempted(), u64::from(attempts()), "CPU {cpu}");
        assert_eq!(entry.tally.sent + entry.tally.failed(), entry.tally.attempted(), "CPU {cpu}");
        assert_eq!([entry.handled, came], [entry.tally.sent; 2], "CPU {cpu}");
        // Nothing was repeated or left out but what was lost: numbers only go up.
        let ahead = seen.map_or(0, |seen| seen.next);
        let after = u64::from(attempts()) - ahead;
        let missing = seen.map_or(0, |seen| seen.missing) + after;
        assert_eq!(missing, entry.tally.failed(), "CPU {cpu}");
        assert_eq!(entry.tally.failed(), entry.tally.failed_for(FailureClass::NoSpace));
        let (outputs, records) = told.get(&cpu).copied().unwrap_or_default();
        assert_eq!(records, entry.tally.failed(), "CPU {cpu}");
        let counted = ledger.cpus.iter().find(|one| one.cpu == cpu);
        let failed = counted.map_or(0, |one| one.outputs.failed_for(FailureClass::NoSpace));
        assert_eq!(outputs, failed, "CPU {cpu}");
        if let Some(lost) = counted.and_then(|one| one.kernel_lost) {
            assert_eq!(lost, failed, "CPU {cpu}");
        }
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_books_balance_to_the_record() {
    // Adaptive; and with small rings, so that some are lost now and then.
    for bytes in [1 << 20, 16 << 10] {
        let options = Options::new().bytes_per_cpu(bytes);
        let (received, told, ledger) = trace(&options, Duration::ZERO);
        balances(&received, &told, &ledger);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_books_balance_without_packing() {
    let options = Options::new().bytes_per_cpu(64 << 10).wakeup(Wakeup::Watermark(16 << 10));
    let (received, told, ledger) = trace(&options, Duration::ZERO);
    balances(&received, &told, &ledger);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_books_balance_when_most_is_lost() {
    for options in [Options::new(), Options::new().wakeup(Wakeup::PollOnly)] {
        let options = options.bytes_per_cpu(page_size());
        let (received, told, ledger) = trace(&options, Duration::from_secs(5));
        balances(&received, &told, &ledger);
        assert!(ledger.failed() >= ledger.attempted() / 2, "the rings were not starved: {ledger}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_books_are_open_at_any_time() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    let empty = pipe.ledger().unwrap().to_string();
    assert!(empty.starts_with("attempted 0 = handled 0 + lost 0; complete"), "{empty}");
    let cpu = online()[0];
    generate_on(classifier(&mut object, "emit_numbered"), &[cpu], 10);
    generate_on(classifier(&mut object, "emit_tailed"), &[cpu], 20);
    let mut handlers = EvHandlers::new();
    let before = pipe.ledger().unwrap();
    assert!(before.is_complete() && before.handled() == 0, "{before}");
    // What is packed is in no count before it is sent.
    assert!(pipe.drain_all(&mut handlers).is_continue());
    let ledger = pipe.ledger().unwrap();
    assert_eq!((ledger.attempted(), ledger.handled(), ledger.failed()), (30, 30, 0), "{ledger}");
    let kinds: Vec<_> = ledger.entries.iter().map(|one| (one.cpu, one.kind, one.handled)).collect();
    assert_eq!(kinds, [(cpu, Numbered::KIND, 10), (cpu, Tailed::KIND, 20)]);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_a_consumer_left_is_unread() {
    struct Few(u32);
    impl Consumer for Few {
        fn record(&mut self, _: u32, _: RawRecord<'_>) -> ControlFlow<()> {
            self.0 -= 1;
            if self.0 == 0 {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        }
        fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
            panic!("{loss:?}")
        }
        fn malformed(&mut self, what: Malformed) -> ControlFlow<()> {
            panic!("{what}")
        }
    }
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    let cpu = online()[0];
    generate_on(classifier(&mut object, "emit_numbered"), &[cpu], 100);
    let ledger = pipe.close(&mut Few(30)).ledger.unwrap();
    assert_eq!((ledger.handled(), ledger.unread(), ledger.failed()), (30, 70, 0), "{ledger}");
    assert!(ledger.is_complete(), "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_pipe_over_its_map_alone_has_no_books() {
    let object = load();
    let Some(Map::PerfEventArray(map)) = object.map(EVENTS_MAP) else { panic!("no map") };
    let pipe = EvPipe::from_map(map.fd(), &Options::new().wakeup(Wakeup::EveryRecord)).unwrap();
    let error = pipe.ledger().unwrap_err();
    assert!(matches!(error, TallyError::NoTally), "{error}");
    assert!(error.to_string().contains("EvPipe::from_object"), "{error}");
}

/// A ring is there, and its event enabled, before programs can find it; and they find it no more
/// before it goes: whoever emits all the time finds no event, or a ring.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn pipes_that_open_and_close_while_programs_emit_refuse_nobody() {
    let mut object = load();
    classifier(&mut object, "emit_numbered");
    let program: &SchedClassifier = object.program("emit_numbered").unwrap().try_into().unwrap();
    let map = |name| object.map(name).unwrap();
    let (Map::PerfEventArray(events), Map::PerCpuArray(tally), Map::PerCpuArray(outputs)) =
        (map(EVENTS_MAP), map(TALLY_MAP), map(OUTPUTS_MAP))
    else {
        panic!("maps of other types")
    };
    let parts = || PipeParts::new(events.fd()).unwrap().tally(tally.fd(), outputs.fd()).unwrap();
    let options = Options::new().bytes_per_cpu(4 << 20).wakeup(Wakeup::PollOnly);
    let (stop, mut handled, mut full) = (AtomicBool::new(false), 0, 0);
    let tallied = std::thread::scope(|scope| {
        for cpu in online() {
            let stop = &stop;
            scope.spawn(move || {
                stay_on(cpu);
                while !stop.load(Ordering::Relaxed) {
                    generate(program, 100);
                }
            });
        }
        let stopping = suite::set_on_drop::SetOnDrop(&stop);
        // Where CPUs are emulated, that takes long: fewer do.
        let start = Instant::now();
        for _ in (0..50).take_while(|round| *round < 8 || start.elapsed() < Duration::from_secs(4))
        {
            let mut pipe = EvPipe::open(parts(), &options).unwrap();
            let _ = pipe.drain(&mut EvHandlers::new());
            let ledger = pipe.close(&mut EvHandlers::new()).ledger.unwrap();
            assert!(ledger.is_complete(), "{ledger}");
            handled += ledger.handled();
            full += ledger.tally().failed_for(FailureClass::NoSpace);
        }
        drop(stopping);
        Tally::from_maps(tally.fd(), outputs.fd()).unwrap()
    });
    let tally = tallied.total().unwrap();
    assert_eq!(tally.sent, handled);
    // No event, or a ring that was full and not yet mapped: the kernel has counted those.
    assert_eq!(full, tally.failed_for(FailureClass::NoSpace));
    let early_or_late = tally.failed_for(FailureClass::NoEvent);
    assert_eq!(tally.failed(), early_or_late + full, "{tally:?}");
    assert!(handled > 0 && early_or_late > 0, "{tally:?}");
}
