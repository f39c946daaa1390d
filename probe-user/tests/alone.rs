//! Records that are emitted alone, on a real kernel: they come at once, and are counted as exactly as others.

mod suite;

use probe_user::common::Record;
use probe_user::common::tally::FailureClass;
use probe_user::{EvHandlers, EvPipe, Options, Wakeup};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use suite::records::{Interrupting, Numbered, Odd};
use suite::{
    Received, attach_clock, classifier, detach_clock, generate_on, load, online, page_size, strict,
};

/// So long that nothing is swept while a test looks.
const LATER: Wakeup = Wakeup::Adaptive { max_latency: Duration::from_secs(3600) };

const COUNT: u32 = 20_000;

fn roomy() -> Options {
    Options::new().bytes_per_cpu(4 << 20)
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn they_come_at_once_and_in_order_whatever_the_consumer_wants() {
    for wakeup in [LATER, Wakeup::Watermark(1 << 20), Wakeup::EveryRecord, Wakeup::PollOnly] {
        let mut object = load();
        let mut pipe = EvPipe::from_object(&mut object, &roomy().wakeup(wakeup)).unwrap();
        let mut received = Received::default();
        // The first look wakes a consumer that is adaptive: from here on, others' records are packed.
        assert_eq!(pipe.drain(&mut received).records, 0);
        generate_on(classifier(&mut object, "emit_alone"), &online(), 1000);
        // One look, and no block is asked for.
        let _ = pipe.drain(&mut strict(&mut received));
        received.assert_complete(&online(), 1000);
        let ledger = pipe.close(&mut received).ledger.unwrap();
        let all = 1000 * online().len() as u64;
        assert_eq!((ledger.attempted(), ledger.handled()), (all, all), "{wakeup:?}");
        assert!(ledger.is_complete(), "{wakeup:?}: {ledger}");
    }
}

/// Those of one kind are emitted both ways.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn each_is_counted_once_beside_those_that_are_packed() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &roomy()).unwrap();
    let mut numbers = BTreeMap::<u32, Vec<u64>>::new();
    let mut handlers = EvHandlers::new();
    handlers.on::<Numbered, _>(|event| {
        let number = event.record.number;
        assert_eq!(*event.record, Numbered::new(number, u64::from(event.cpu)), "torn");
        numbers.entry(event.cpu).or_default().push(number);
    });
    generate_on(classifier(&mut object, "emit_mixed"), &online(), COUNT);
    assert!(pipe.drain_all(&mut handlers).is_continue());
    let ledger = pipe.ledger().unwrap();
    drop(handlers);
    for (cpu, numbers) in &mut numbers {
        assert!(!numbers.is_sorted(), "CPU {cpu}: those that are packed come later");
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..u64::from(COUNT)), "CPU {cpu}");
    }
    assert_eq!(numbers.len(), online().len());
    assert!(ledger.is_complete(), "{ledger}");
    assert_eq!(ledger.attempted(), u64::from(COUNT) * online().len() as u64);
    // Of what their programs count, two in five are not.
    let counted = pipe.tally().unwrap().total().unwrap();
    assert_eq!(counted.sent * 5, ledger.handled() * 3);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn those_that_find_no_room_are_counted_one_by_one() {
    let mut object = load();
    let options = Options::new().bytes_per_cpu(page_size()).wakeup(Wakeup::PollOnly);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let (mut received, mut told) = (Received::default(), BTreeMap::<u32, u64>::new());
    let mut handlers = EvHandlers::new();
    handlers.on::<Numbered, _>(|event| received.take(&event)).on_loss(|loss| {
        *told.entry(loss.cpu).or_default() += loss.records.expect("the pipe has a tally");
    });
    for _ in 0..50 {
        generate_on(classifier(&mut object, "emit_alone"), &online(), 100);
        let _ = pipe.drain(&mut handlers);
    }
    let summary = pipe.close(&mut handlers);
    drop(handlers);
    let ledger = summary.ledger.unwrap();
    assert!(ledger.is_complete(), "{ledger}");
    assert_eq!(ledger.cpus.iter().map(|cpu| cpu.cpu).collect::<Vec<_>>(), online());
    for (entry, cpu) in ledger.entries.iter().zip(&ledger.cpus) {
        let came = &received.by_cpu[&entry.cpu];
        assert_eq!((entry.kind, entry.tally.attempted()), (Numbered::KIND, 5000));
        // 42 of 96 bytes are a page.
        assert!((42 * 50..=43 * 50).contains(&came.count), "{came:?}");
        let lost = 5000 - came.count;
        assert_eq!([entry.handled, came.missing + 5000 - came.next], [came.count, lost]);
        assert_eq!(entry.tally.failed_for(FailureClass::NoSpace), lost);
        assert_eq!((cpu.outputs.lost_records, told[&entry.cpu]), (lost, lost));
        assert_eq!(cpu.outputs.failed_for(FailureClass::NoSpace), lost);
        assert!(cpu.kernel_lost.is_none_or(|kernel| kernel == lost), "{cpu:?}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn those_that_have_no_event_are_counted_as_such() {
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &roomy()).unwrap();
    let parts = pipe.tally().unwrap().total().unwrap();
    assert_eq!(parts.attempted(), 0);
    drop(pipe);
    let cpu = online()[0];
    generate_on(classifier(&mut object, "emit_alone"), &[cpu], 10);
    let pipe = EvPipe::from_object(&mut object, &roomy()).unwrap();
    let tally = pipe.tally().unwrap().total().unwrap();
    assert_eq!((tally.sent, tally.failed()), (0, 10));
    assert_eq!(tally.failed_for(FailureClass::NoEvent), 10);
    let outputs = pipe.tally().unwrap().outputs().unwrap();
    let failed = outputs.iter().map(|of| of.tally.failed_for(FailureClass::NoEvent)).sum::<u64>();
    assert_eq!(failed, 10);
}

/// The kernel pads a sample, and that is the record's padding.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn one_of_odd_length_is_whole() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &roomy().wakeup(LATER)).unwrap();
    let mut next = 0;
    let mut handlers = EvHandlers::new();
    handlers
        .on::<Odd, _>(|event| {
            assert_eq!(*event.record, Odd::new(next));
            assert!(event.tail.is_empty());
            next += 1;
        })
        .on_unknown::<()>(|cpu, record| panic!("CPU {cpu}: {record:?}"))
        .on_malformed::<()>(|malformed| panic!("{malformed}"));
    generate_on(classifier(&mut object, "emit_odd"), &online()[..1], 1000);
    let _ = pipe.drain(&mut handlers);
    drop(handlers);
    assert_eq!(next, 1000);
}

