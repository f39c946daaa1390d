//! Records that outlive the ring, from an iterator or a stream.

use crate::pipe::{N, runtime};
use crate::suite::records::Numbered;
use crate::suite::{AMPLE, Received, emit_on, online, open};
use probe_user::ledger::Ledger;
use probe_user::{
    CpuState, EvHandlers, EvPipe, Item, Options, OwnedRecords, RecordStream, Stop, Wakeup,
};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Passes an item of a stream to `received`.
fn take(received: &mut Received, item: Item) {
    let Item::Record(record) = item else { panic!("{item:?}") };
    let (numbered, tail) = record.read::<Numbered>().unwrap();
    assert!(tail.is_empty());
    received.take_numbered(record.cpu, record.time, &numbered);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn exactly_n_arrive_as_owned_records() {
    let (mut object, pipe) = open(&Options::new().bytes_per_cpu(AMPLE));
    let emitted = N as usize * online().len();
    emit_on(&mut object, &online(), N);
    let mut received = Received::default();
    let mut records = OwnedRecords::new(pipe);
    records.by_ref().take(emitted).for_each(|item| take(&mut received, item.unwrap()));
    received.assert_complete(&online(), u64::from(N));
    let (mut pipe, items) = records.into_parts();
    assert_eq!((pipe.drain(&mut EvHandlers::new()).records, items), (0, vec![]));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn owned_records_end_after_what_was_emitted_before_the_stop() {
    let (mut object, pipe) = open(&Options::new().bytes_per_cpu(AMPLE));
    let stop = Stop::new().unwrap();
    let mut records = OwnedRecords::until(pipe, &stop).unwrap();
    emit_on(&mut object, &online(), N);
    let mut received = Received::default();
    take(&mut received, records.next().unwrap().unwrap());
    stop.stop();
    records.by_ref().for_each(|item| take(&mut received, item.unwrap()));
    received.assert_complete(&online(), u64::from(N));
    // It has ended, and stays so.
    emit_on(&mut object, &online(), 1);
    assert!(records.next().is_none());
    assert_eq!(records.next_within(Duration::MAX).unwrap(), None);
    // The pipe goes on, and waits for the stop no more: it cannot wait for it twice.
    let (mut pipe, items) = records.into_parts();
    assert_eq!(items, []);
    pipe.run(&stop, &mut EvHandlers::new()).unwrap();
    assert_eq!(pipe.ledger().unwrap().handled(), u64::from(N + 1) * online().len() as u64);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn owned_records_are_waited_for_until_a_deadline() {
    let (mut object, pipe) = open(&Options::new());
    let mut records = OwnedRecords::new(pipe);
    let (begun, wait) = (Instant::now(), Duration::from_millis(50));
    assert_eq!(records.next_within(wait).unwrap(), None);
    assert!(begun.elapsed() >= wait);
    assert_eq!(records.next_within(Duration::ZERO).unwrap(), None);
    emit_on(&mut object, &online()[..1], 3);
    for wait in [Duration::MAX, Duration::ZERO, wait] {
        assert!(matches!(records.next_within(wait).unwrap(), Some(Item::Record(_))), "{wait:?}");
    }
    assert_eq!(records.next_within(Duration::ZERO).unwrap(), None);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn owned_records_that_nobody_has_taken_are_unread() {
    let (mut object, pipe) = open(&Options::new());
    let mut records = OwnedRecords::new(pipe);
    emit_on(&mut object, &online()[..1], 100);
    let counts = |ledger: &Ledger| {
        assert!(ledger.balances() && !ledger.is_complete(), "{ledger}");
        (ledger.attempted(), ledger.handled(), ledger.unread())
    };
    for taken in 1..=2 {
        assert!(matches!(records.next(), Some(Ok(Item::Record(_)))));
        assert_eq!(counts(&records.ledger().unwrap()), (100, taken, 100 - taken));
    }
    // Neither those in the ring nor those taken out of it are lost without a word.
    emit_on(&mut object, &online()[..1], 10);
    assert_eq!(counts(&records.close().ledger.unwrap()), (110, 2, 108));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn exactly_n_arrive_through_an_asynchronous_stream() {
    let options = Options::new().bytes_per_cpu(AMPLE).wakeup(Wakeup::EveryRecord);
    let (mut object, pipe) = open(&options);
    let emitted = N as usize * online().len();
    let runtime = runtime();
    let task = runtime.spawn(async move {
        let mut received = Received::default();
        let mut stream = RecordStream::new(pipe).unwrap();
        for _ in 0..emitted {
            take(&mut received, stream.next().await.unwrap());
        }
        received
    });
    emit_on(&mut object, &online(), N);
    runtime.block_on(task).unwrap().assert_complete(&online(), u64::from(N));
}

/// The runtime has nothing to wait for but an interval.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_stream_without_wakeups_looks_at_intervals() {
    let (mut object, pipe) = open(&Options::new().wakeup(Wakeup::PollOnly));
    runtime().block_on(async {
        let mut stream = RecordStream::new(pipe).unwrap();
        for cpu in online() {
            let asleep = Duration::from_millis(100);
            tokio::time::timeout(asleep, stream.next()).await.unwrap_err();
            emit_on(&mut object, &[cpu], 1);
            let next = tokio::time::timeout(Duration::from_secs(30), stream.next());
            let item = next.await.expect("it is found at the next interval").unwrap();
            assert!(matches!(item, Item::Record(_)), "{item:?}");
        }
    });
}

/// A stream returns what is not a record at once, not with the next record.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_change_of_cpus_needs_no_record() {
    let (mut object, pipe) = open(&Options::new());
    runtime().block_on(async {
        let mut stream = RecordStream::new(pipe).unwrap();
        // The stream sleeps.
        let asleep = Duration::from_millis(100);
        tokio::time::timeout(asleep, stream.next()).await.unwrap_err();
        let second = EvPipe::from_object(&mut object, &Options::new().take_over()).unwrap();
        // The runtime notices that the pipe is ready. A second wakeup could hide that the first one was of no use.
        tokio::time::sleep(asleep).await;
        for cpu in online() {
            let item = std::future::poll_fn(|cx| Poll::Ready(pin!(stream.next()).poll(cx))).await;
            let Poll::Ready(item) = item else { panic!("the stream waits for a record") };
            assert_eq!(item.unwrap(), Item::CpuChanged { cpu, state: CpuState::TakenOver });
        }
        drop(second);
    });
}

/// A stream that always has another item must not keep the other tasks of its thread from running.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_timer_beside_a_full_stream_ends_on_time() {
    let (mut object, pipe) = open(&Options::new().bytes_per_cpu(AMPLE));
    emit_on(&mut object, &online(), N);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let taken = runtime.block_on(async {
        let mut stream = RecordStream::new(pipe).unwrap();
        let timer = tokio::time::sleep(Duration::from_millis(10));
        tokio::pin!(timer);
        let mut taken = 0;
        loop {
            tokio::select! {
                biased;
                item = stream.next() => {
                    assert!(matches!(item, Ok(Item::Record(_))), "{item:?}");
                    taken += 1;
                    // All of them take longer than the timer by far.
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_micros(20) {}
                }
                () = &mut timer => break,
            }
        }
        let ledger = stream.ledger().unwrap();
        assert!(ledger.balances() && ledger.handled() == taken, "{ledger}");
        taken
    });
    let emitted = u64::from(N) * online().len() as u64;
    assert!(taken < emitted / 2, "{taken} of {emitted} came before the timer");
}
