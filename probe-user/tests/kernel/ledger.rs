//! The ledger on a real kernel: each attempted record is handled or lost, exactly.
//!
//! `PROBE_ATTEMPTS` sets how many records each CPU emits; the default is 100,000. `--nocapture` shows the ledgers.

use crate::suite::records::{Numbered, Tailed};
use crate::suite::{
    End, Log, classifier, emit_on, generate, generate_on, load, map, number_from, on_each_cpu,
    online, open, page_size, while_emitting, while_running,
};
use aya::Ebpf;
use aya::programs::SchedClassifier;
use probe_testing::set_on_drop::SetOnDrop;
use probe_user::common::control::{EVENTS_MAP, OUTPUTS_MAP, TALLY_MAP};
use probe_user::common::tally::FailureClass;
use probe_user::common::{Record, RecordKind};
use probe_user::ledger::{Ledger, Meter, Tally};
use probe_user::{EvHandlers, EvPipe, Options, PipeParts, QueueCounts, TallyError, Wakeup};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

fn attempts() -> u32 {
    number_from("PROBE_ATTEMPTS", 100_000)
}

/// Emits on every CPU while a pipe runs, which starts reading after `delay`. Closes the pipe.
fn trace(object: &mut Ebpf, options: &Options, delay: Duration) -> (Log, Ledger) {
    let mut pipe = EvPipe::from_object(object, options).unwrap();
    let mut log = Log::default();
    while_emitting(object, attempts(), |stop| {
        std::thread::sleep(delay);
        pipe.run(stop, &mut log).unwrap();
    });
    let summary = pipe.close(&mut log);
    let ledger = summary.ledger.unwrap();
    assert_eq!(summary.total.records, ledger.handled());
    (log, ledger)
}

/// Traces, and checks every identity for each CPU between the generator, the eBPF side's tally, the delivered
/// records, the reported losses and the kernel's counts.
fn assert_exact(options: &Options, delay: Duration) -> Ledger {
    assert_exact_of(&mut load(), options, delay)
}