/// In the middle of a record that is packed, and of another one that is emitted alone.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn interrupts_that_emit_alone_do_no_harm() {
    const ROUND: u32 = 20_000;
    /// Emulated machines have no more time than this.
    const TIME: Duration = Duration::from_secs(15);
    /// Of the ticks, some come in the middle of a record.
    const ENOUGH: u64 = 10_000;
    for name in ["emit_numbered", "emit_alone"] {
        let mut object = load();
        let mut pipe = EvPipe::from_object(&mut object, &roomy()).unwrap();
        attach_clock(&mut object, "emit_interrupting_alone", Duration::from_micros(100));
        classifier(&mut object, name);
        let (mut received, mut ticks) = (Received::default(), BTreeMap::<u32, Vec<u64>>::new());
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
        let (mut rounds, start) = (0, Instant::now());
        while pipe.queues().iter().map(|queue| queue.counts().records).sum::<u64>()
            < rounds * u64::from(ROUND) * online().len() as u64 + ENOUGH
            && start.elapsed() < TIME
        {
            rounds += 1;
            generate_on(classifier(&mut object, name), &online(), ROUND);
            assert!(pipe.drain_all(&mut handlers).is_continue());
        }
        detach_clock(&mut object, "emit_interrupting_alone");
        let ledger = pipe.close(&mut handlers).ledger.unwrap();
        drop(handlers);
        assert!(ledger.is_complete() && ledger.failed() == 0, "{name}: {ledger}");
        received.assert_complete(&online(), u64::from(ROUND) * rounds);
        let mut count = 0;
        for (cpu, numbers) in &mut ticks {
            numbers.sort_unstable();
            assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "CPU {cpu}");
            count += numbers.len() as u64;
        }
        println!("{name}: {rounds} rounds, {count} ticks");
        assert_eq!(ledger.attempted(), received.total() + count);
        assert!(count >= 100, "{count} ticks");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_flight_recorder_counts_those_that_it_finds() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &roomy().overwrite()).unwrap();
    let cpu = online()[0];
    generate_on(classifier(&mut object, "emit_mixed"), &[cpu], 1000);
    let mut count = 0;
    let mut handlers = EvHandlers::new();
    handlers.on::<Numbered, _>(|_| count += 1);
    let _ = pipe.dump(&mut handlers).unwrap();
    let ledger = pipe.ledger().unwrap();
    assert!(ledger.is_complete(), "{ledger}");
    assert_eq!((ledger.attempted(), ledger.handled(), ledger.overwritten()), (1000, 1000, 0));
    // Over what it has, and more: of those that were emitted alone, nobody knows how many are gone.
    generate_on(classifier(&mut object, "emit_mixed"), &[cpu], 100_000);
    let _ = pipe.dump(&mut handlers).unwrap();
    let ledger = pipe.ledger().unwrap();
    drop(handlers);
    assert!(ledger.is_complete(), "{ledger}");
    assert_eq!(ledger.handled(), count);
    let packed = (1000 + 100_000) * 3 / 5;
    let counted = pipe.tally().unwrap().total().unwrap();
    assert_eq!(counted.sent, packed);
    let overwritten = ledger.overwritten();
    assert!(overwritten > 0 && overwritten < packed, "{ledger}");
    assert_eq!(ledger.attempted(), ledger.handled() + overwritten, "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn in_the_order_of_time_they_are_among_those_that_are_packed() {
    let mut object = load();
    let options = roomy().wakeup(Wakeup::Adaptive { max_latency: Duration::from_millis(2) });
    let pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let ordered = pipe.ordered(Duration::from_millis(10)).unwrap();
    let mut numbers = BTreeMap::<u32, u64>::new();
    let mut handlers = EvHandlers::new();
    handlers.on::<Numbered, _>(|event| {
        let next = numbers.entry(event.cpu).or_default();
        assert_eq!(event.record.number, *next, "CPU {}", event.cpu);
        *next += 1;
    });
    generate_on(classifier(&mut object, "emit_mixed"), &online(), COUNT);
    assert!(ordered.close(&mut handlers).pipe.ledger.unwrap().is_complete());
    drop(handlers);
    assert!(numbers.values().all(|&next| next == u64::from(COUNT)), "{numbers:?}");
    assert_eq!(numbers.len(), online().len());
}
