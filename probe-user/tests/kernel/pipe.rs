//! The pipe on a real kernel: every record arrives once, in order and complete, or is counted as
//! lost.

use crate::suite::records::{Numbered, TAIL_LENS, Tailed};
use crate::suite::{
    AMPLE, Log, Received, adaptive, classifier, emit_on, emit_one_on, generate_on, is_readable,
    load, map, on_numbered, online, open, page_size, strict, while_emitting,
};
use aya::Ebpf;
use aya::maps::perf::PerfEvent;
use aya::maps::{Array, PerfEventArray};
use probe_user::common::control::{CONTROL_MAP, CpuControl, EVENTS_MAP};
use probe_user::common::tally::FailureClass;
use probe_user::common::{Record, Records, record_span};
use probe_user::ledger::CpuTally;
use probe_user::{AsyncEvPipe, EvHandlers, EvPipe, OpenError, Options, OwnedRecords, Stop, Wakeup};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Records per CPU, with 96 bytes of ring each.
pub(crate) const N: u32 = 100_000;

/// A tokio runtime of one thread besides the caller's.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn exactly_n_arrive_with_every_wakeup() {
    let options = Options::new().bytes_per_cpu(AMPLE);
    let wakeups =
        [Wakeup::EveryRecord, Wakeup::Every(100), Wakeup::Watermark(4096), Wakeup::PollOnly];
    let others = wakeups.map(|wakeup| options.clone().wakeup(wakeup));
    for options in [options].iter().chain(&others) {
        let (mut object, mut pipe) = open(options);
        let mut received = Received::default();
        let mut handlers = strict(&mut received);
        while_emitting(&mut object, N, |stop| pipe.run(stop, &mut handlers).unwrap());
        let tally = pipe.tally().unwrap().total().unwrap();
        let total = pipe.close(&mut handlers).total;
        drop(handlers);
        received.assert_complete(&online(), u64::from(N));
        let emitted = u64::from(N) * online().len() as u64;
        assert_eq!((tally.sent, tally.attempted()), (emitted, emitted));
        assert_eq!((total.records, total.lost, total.malformed), (emitted, 0, 0));
    }
}

/// Sent and failed records by CPU, from the eBPF side's tally.
fn tally_by_cpu(pipe: &EvPipe) -> BTreeMap<u32, (u64, u64)> {
    let tallies = pipe.tally().unwrap().of(Numbered::KIND).unwrap();
    tallies
        .into_iter()
        .map(|CpuTally { cpu, tally, .. }| {
            let failed = tally.failed_for(FailureClass::NoSpace);
            assert_eq!(tally.attempted(), tally.sent + failed, "CPU {cpu}: another failure");
            (cpu, (tally.sent, failed))
        })
        .collect()
}

