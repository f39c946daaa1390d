//! The pipe on a real kernel: every record, once, in order, whole; or else counted.

mod suite;

use aya::maps::perf::PerfEvent;
use aya::maps::{Array, PerfEventArray};
use probe_user::common::control::{CONTROL_MAP, CpuControl, EVENTS_MAP};
use probe_user::common::tally::FailureClass;
use probe_user::common::{Record, Records, record_span};
use probe_user::{
    AsyncEvPipe, CpuTally, EvHandlers, EvPipe, Item, OpenError, Options, OwnedRecords,
    RecordStream, Stop, Wakeup,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use suite::records::{Numbered, TAIL_LENS, Tailed};
use suite::{Received, classifier, emit_one_on, generate_on, load, online, strict};

/// Records per CPU: 96 bytes of ring each.
const N: u32 = 100_000;

/// A ring that never fills, however late the consumer comes: 16 MiB / 96 bytes is 174,762 records.
const AMPLE: usize = 16 << 20;

/// Emits `count` records on every CPU while `run` consumes, and then stops it.
fn while_generating(object: &mut aya::Ebpf, count: u32, run: impl FnOnce(&Stop) + Send) {
    let stop = Stop::new().unwrap();
    let program = classifier(object, "emit_numbered");
    std::thread::scope(|scope| {
        let consumer = scope.spawn(|| run(&stop));
        generate_on(program, &online(), count);
        stop.stop();
        consumer.join().unwrap();
    });
}

fn exactly_n_arrive(wakeup: Option<Wakeup>) {
    let mut object = load();
    let mut options = Options::new().bytes_per_cpu(AMPLE);
    if let Some(wakeup) = wakeup {
        options = options.wakeup(wakeup);
    }
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let mut received = Received::default();
    let mut handlers = strict(&mut received);
    while_generating(&mut object, N, |stop| pipe.run(stop, &mut handlers).unwrap());
    let tally = pipe.tally().unwrap().total().unwrap();
    let summary = pipe.close(&mut handlers);
    drop(handlers);
    received.assert_complete(&online(), u64::from(N));
    let emitted = u64::from(N) * online().len() as u64;
    assert_eq!((tally.sent, tally.attempted()), (emitted, emitted));
    assert_eq!(
        (summary.total.records, summary.total.lost, summary.total.malformed),
        (emitted, 0, 0)
    );
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn exactly_n_arrive_by_default() {
    exactly_n_arrive(None);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn exactly_n_arrive_with_every_wakeup() {
    for wakeup in
        [Wakeup::EveryRecord, Wakeup::Every(100), Wakeup::Watermark(4096), Wakeup::PollOnly]
    {
        exactly_n_arrive(Some(wakeup));
    }
}

/// Sent and failed, by CPU, as the eBPF side counted.
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

/// Rings of a page, which hold 42 records. `consume` runs while the records are emitted.
fn starved(consume: impl Fn(&mut EvPipe, &Stop, &mut EvHandlers<'_>) + Sync) {
    let mut object = load();
    let page = rustix::param::page_size();
    let options = Options::new().bytes_per_cpu(page).wakeup(Wakeup::PollOnly);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let mut received = Received::default();
    let mut lost = BTreeMap::<u32, u64>::new();
    let mut handlers = EvHandlers::new();
    handlers
        .on::<Numbered, _>(|event| received.take(&event))
        .on_loss(|loss| *lost.entry(loss.cpu).or_default() += loss.count)
        .on_malformed::<()>(|malformed| panic!("{malformed}"));
    while_generating(&mut object, N, |stop| consume(&mut pipe, stop, &mut handlers));
    assert!(pipe.drain_all(&mut handlers).is_continue());
    // The kernel tells of a loss in front of the next record that it has room for.
    for cpu in online() {
        emit_one_on(&mut object, cpu);
    }
    assert!(pipe.drain_all(&mut handlers).is_continue());
    drop(handlers);
    let tally = tally_by_cpu(&pipe);
    for cpu in online() {
        let (sent, failed) = tally[&cpu];
        let seen = &received.by_cpu[&cpu];
        assert!(failed > 0, "CPU {cpu} was not starved");
        assert_eq!(sent + failed, u64::from(N) + 1, "CPU {cpu}: attempted");
        assert_eq!(seen.count, sent, "CPU {cpu}: received what was sent");
        assert_eq!(lost[&cpu], failed, "CPU {cpu}: told what failed");
        assert_eq!(seen.missing, failed, "CPU {cpu}: the numbers that are not there");
        if let Some(kernel) = pipe.queue(cpu).unwrap().kernel_lost() {
            assert_eq!(kernel, failed, "CPU {cpu}: PERF_FORMAT_LOST");
        }
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_a_starved_ring_does_not_take_is_counted_exactly() {
    starved(|_, _, _| ());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn losses_are_exact_while_records_are_read() {
    starved(|pipe, stop, handlers| {
        while !stop.is_stopped() {
            assert!(pipe.drain(handlers).flow.is_continue());
        }
    });
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_loss_that_the_ring_never_told_is_in_the_summary() {
    let mut object = load();
    let page = rustix::param::page_size();
    let options = Options::new().bytes_per_cpu(page).wakeup(Wakeup::PollOnly);
    let pipe = EvPipe::from_object(&mut object, &options).unwrap();
    generate_on(classifier(&mut object, "emit_numbered"), &online(), 1000);
    let knows = pipe.queues().iter().all(|queue| queue.kernel_lost().is_some());
    let tally = pipe.tally().unwrap().total().unwrap();
    let summary = pipe.close(&mut EvHandlers::new());
    assert_eq!(summary.total.records, tally.sent);
    let owed = if knows { tally.attempted() - tally.sent } else { 0 };
    assert_eq!(summary.total.lost, owed);
    assert!(tally.sent < tally.attempted());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn tails_arrive_whole_in_every_length() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &Options::new().bytes_per_cpu(AMPLE)).unwrap();
    generate_on(classifier(&mut object, "emit_tailed"), &online(), N);
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
fn what_is_not_committed_is_not_sent_and_what_is_too_long_is_tallied() {
    let mut object = load();
    let options = Options::new().wakeup(Wakeup::PollOnly);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    generate_on(classifier(&mut object, "emit_nothing"), &online()[..1], 10);
    // Ten times two slots, if they were not given back, are more than there are.
    generate_on(classifier(&mut object, "emit_tailed"), &online()[..1], 10);
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
fn from_map_needs_no_loader_of_ours() {
    let mut object = load();
    let Some(aya::maps::Map::PerfEventArray(map)) = object.map("PIPE_EVENTS") else {
        panic!("there is no PIPE_EVENTS")
    };
    let options = Options::new().bytes_per_cpu(AMPLE);
    let mut pipe = EvPipe::from_map(map.fd(), &options).unwrap();
    assert!(pipe.tally().is_none());
    let mut received = Received::default();
    let mut handlers = strict(&mut received);
    while_generating(&mut object, N, |stop| pipe.run(stop, &mut handlers).unwrap());
    drop(handlers);
    received.assert_complete(&online(), u64::from(N));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn from_pinned_opens_what_another_process_pinned() {
    let bpffs = tempfile::tempdir().unwrap();
    mount("bpf", bpffs.path(), "bpf", MountFlags::empty(), None).unwrap();
    let mut object = load();
    let Some(aya::maps::Map::PerfEventArray(map)) = object.map_mut("PIPE_EVENTS") else {
        panic!("there is no PIPE_EVENTS")
    };
    let path = bpffs.path().join("pinned").display().to_string();
    map.pin(&path).unwrap();
    let pipe = EvPipe::from_pinned(&path, &Options::new());
    // What is pinned goes with it.
    unmount(bpffs.path(), UnmountFlags::empty()).unwrap();
    let mut pipe = pipe.unwrap();
    emit_one_on(&mut object, online()[0]);
    assert_eq!(pipe.poll(None, &mut EvHandlers::new()).unwrap().records, 1);
    let error = EvPipe::from_pinned(&path, &Options::new()).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot open the pinned map {path}: No such")));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_map_of_another_type_is_refused_by_name() {
    let object = load();
    let Some(aya::maps::Map::PerCpuArray(map)) = object.map("PIPE_TALLY") else {
        panic!("there is no PIPE_TALLY")
    };
    let error = EvPipe::from_map(map.fd(), &Options::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "map `PIPE_TALLY` is a BPF_MAP_TYPE_PERCPU_ARRAY, and the pipe needs a \
         BPF_MAP_TYPE_PERF_EVENT_ARRAY"
    );
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(matches!(
        EvPipe::from_map(file.as_fd(), &Options::new()),
        Err(OpenError::MapInfo { .. })
    ));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn only_the_wanted_cpus_have_queues() {
    let mut object = load();
    let last = *online().last().unwrap();
    let options = Options::new().cpus([last]);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    assert_eq!(pipe.queues().iter().map(|queue| queue.cpu()).collect::<Vec<_>>(), [last]);
    generate_on(classifier(&mut object, "emit_numbered"), &online(), 10);
    let mut received = Received::default();
    assert!(pipe.drain_all(&mut strict(&mut received)).is_continue());
    received.assert_complete(&[last], 10);
    let tally = pipe.tally().unwrap().total().unwrap();
    let elsewhere = 10 * (online().len() as u64 - 1);
    assert_eq!(tally.failed_for(FailureClass::NoEvent), elsewhere);

    let absent = probe_user::cpus::possible().unwrap().last().unwrap() + 1;
    let error = EvPipe::from_object(&mut object, &Options::new().cpus([absent])).unwrap_err();
    assert!(
        matches!(error, OpenError::CpuPastEnd { .. } | OpenError::CpuOffline { .. }),
        "{error}"
    );
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_closed_pipe_leaves_the_map_empty() {
    let mut object = load();
    drop(EvPipe::from_object(&mut object, &Options::new()).unwrap());
    generate_on(classifier(&mut object, "emit_numbered"), &online()[..1], 10);
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    let tally = pipe.tally().unwrap().total().unwrap();
    assert_eq!((tally.sent, tally.failed_for(FailureClass::NoEvent)), (0, 10));
}

/// What another reader of the ring gets, here that of aya: blocks as `probe-common` documents them, by whose
/// numbers it can tell where some are missing.
fn numbers_are_in_a_row(records_per_block: u32) {
    /// More than the ring has room for.
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
    let mut emit = |blocks| {
        generate_on(classifier(&mut object, "emit_numbered"), &[cpu], blocks * records_per_block)
    };
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
    assert_eq!(first, (0..count).map(|number| (Some(0), number)).collect::<Vec<_>>());
    emit(2);
    assert_eq!(numbers(), [(Some(0), BLOCKS), (Some(0), BLOCKS + 1)]);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn blocks_have_numbers_in_a_row_and_those_that_failed_leave_a_gap() {
    numbers_are_in_a_row(5);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn so_have_blocks_of_one_record() {
    numbers_are_in_a_row(1);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_stops_or_panics_gets_every_record_once() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    // Two blocks of 8192 bytes with 102 records each, and nothing that waits for more.
    generate_on(classifier(&mut object, "emit_numbered"), &online()[..1], 204);
    let mut numbers = Vec::new();
    while numbers.len() < 204 {
        let panics = numbers.len() % 2 == 0;
        let mut handlers = EvHandlers::new();
        handlers.on::<Numbered, _>(|event| {
            numbers.push(event.number);
            assert!(!panics, "on purpose");
            ControlFlow::Break(())
        });
        let drained =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pipe.drain(&mut handlers)));
        assert_eq!(drained.is_err(), panics);
    }
    assert_eq!(numbers, (0..204).collect::<Vec<_>>());
    assert_eq!(pipe.drain(&mut EvHandlers::new()).records, 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_remainder_below_the_watermark_is_swept() {
    let mut object = load();
    let sweep = Duration::from_millis(50);
    let options = Options::new().wakeup(Wakeup::Watermark(64 << 10)).sweep(sweep);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let _ = pipe.drain(&mut EvHandlers::new());
    emit_one_on(&mut object, online()[0]);
    let mut records = 0;
    // Without the sweep this would wait for ever, and the test runner with it.
    while records == 0 {
        records = pipe.poll(None, &mut EvHandlers::new()).unwrap().records;
    }
    assert_eq!(records, 1);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_poll_ends_with_its_timeout_or_with_a_record() {
    let mut object = load();
    let options = Options::new().wakeup(Wakeup::EveryRecord);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
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
fn the_descriptor_serves_another_loop() {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut object = load();
    let options = Options::new().wakeup(Wakeup::EveryRecord);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let _ = pipe.drain(&mut EvHandlers::new());
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&zero)).unwrap(), 0);
    for cpu in online() {
        emit_one_on(&mut object, cpu);
        assert_eq!(poll(&mut [PollFd::new(&pipe, PollFlags::IN)], None).unwrap(), 1);
        assert_eq!(pipe.drain(&mut EvHandlers::new()).records, 1);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_busy_cpu_leaves_the_others_their_turn() {
    let mut object = load();
    let (first, last) = (online()[0], *online().last().unwrap());
    assert_ne!(first, last, "this needs two CPUs");
    // 96 bytes each: the budget is 10 records, and the eleventh that crosses it.
    let options = Options::new().bytes_per_cpu(AMPLE).budget(1000).wakeup(Wakeup::PollOnly);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    generate_on(classifier(&mut object, "emit_numbered"), &[first], 10_000);
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
fn the_producer_gets_room_before_the_drain_is_through() {
    let mut object = load();
    let cpu = online()[0];
    let options = Options::new().bytes_per_cpu(64 << 10).wakeup(Wakeup::PollOnly);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    // More than it holds.
    generate_on(classifier(&mut object, "emit_numbered"), &[cpu], 1000);
    let full = pipe.tally().unwrap().total().unwrap();
    assert!(full.failed_for(FailureClass::NoSpace) > 0);
    let mut seen = 0;
    let mut handlers = EvHandlers::new();
    handlers.on::<Numbered, _>(|_| {
        seen += 1;
        // What a quarter of the records took has been given back.
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
    let mut object = load();
    let options = Options::new().bytes_per_cpu(AMPLE);
    let pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let emitted = u64::from(N) * online().len() as u64;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let task = runtime.spawn(async move {
        let mut received = Received::default();
        let mut pipe = AsyncEvPipe::new(pipe).unwrap();
        let mut count = 0;
        while count < emitted {
            count += pipe.poll(&mut strict(&mut received)).await.unwrap().records;
        }
        received
    });
    generate_on(classifier(&mut object, "emit_numbered"), &online(), N);
    runtime.block_on(task).unwrap().assert_complete(&online(), u64::from(N));
}

/// Feeds an item of a stream to `received`.
fn take(received: &mut Received, item: Item) {
    match item {
        Item::Record(record) => {
            let (numbered, tail) = record.read::<Numbered>().unwrap();
            assert!(tail.is_empty());
            received.take_numbered(record.cpu, record.time, &numbered);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn exactly_n_arrive_as_owned_records() {
    let mut object = load();
    let options = Options::new().bytes_per_cpu(AMPLE);
    let pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let emitted = N as usize * online().len();
    generate_on(classifier(&mut object, "emit_numbered"), &online(), N);
    let mut received = Received::default();
    let mut records = OwnedRecords::new(pipe);
    records.by_ref().take(emitted).for_each(|item| take(&mut received, item.unwrap()));
    received.assert_complete(&online(), u64::from(N));
    assert_eq!(records.into_pipe().drain(&mut EvHandlers::new()).records, 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn exactly_n_arrive_through_an_asynchronous_stream() {
    let mut object = load();
    let options = Options::new().bytes_per_cpu(AMPLE).wakeup(Wakeup::EveryRecord);
    let pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let emitted = N as usize * online().len();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let task = runtime.spawn(async move {
        let mut received = Received::default();
        let mut stream = RecordStream::new(pipe).unwrap();
        for _ in 0..emitted {
            take(&mut received, stream.next().await.unwrap());
        }
        received
    });
    generate_on(classifier(&mut object, "emit_numbered"), &online(), N);
    runtime.block_on(task).unwrap().assert_complete(&online(), u64::from(N));
}