/// The same for any object.
pub(crate) fn assert_exact_of(object: &mut Ebpf, options: &Options, delay: Duration) -> Ledger {
    let (log, ledger) = trace(object, options, delay);
    println!("{ledger}");
    assert!(ledger.balances());
    let attempts = u64::from(attempts());
    assert_eq!(ledger.entries.iter().map(|entry| entry.cpu).collect::<Vec<_>>(), online());
    for entry in &ledger.entries {
        let cpu = entry.cpu;
        let (tally, failed) = (entry.tally, entry.tally.failed());
        assert_eq!(entry.kind, Numbered::KIND);
        assert_eq!((tally.attempted(), tally.sent + failed), (attempts, attempts), "CPU {cpu}");
        assert_eq!([entry.handled, log.count(cpu)], [tally.sent; 2], "CPU {cpu}");
        // Numbers only increase, and only lost ones are missing.
        let seen = log.received.by_cpu.get(&cpu);
        let missing = seen.map_or(attempts, |seen| seen.missing + attempts - seen.next);
        assert_eq!(missing, failed, "CPU {cpu}");
        assert_eq!(failed, tally.failed_for(FailureClass::NoSpace));
        let lost = log.lost.get(&cpu).copied().unwrap_or_default();
        assert_eq!(lost.records, failed, "CPU {cpu}");
        let counted = ledger.cpus.iter().find(|one| one.cpu == cpu);
        let failed = counted.map_or(0, |one| one.outputs.failed_for(FailureClass::NoSpace));
        assert_eq!(lost.outputs, failed, "CPU {cpu}");
        if let Some(kernel) = counted.and_then(|one| one.kernel_lost) {
            assert_eq!(kernel, failed, "CPU {cpu}");
        }
    }
    ledger
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn accounting_is_exact_to_the_record() {
    for options in [
        // Adaptive wakeups, with a large ring and with a small one that loses some records.
        Options::new().bytes_per_cpu(8 << 20),
        Options::new().bytes_per_cpu(16 << 10),
        // Without packing.
        Options::new().bytes_per_cpu(64 << 10).wakeup(Wakeup::Watermark(16 << 10)),
    ] {
        assert_exact(&options, Duration::ZERO);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn accounting_is_exact_when_most_is_lost() {
    for options in [Options::new(), Options::new().wakeup(Wakeup::PollOnly)] {
        let ledger = assert_exact(&options.bytes_per_cpu(page_size()), Duration::from_secs(5));
        assert!(ledger.failed() >= ledger.attempted() / 2, "the rings were not starved: {ledger}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_ledger_can_be_read_at_any_time() {
    let (mut object, pipe) = open(&Options::new());
    check_ledger_of_two_kinds(&mut object, pipe);
}

/// Checks the ledger of an object whose blocks have records of two kinds.
pub(crate) fn check_ledger_of_two_kinds(object: &mut Ebpf, mut pipe: EvPipe) {
    let empty = pipe.ledger().unwrap().to_string();
    assert!(empty.starts_with("attempted 0 = handled 0 + lost 0; complete"), "{empty}");
    let cpu = online()[0];
    emit_on(object, &[cpu], 10);
    generate_on(classifier(object, "emit_tailed"), &[cpu], 20);
    let mut handlers = EvHandlers::new();
    let before = pipe.ledger().unwrap();
    assert!(before.balances() && before.handled() == 0, "{before}");
    // Packed records are not counted before their block is sent.
    assert!(pipe.drain_all(&mut handlers).is_continue());
    let ledger = pipe.ledger().unwrap();
    assert_eq!((ledger.attempted(), ledger.handled(), ledger.failed()), (30, 30, 0), "{ledger}");
    let kinds: Vec<_> = ledger.entries.iter().map(|one| (one.cpu, one.kind, one.handled)).collect();
    assert_eq!(kinds, [(cpu, Numbered::KIND, 10), (cpu, Tailed::KIND, 20)]);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_meter_shows_what_a_consumer_has_not_handled_yet() {
    // Without packing, whose records are in no count before their block is sent.
    let options = Options::new().wakeup(Wakeup::PollOnly);
    let (mut object, mut pipe) = open(&options);
    let (cpus, meter) = (online(), pipe.meter());
    let sums = |meter: &Meter| {
        let ledger = meter.ledger().unwrap();
        assert!(ledger.balances() && !ledger.is_confirmed(), "{ledger}");
        (ledger.attempted(), ledger.handled(), ledger.unread())
    };
    assert_eq!(sums(&meter), (0, 0, 0));
    emit_on(&mut object, &cpus, 10);
    let number = 10 * cpus.len() as u64;
    assert_eq!(sums(&meter), (number, 0, number));
    // The consumer hangs in its second record.
    let mut seen = 0;
    let mut handlers = EvHandlers::new();
    handlers.on::<Numbered, _>(|_| {
        seen += 1;
        if seen == 2 {
            let (attempted, handled, unread) = sums(&meter);
            assert_eq!((attempted, handled + unread), (number, number));
            assert!(unread >= number - 2, "{unread} of {number}");
        }
    });
    assert_eq!(pipe.drain(&mut handlers).records, number);
    assert_eq!(sums(&meter), (number, number, 0));
    let counts: Vec<_> =
        meter.counts().iter().map(|(cpu, counts)| (*cpu, counts.records)).collect();
    assert_eq!(counts, cpus.iter().map(|&cpu| (cpu, 10)).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_meter_agrees_with_the_ledger_of_a_pipe_that_runs_elsewhere() {
    // A ring of one page has no room for many of the records.
    let (mut object, mut pipe) = open(&Options::new().bytes_per_cpu(page_size()));
    let (mut meter, is_done) = (pipe.meter(), AtomicBool::new(false));
    let other = meter.clone();
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut before = 0;
            while !is_done.load(Ordering::Relaxed) {
                let handled = other.ledger().unwrap().handled();
                assert!(handled >= before, "{handled} after {before}");
                before = handled;
            }
        });
        let done = SetOnDrop(&is_done);
        let mut log = Log::default();
        while_emitting(&mut object, attempts(), |stop| pipe.run(stop, &mut log).unwrap());
        drop(done);
        watching.join().unwrap();
    });
    // The pipe's own ledger comes second: it would tell the meter what the pipe has seen.
    let (counts, outside) = (meter.counts(), meter.ledger().unwrap());
    let inside = pipe.ledger().unwrap();
    assert_eq!(outside.entries, inside.entries, "{outside}; {inside}");
    let rates = meter.rates().unwrap();
    let number = rates.handled * rates.over.as_secs_f64();
    assert_eq!(number.round() as u64, inside.handled(), "{rates:?}");
    let lost = |counts: Vec<(u32, QueueCounts)>| counts.iter().map(|one| one.1.lost).sum::<u64>();
    let of_pipe = pipe.queues().iter().map(|queue| (queue.cpu(), queue.counts())).collect();
    assert!(lost(counts.clone()) > 0, "nothing was lost: {inside}");
    assert_eq!(lost(counts), lost(of_pipe));
    // It outlives the pipe.
    let closed = pipe.close(&mut Log::default()).ledger.unwrap();
    assert_eq!(meter.ledger().unwrap().handled(), closed.handled());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn records_left_by_a_consumer_that_breaks_are_unread() {
    let (mut object, pipe) = open(&Options::new());
    emit_on(&mut object, &online()[..1], 100);
    let mut log = Log { end: Some((29, End::Break)), ..Log::default() };
    let ledger = pipe.close(&mut log).ledger.unwrap();
    assert_eq!((ledger.handled(), ledger.unread(), ledger.failed()), (30, 70, 0), "{ledger}");
    assert!(ledger.balances(), "{ledger}");
}

/// What a consumer expects from programs that emit [`Numbered`], which is shorter.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Longer {
    numbered: [u64; 8],
    more: u64,
}

impl Record for Longer {
    const KIND: RecordKind = Numbered::KIND;
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn records_that_are_shorter_than_their_type_are_malformed() {
    const N: u64 = 20;
    let cpu = &online()[..1];
    let mut handlers = EvHandlers::new();
    handlers.on::<Longer, ()>(|_| panic!("it is too short"));
    let check = |ledger: &Ledger| {
        assert_eq!((ledger.malformed(), ledger.is_complete()), (N, false), "{ledger}");
    };
    let (mut object, mut pipe) = open(&Options::new());
    emit_on(&mut object, cpu, N as u32);
    assert!(pipe.drain_all(&mut handlers).is_continue());
    check(&pipe.ledger().unwrap());
    check(&pipe.close(&mut handlers).ledger.unwrap());
    for drains in [true, false] {
        let (mut object, pipe) = open(&Options::new());
        let mut pipe = pipe.ordered(Duration::from_millis(10)).unwrap();
        emit_on(&mut object, cpu, N as u32);
        if drains {
            assert!(pipe.drain_all(&mut handlers).is_continue());
        }
        check(&pipe.close(&mut handlers).ledger.unwrap());
    }
    let (mut object, pipe) = open(&Options::new().overwrite());
    emit_on(&mut object, cpu, N as u32);
    check(&pipe.close(&mut handlers).ledger.unwrap());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_pipe_opened_from_its_map_has_no_ledger() {
    let object = load();
    let options = Options::new().wakeup(Wakeup::EveryRecord);
    let pipe = EvPipe::from_map(map(&object, EVENTS_MAP), &options).unwrap();
    let error = pipe.ledger().unwrap_err();
    assert!(matches!(error, TallyError::NoTally), "{error}");
    assert!(error.to_string().contains("EvPipe::from_object"), "{error}");
}

/// A ring is mapped and its event enabled before programs can find it, and programs stop finding it
/// before it is unmapped. A program that emits continuously therefore finds either no event or a
/// working ring.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn no_record_fails_unseen_while_pipes_open_and_close() {
    let mut object = load();
    classifier(&mut object, "emit_numbered");
    let program: &SchedClassifier = object.program("emit_numbered").unwrap().try_into().unwrap();
    let (tally, outputs) = (map(&object, TALLY_MAP), map(&object, OUTPUTS_MAP));
    let parts = || PipeParts::new(map(&object, EVENTS_MAP)).unwrap().tally(tally, outputs).unwrap();
    let options = Options::new().bytes_per_cpu(4 << 20).wakeup(Wakeup::PollOnly);
    let (mut handled, mut full) = (0, 0);
    let emit = || generate(program, 100);
    let tallied = while_running(
        |stop| on_each_cpu(stop, emit),
        || {
            // Emulated CPUs are slow and get fewer rounds.
            let start = Instant::now();
            for _ in
                (0..50).take_while(|round| *round < 8 || start.elapsed() < Duration::from_secs(4))
            {
                let mut pipe = EvPipe::open(parts(), &options).unwrap();
                while pipe.drain(&mut EvHandlers::new()).records == 0 {
                    std::thread::yield_now();
                }
                let ledger = pipe.close(&mut EvHandlers::new()).ledger.unwrap();
                assert!(ledger.balances(), "{ledger}");
                handled += ledger.handled();
                full += ledger.tally().failed_for(FailureClass::NoSpace);
            }
            Tally::from_maps(tally, outputs).unwrap()
        },
    );
    let tally = tallied.total().unwrap();
    assert_eq!(tally.sent, handled);
    // The kernel counts a missing event, and a full ring that is not mapped yet.
    assert_eq!(full, tally.failed_for(FailureClass::NoSpace));
    let early_or_late = tally.failed_for(FailureClass::NoEvent);
    assert_eq!(tally.failed(), early_or_late + full, "{tally:?}");
    assert!(handled > 0 && early_or_late > 0, "{tally:?}");
}

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Containers may replace sysfs files: lxcfs shows a container only its own CPUs.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_file_mounted_over_the_list_of_possible_cpus_changes_no_count() {
    let trace_masked = || {
        // SAFETY: only this thread gets a new mount namespace, and it has no open files in the old
        // one.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let list = tempfile::NamedTempFile::new().unwrap();
        let cpus = online();
        for masked in ["0\n", "0-4095\n", "7\n", "nonsense\n", ""] {
            let mut object = load();
            std::fs::write(list.path(), masked).unwrap();
            mount_bind(list.path(), POSSIBLE).unwrap();
            assert_eq!(std::fs::read_to_string(POSSIBLE).unwrap(), masked);
            let (_, ledger) = trace(&mut object, &Options::new(), Duration::ZERO);
            unmount(POSSIBLE, UnmountFlags::empty()).unwrap();
            for entry in &ledger.entries {
                assert_eq!(entry.tally.attempted(), u64::from(attempts()), "{masked:?}: {entry:?}");
            }
            assert_eq!(ledger.entries.iter().map(|entry| entry.cpu).collect::<Vec<_>>(), cpus);
        }
    };
    std::thread::spawn(trace_masked).join().unwrap();
}