/// Uses rings of one page, which hold 42 records. `consume` runs while the records are emitted.
fn starved(consume: impl Fn(&mut EvPipe, &Stop, &mut Log) + Sync) {
    let options = Options::new().bytes_per_cpu(page_size()).wakeup(Wakeup::PollOnly);
    let (mut object, mut pipe) = open(&options);
    let mut log = Log::default();
    while_emitting(&mut object, N, |stop| consume(&mut pipe, stop, &mut log));
    assert!(pipe.drain_all(&mut log).is_continue());
    // The kernel reports a loss before the next record that fits.
    for cpu in online() {
        emit_one_on(&mut object, cpu);
    }
    assert!(pipe.drain_all(&mut log).is_continue());
    let tally = tally_by_cpu(&pipe);
    for cpu in online() {
        let (sent, failed) = tally[&cpu];
        let seen = &log.received.by_cpu[&cpu];
        assert!(failed > 0, "CPU {cpu} was not starved");
        assert_eq!(sent + failed, u64::from(N) + 1, "CPU {cpu}: attempted");
        assert_eq!(seen.count, sent, "CPU {cpu}: received");
        assert_eq!(log.lost[&cpu].outputs, failed, "CPU {cpu}: reported losses");
        assert_eq!(seen.missing, failed, "CPU {cpu}: missing numbers");
        if let Some(kernel) = pipe.queue(cpu).unwrap().kernel_lost() {
            assert_eq!(kernel, failed, "CPU {cpu}: PERF_FORMAT_LOST");
        }
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn losses_reported_by_the_ring_are_exact() {
    starved(|_, _, _| ());
    starved(|pipe, stop, log| {
        while !stop.is_stopped() {
            assert!(pipe.drain(log).flow.is_continue());
        }
    });
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_loss_that_the_ring_never_reported_is_in_the_summary() {
    let options = Options::new().bytes_per_cpu(page_size()).wakeup(Wakeup::PollOnly);
    let (mut object, pipe) = open(&options);
    emit_on(&mut object, &online(), 1000);
    let knows = pipe.queues().iter().all(|queue| queue.kernel_lost().is_some());
    let tally = pipe.tally().unwrap().total().unwrap();
    let summary = pipe.close(&mut EvHandlers::new());
    assert_eq!(summary.total.records, tally.sent);
    let unreported = if knows { tally.attempted() - tally.sent } else { 0 };
    assert_eq!(summary.total.lost, unreported);
    assert!(tally.sent < tally.attempted());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn tails_arrive_whole_in_every_length() {
    let (mut object, pipe) = open(&Options::new().bytes_per_cpu(AMPLE));
    check_tails(&mut object, pipe);
}

/// Checks the tails that the programs of an object emit.
pub(crate) fn check_tails(object: &mut Ebpf, mut pipe: EvPipe) {
    generate_on(classifier(object, "emit_tailed"), &online(), N);
    let mut next = BTreeMap::<u32, u64>::new();
    let mut handlers = EvHandlers::new();
    handlers.on::<Tailed, _>(|event| {
        let number = next.entry(event.cpu).or_default();
        assert_eq!(event.number, *number);
        assert_eq!(event.tail.len() as u64, *number % TAIL_LENS);
        assert!(event.tail.iter().all(|&byte| byte == *number as u8));
        *number += 1;
    });
    assert!(pipe.drain_all(&mut handlers).is_continue());
    drop(handlers);
    assert_eq!(next.into_values().collect::<Vec<_>>(), vec![u64::from(N); online().len()]);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn dropped_reservations_are_not_sent_and_overlong_records_are_tallied() {
    let (mut object, pipe) = open(&Options::new().wakeup(Wakeup::PollOnly));
    check_refusals(&mut object, pipe);
}

/// Checks reservations that the programs of an object drop, and tails that are too long.
pub(crate) fn check_refusals(object: &mut Ebpf, mut pipe: EvPipe) {
    generate_on(classifier(object, "emit_nothing"), &online()[..1], 10);
    // Ten runs need more slots than there are, unless each run returns its two slots.
    generate_on(classifier(object, "emit_tailed"), &online()[..1], 10);
    let mut handlers = EvHandlers::new();
    let mut count = 0;
    handlers.on::<Tailed, _>(|_| count += 1);
    assert_eq!(pipe.drain(&mut handlers).records, 10);
    drop(handlers);
    assert_eq!(count, 10);
    let tally = pipe.tally().unwrap().total().unwrap();
    assert_eq!(
        (tally.sent, tally.failed_for(FailureClass::TooBig), tally.attempted()),
        (10, 10, 20)
    );
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn from_map_takes_the_map_of_any_loader() {
    let mut object = load();
    let options = Options::new().bytes_per_cpu(AMPLE);
    let mut pipe = EvPipe::from_map(map(&object, EVENTS_MAP), &options).unwrap();
    assert!(pipe.tally().is_none());
    let mut received = Received::default();
    let mut handlers = strict(&mut received);
    while_emitting(&mut object, N, |stop| pipe.run(stop, &mut handlers).unwrap());
    drop(handlers);
    received.assert_complete(&online(), u64::from(N));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn from_pinned_opens_a_pinned_map() {
    let bpffs = tempfile::tempdir().unwrap();
    mount("bpf", bpffs.path(), "bpf", MountFlags::empty(), None).unwrap();
    let mut object = load();
    let path = bpffs.path().join("pinned").display().to_string();
    object.map(EVENTS_MAP).unwrap().pin(&path).unwrap();
    let pipe = EvPipe::from_pinned(&path, &Options::new());
    // Unmounting removes the pin.
    unmount(bpffs.path(), UnmountFlags::empty()).unwrap();
    let mut pipe = pipe.unwrap();
    emit_one_on(&mut object, online()[0]);
    assert_eq!(pipe.poll(None, &mut EvHandlers::new()).unwrap().records, 1);
    let error = EvPipe::from_pinned(&path, &Options::new()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot open the pinned map or program {path}: No such"))
    );
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn only_the_requested_cpus_have_queues() {
    let last = *online().last().unwrap();
    let (mut object, mut pipe) = open(&Options::new().cpus([last]));
    assert_eq!(pipe.queues().iter().map(|queue| queue.cpu()).collect::<Vec<_>>(), [last]);
    emit_on(&mut object, &online(), 10);
    let mut received = Received::default();
    assert!(pipe.drain_all(&mut strict(&mut received)).is_continue());
    received.assert_complete(&[last], 10);
    let tally = pipe.tally().unwrap().total().unwrap();
    let elsewhere = 10 * (online().len() as u64 - 1);
    assert_eq!(tally.failed_for(FailureClass::NoEvent), elsewhere);

    let absent = probe_sys::cpus::possible().unwrap().last().unwrap() + 1;
    let error = EvPipe::from_object(&mut object, &Options::new().cpus([absent])).unwrap_err();
    assert!(
        matches!(error, OpenError::MapTooSmall { .. } | OpenError::CpuOffline { .. }),
        "{error}"
    );
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_closed_pipe_leaves_the_map_empty() {
    let (mut object, closed) = open(&Options::new());
    drop(closed);
    emit_on(&mut object, &online()[..1], 10);
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    let tally = pipe.tally().unwrap().total().unwrap();
    assert_eq!((tally.sent, tally.failed_for(FailureClass::NoEvent)), (0, 10));
}

/// Checks the blocks that another reader of the ring sees, here aya. `probe-common` documents their
/// format. Gaps in the block numbers show where blocks are missing.
fn block_numbers_are_consecutive(records_per_block: u32) {
    /// More than fit into the ring.
    const BLOCKS: u32 = 50;
    let mut object = load();
    let cpu = online()[0];
    let events = object.take_map(EVENTS_MAP).unwrap();
    let mut events = PerfEventArray::try_from(events).unwrap();
    let mut ring = events.open(cpu, Some(1)).unwrap();
    let limit = records_per_block * record_span(size_of::<Numbered>()) as u32;
    let mut page = [0u32; size_of::<CpuControl>() / size_of::<u32>()];
    page[offset_of!(CpuControl, limit) / size_of::<u32>()] = limit;
    let control = object.map_mut(CONTROL_MAP).unwrap();
    Array::<_, [u32; 16]>::try_from(control).unwrap().set(cpu, page, 0).unwrap();
    let mut emit = |blocks| emit_on(&mut object, &[cpu], blocks * records_per_block);
    let mut numbers = || {
        let mut numbers = Vec::new();
        ring.for_each(|event| {
            if let PerfEvent::Sample { head, tail } = event {
                let block = [head, tail].concat();
                let records = Records::new(&block).unwrap();
                numbers.push((records.slot(), u32::from(records.seq())));
                assert_eq!(records.count(), records_per_block as usize);
            }
        });
        numbers
    };
    emit(BLOCKS);
    let first = numbers();
    let count = first.len() as u32;
    assert!((1..BLOCKS).contains(&count), "{first:?}");
    assert_eq!(first, (0..count).map(|number| (0, number)).collect::<Vec<_>>());
    emit(2);
    assert_eq!(numbers(), [(0, BLOCKS), (0, BLOCKS + 1)]);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn block_numbers_are_consecutive_and_failed_blocks_leave_a_gap() {
    block_numbers_are_consecutive(5);
    block_numbers_are_consecutive(1);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_stops_or_panics_gets_every_record_once() {
    let (mut object, mut pipe) = open(&Options::new());
    // Two full blocks of 8192 bytes with 102 records each.
    emit_on(&mut object, &online()[..1], 204);
    let mut numbers = Vec::new();
    while numbers.len() < 204 {
        let panics = numbers.len() % 2 == 0;
        let mut handlers = on_numbered(|event| {
            numbers.push(event.number);
            assert!(!panics, "on purpose");
            ControlFlow::Break(())
        });
        let drained = catch_unwind(AssertUnwindSafe(|| pipe.drain(&mut handlers)));
        assert_eq!(drained.is_err(), panics);
    }
    assert_eq!(numbers, (0..204).collect::<Vec<_>>());
    assert_eq!(pipe.drain(&mut EvHandlers::new()).records, 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_remainder_below_the_watermark_is_swept() {
    let wakeup = Wakeup::Watermark(64 << 10);
    let (mut object, mut pipe) =
        open(&Options::new().wakeup(wakeup).sweep(Duration::from_millis(50)));
    let _ = pipe.drain(&mut EvHandlers::new());
    emit_one_on(&mut object, online()[0]);
    let mut records = 0;
    // Without the sweep this would hang.
    while records == 0 {
        records = pipe.poll(None, &mut EvHandlers::new()).unwrap().records;
    }
    assert_eq!(records, 1);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_poll_ends_with_its_timeout_or_with_a_record() {
    let (mut object, mut pipe) = open(&Options::new().wakeup(Wakeup::EveryRecord));
    let _ = pipe.drain(&mut EvHandlers::new());
    let timeout = Duration::from_millis(200);
    let start = Instant::now();
    assert_eq!(pipe.poll(Some(timeout), &mut EvHandlers::new()).unwrap().records, 0);
    assert!(start.elapsed() >= timeout);
    emit_one_on(&mut object, online()[0]);
    assert_eq!(pipe.poll(None, &mut EvHandlers::new()).unwrap().records, 1);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_descriptor_works_in_another_event_loop() {
    let (mut object, mut pipe) = open(&Options::new().wakeup(Wakeup::EveryRecord));
    let _ = pipe.drain(&mut EvHandlers::new());
    assert!(!is_readable(&pipe, Duration::ZERO));
    for cpu in online() {
        emit_one_on(&mut object, cpu);
        assert!(is_readable(&pipe, Duration::from_secs(20)));
        assert_eq!(pipe.drain(&mut EvHandlers::new()).records, 1);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_busy_cpu_leaves_time_slices_to_the_others() {
    let (first, last) = (online()[0], *online().last().unwrap());
    assert_ne!(first, last, "this needs two CPUs");
    // 96 bytes each: the budget is 10 records plus the one that crosses it.
    let options = Options::new().bytes_per_cpu(AMPLE).budget(1000).wakeup(Wakeup::PollOnly);
    let (mut object, mut pipe) = open(&options);
    emit_on(&mut object, &[first], 10_000);
    emit_one_on(&mut object, last);
    let mut received = Received::default();
    let progress = pipe.drain(&mut strict(&mut received));
    assert!(progress.pending);
    assert_eq!((received.by_cpu[&first].count, received.by_cpu[&last].count), (11, 1));
    while pipe.poll(None, &mut strict(&mut received)).unwrap().pending {}
    assert_eq!(received.by_cpu[&first].count, 10_000);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_stops_at_every_record_gets_those_of_all_cpus_in_turn() {
    for wakeup in [Wakeup::PollOnly, adaptive(Duration::from_secs(60))] {
        let (mut object, mut pipe) = open(&Options::new().wakeup(wakeup));
        emit_on(&mut object, &online(), 50);
        let mut turns = Vec::new();
        for _ in 0..2 * online().len() {
            let mut stops = on_numbered(|event| {
                turns.push(event.cpu);
                ControlFlow::Break(())
            });
            assert!(pipe.drain(&mut stops).flow.is_break());
        }
        assert_eq!(turns, [online(), online()].concat());
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn extreme_options_work_or_are_refused() {
    let of = |wakeup| Options::new().wakeup(wakeup);
    let extremes = [
        of(adaptive(Duration::MAX)),
        of(Wakeup::PollOnly).sweep(Duration::MAX),
        of(Wakeup::Watermark(1000)).sweep(Duration::MAX),
        of(Wakeup::Every(u32::MAX)).sweep(Duration::from_nanos(1)),
    ];
    for options in extremes.map(|options| options.budget(usize::MAX)) {
        for window in [None, Some(Duration::ZERO), Some(Duration::MAX)] {
            let (mut object, mut pipe) = open(&options);
            emit_on(&mut object, &online(), 200);
            let mut received = Received::default();
            let Some(window) = window else {
                let _ = pipe.poll(Some(Duration::from_millis(1)), &mut strict(&mut received));
                assert!(pipe.drain_all(&mut strict(&mut received)).is_continue());
                received.assert_complete(&online(), 200);
                continue;
            };
            let mut pipe = pipe.ordered(window).unwrap();
            let _ = pipe.poll(Some(Duration::from_millis(1)), &mut strict(&mut received));
            assert!(pipe.drain_all(&mut strict(&mut received)).is_continue());
            received.assert_complete(&online(), 200);
        }
    }
    let object = load();
    let error = EvPipe::from_map(map(&object, EVENTS_MAP), &Options::new().sweep(Duration::ZERO));
    assert!(error.unwrap_err().to_string().contains("the sweep interval is 0"));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_producer_gets_room_before_the_drain_ends() {
    let cpu = online()[0];
    let options = Options::new().bytes_per_cpu(64 << 10).wakeup(Wakeup::PollOnly);
    let (mut object, mut pipe) = open(&options);
    // More records than fit into the ring.
    emit_on(&mut object, &[cpu], 1000);
    let full = pipe.tally().unwrap().total().unwrap();
    assert!(full.failed_for(FailureClass::NoSpace) > 0);
    let mut seen = 0;
    let mut handlers = on_numbered(|_| {
        seen += 1;
        // By then the space of a quarter of the records has been released.
        if seen == full.sent / 4 + 2 {
            emit_one_on(&mut object, cpu);
        }
    });
    let _ = pipe.drain(&mut handlers);
    let after = pipe.tally().unwrap().total().unwrap();
    assert_eq!((after.sent, after.attempted()), (full.sent + 1, full.attempted() + 1));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn exactly_n_arrive_through_tokio() {
    let (mut object, pipe) = open(&Options::new().bytes_per_cpu(AMPLE));
    let emitted = u64::from(N) * online().len() as u64;
    let runtime = runtime();
    let task = runtime.spawn(async move {
        let mut received = Received::default();
        let mut pipe = AsyncEvPipe::new(pipe).unwrap();
        let mut count = 0;
        while count < emitted {
            count += pipe.poll(&mut strict(&mut received)).await.unwrap().records;
        }
        received
    });
    emit_on(&mut object, &online(), N);
    runtime.block_on(task).unwrap().assert_complete(&online(), u64::from(N));
}

/// Registering the pipe takes the readiness of its rings.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_record_that_is_there_before_the_runtime_arrives() {
    for wakeup in [Options::new(), Options::new().wakeup(Wakeup::EveryRecord)] {
        let (mut object, mut pipe) = open(&wakeup);
        let _ = pipe.drain(&mut EvHandlers::new());
        emit_one_on(&mut object, online()[0]);
        runtime().block_on(async {
            let mut pipe = AsyncEvPipe::new(pipe).unwrap();
            let mut handlers = EvHandlers::new();
            let polled = tokio::time::timeout(Duration::from_secs(30), pipe.poll(&mut handlers));
            assert_eq!(polled.await.expect("it arrives").unwrap().records, 1);
        });
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_wait_with_a_timeout_looks_as_often_as_one_without() {
    let (mut object, pipe) = open(&Options::new().wakeup(Wakeup::PollOnly));
    emit_one_on(&mut object, online()[0]);
    let mut records = OwnedRecords::new(pipe);
    let taken = |records: &mut OwnedRecords| {
        let begin = Instant::now();
        let item = records.next_within(Duration::from_secs(60)).unwrap();
        (item.is_some(), begin.elapsed() < Duration::from_secs(30))
    };
    assert_eq!(taken(&mut records), (true, true));
    emit_one_on(&mut object, online()[0]);
    assert_eq!(taken(&mut records), (true, true));
}
