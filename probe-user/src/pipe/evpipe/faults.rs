//! Failing system calls: each call in turn, with each errno that it can return.

use super::EvPipe;
use crate::consume::per_cpu::PerCpuPipe;
use crate::error::{OpenError, PollError};
use crate::pipe::closing::Summary;
use crate::pipe::options::{Options, Wakeup};
use crate::pipe::stop::Stop;
use crate::suite::{Received, classifier, descriptors, emit_one_on, generate_on, load, online};
use aya::Ebpf;
use aya::maps::Map;
use libc::{EINTR, EMFILE, ENODEV, ENOMEM, ENOSPC, EPERM};
use probe_common::control::{EAGER_MAP, EVENTS_MAP};
use probe_sys::bpf;
use probe_sys::fault::{Fault, calls, fail, refuse};
use probe_testing::left::mappings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const ERRNOS: [i32; 6] = [EINTR, EMFILE, ENOMEM, EPERM, ENODEV, ENOSPC];

/// The number of records that each CPU emits at a time. More than a few, so the CPU becomes lazy; the next ones leave a
/// block open.
const N: u32 = 50;

fn options() -> Options {
    // Sweeps are frequent, so that polls meet some.
    Options::new()
        .bytes_per_cpu(64 << 10)
        .wakeup(Wakeup::Adaptive { max_latency: Duration::from_millis(1) })
}

/// The descriptors and mappings of this process: the same before a pipe is opened and after it is gone.
fn held() -> (usize, usize) {
    (descriptors(), mappings())
}

/// Asserts that no event is left in a map.
fn assert_maps_are_empty(object: &Ebpf, what: &str) {
    for name in [EVENTS_MAP, EAGER_MAP] {
        let Some(Map::PerfEventArray(map)) = object.map(name) else { panic!("{name}") };
        for cpu in online() {
            let error = bpf::map_delete(map.fd().as_fd(), cpu).expect_err(what);
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{what}: {name}, CPU {cpu}");
        }
    }
}

/// Restores the limit of descriptors; without that, nothing works any more.
struct Restore(Rlimit);

impl Drop for Restore {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).unwrap();
    }
}

fn faults(which: &str) -> bool {
    std::env::var_os("PROBE_FAULTS").is_some_and(|wanted| wanted == which)
}

fn all_faults() -> bool {
    faults("all")
}

/// Whether this machine tests only a few faults, because other machines test all of them.
fn few_faults() -> bool {
    faults("few")
}

/// Asserts that each of the calls failed once. Whether a run makes those of the second list depends on timing.
fn assert_met(met: &BTreeSet<&'static str>, always: &[&'static str], at_times: &[&'static str]) {
    let missing: Vec<_> = always.iter().filter(|call| !met.contains(*call)).collect();
    let known = |call: &&'static str| always.contains(call) || at_times.contains(call);
    assert!(missing.is_empty() && met.iter().all(known), "{missing:?} are missing of {met:?}");
}

/// Runs something with each of its calls failing in turn, with each errno. Returns the names of the calls.
///
/// Without `PROBE_FAULTS=all`, each call fails with only one errno, a different one each time: on emulated machines,
/// all of them would take minutes.
fn every_fault(run: impl FnMut(Fault) -> Option<&'static str>) -> BTreeSet<&'static str> {
    faults_of(usize::MAX, run)
}

/// As above, for code that takes longer: with `PROBE_FAULTS=few`, only the first call of each kind fails.
fn many_faults(run: impl FnMut(Fault) -> Option<&'static str>) -> BTreeSet<&'static str> {
    faults_of(if few_faults() { 1 } else { usize::MAX }, run)
}

fn faults_of(
    most_of_a_kind: usize,
    mut run: impl FnMut(Fault) -> Option<&'static str>,
) -> BTreeSet<&'static str> {
    let mut met = BTreeSet::new();
    for round in 0..if all_faults() { ERRNOS.len() } else { 1 } {
        assert_eq!(run(Fault { call: None, after: usize::MAX, errno: EINTR }), None);
        let mut made = BTreeMap::<_, usize>::new();
        for (number, call) in calls().into_iter().enumerate() {
            let after = made.entry(call).or_default();
            if *after < most_of_a_kind {
                // If its number depends on timing, this run may make fewer of that kind.
                let errno = ERRNOS[(number + round) % ERRNOS.len()];
                met.extend(run(Fault { call: Some(call), after: *after, errno }));
            }
            *after += 1;
        }
    }
    met
}

/// What the error of a call has to mention besides the errno.
fn knob(call: &str, errno: i32) -> &'static str {
    match (call, errno) {
        ("perf_event_open" | "epoll_create1" | "timerfd_create", EMFILE) => "RLIMIT_NOFILE",
        ("perf_event_open", EPERM) => "kernel.perf_event_paranoid",
        ("mmap", EPERM) => "RLIMIT_MEMLOCK",
        ("mmap", ENOMEM) => "ask for fewer bytes",
        ("bpf", EPERM) => "CAP_BPF",
        ("epoll_ctl", ENOSPC) => "fs.epoll.max_user_watches",
        _ => "",
    }
}

/// Asserts that the error of a pipe that failed to open names the cause and what to do.
fn assert_names_cause(error: &OpenError, call: &str, errno: i32) {
    let message = error.to_string();
    assert_ne!(errno, EINTR, "{message}");
    let why = io::Error::from_raw_os_error(errno).to_string();
    assert!(message.contains(&why), "{call} fails with {why}: {message}");
    assert!(message.contains(knob(call, errno)), "{call} fails with {why}: {message}");
}

/// Whether a pipe opens without a report if this call fails: it cannot look for another consumer then.
fn is_a_look(call: &str) -> bool {
    matches!(call, "bpf" | "rt_sigprocmask")
}

/// Asserts that a pipe that opened although a call failed reports what it does without.
fn assert_does_without(pipe: &EvPipe, call: &str, errno: i32) {
    let why = match (pipe.fallback(), pipe.hotplug_error()) {
        (None, None) if errno == EINTR || is_a_look(call) => return,
        // A CPU that has just gone offline returns this error for its event.
        (None, None) if (call, errno) == ("perf_event_open", ENODEV) => {
            assert_eq!(pipe.queues().len(), online().len() - 1);
            return;
        }
        (Some(why), None) => {
            assert!(matches!(pipe.wakeup(), Wakeup::Watermark(_)));
            if call == "perf_event_open" {
                assert!(why.contains(knob(call, errno)), "{why}");
            }
            why.to_owned()
        }
        (None, Some(error)) => error.to_string(),
        other => panic!("{call}: {other:?}"),
    };
    let errno = io::Error::from_raw_os_error(errno).to_string();
    assert!(why.contains(&errno), "{call}: {why}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_call_that_fails_while_a_pipe_is_opened_leaves_nothing_behind() {
    let mut object = load();
    // This loads the programs.
    drop(EvPipe::from_object(&mut object, &options()).unwrap());
    emit_one_on(&mut object, online()[0]);
    let before = held();
    let met = every_fault(|fault| {
        let open = || EvPipe::from_object(&mut object, &options());
        let (opened, met) = fail(fault, open);
        let call = met?;
        let what = format!("{call} fails with {}", io::Error::from_raw_os_error(fault.errno));
        match opened {
            Ok(pipe) => {
                assert_does_without(&pipe, call, fault.errno);
                let covered: Vec<u32> = pipe.queues().iter().map(crate::EvQueue::cpu).collect();
                let mut received = Received::default();
                covered.iter().for_each(|&cpu| emit_one_on(&mut object, cpu));
                let summary = pipe.close(&mut received);
                assert_eq!(received.total(), covered.len() as u64, "{what}");
                assert_eq!(summary.total.records, covered.len() as u64, "{what}");
            }
            Err(error) => assert_names_cause(&error, call, fault.errno),
        }
        assert_eq!(held(), before, "{what}");
        assert_maps_are_empty(&object, &what);
        met
    });
    let expected = [
        "bind",
        "bpf",
        "epoll_create1",
        "epoll_ctl",
        "ioctl",
        "madvise",
        "mmap",
        "perf_event_open",
        "rt_sigprocmask",
        "setsockopt",
        "socket",
        "timerfd_create",
        "timerfd_settime",
    ];
    assert_eq!(met, BTreeSet::from(expected));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_call_that_fails_while_each_cpu_gets_a_consumer_leaves_nothing_behind() {
    let mut object = load();
    let make = |_| Received::default();
    drop(PerCpuPipe::from_object(&mut object, &options(), make).unwrap());
    emit_one_on(&mut object, online()[0]);
    let before = held();
    let met = many_faults(|fault| {
        let open = || PerCpuPipe::from_object(&mut object, &options(), make);
        let (opened, met) = fail(fault, open);
        let call = met?;
        let what = format!("{call} fails with {}", io::Error::from_raw_os_error(fault.errno));
        match opened {
            Ok(pipe) => {
                let covered: Vec<u32> = pipe.counts().map(|(cpu, _)| cpu).collect();
                // A CPU that has just gone offline returns this error for its event.
                let went_offline = (call, fault.errno) == ("perf_event_open", ENODEV);
                let does_without =
                    pipe.fallback().is_some() || pipe.hotplug_error().is_some() || is_a_look(call);
                assert!(does_without || went_offline || fault.errno == EINTR, "{what}");
                assert!(went_offline || covered == online(), "{what}");
                covered.iter().for_each(|&cpu| emit_one_on(&mut object, cpu));
                let summary = pipe.close();
                assert_eq!(summary.total.records, covered.len() as u64, "{what}");
            }
            Err(error) => assert_names_cause(&error, call, fault.errno),
        }
        assert_eq!(held(), before, "{what}");
        assert_maps_are_empty(&object, &what);
        met
    });
    assert!(met.contains("perf_event_open"), "{met:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_call_that_fails_while_consumers_are_started_loses_nothing() {
    let mut object = load();
    let mut pipe =
        PerCpuPipe::from_object(&mut object, &options(), |_| Received::default()).unwrap();
    let (stop, mut emitted) = (Stop::new().unwrap(), 1);
    stop.stop();
    // This loads the programs.
    emit_one_on(&mut object, online()[0]);
    let before = held();
    let met = every_fault(|fault| {
        online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
        emitted += online().len() as u64;
        let (ran, met) = fail(fault, || pipe.run(&stop));
        // A thread whose notification fails soon notices the end by itself.
        let is_hidden = matches!(met, None | Some("write")) || fault.errno == EINTR;
        assert_eq!(ran.is_ok(), is_hidden, "{met:?}: {ran:?}");
        assert_eq!(held(), before, "{met:?}");
        met
    });
    assert_eq!(met, BTreeSet::from(["epoll_create1", "epoll_ctl", "eventfd", "write"]));
    let summary = pipe.close();
    let ledger = summary.ledger.unwrap();
    assert!(ledger.balances(), "{ledger}");
    assert_eq!((ledger.attempted(), ledger.handled()), (emitted, emitted), "{ledger}");
    assert_eq!(summary.consumers.len(), online().len());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_call_that_fails_while_a_cpu_returns_leaves_no_event_in_a_map() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &options()).unwrap();
    let cpu = online()[0];
    let met = every_fault(|fault| {
        // Act as if the CPU had gone offline. Its event would stay in the maps, where it does no harm.
        pipe.coverage.queues.uncover(cpu, &pipe.waiting.epoll);
        pipe.coverage.queues.leave_map();
        let before = held();
        let (covered, met) = fail(fault, || pipe.coverage.queues.cover(cpu, &pipe.waiting.epoll));
        if covered.is_err() {
            assert_eq!(held(), before, "{met:?}");
            for name in [EVENTS_MAP, EAGER_MAP] {
                let Some(Map::PerfEventArray(map)) = object.map(name) else { panic!("{name}") };
                let error = bpf::map_delete(map.fd().as_fd(), cpu).expect_err(name);
                assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{met:?}: {name}");
            }
        }
        met
    });
    assert!(met.contains("bpf"), "{met:?}");
}

/// What a consumer received, and the errors of its polls.
struct Seen {
    received: Received,
    /// The errors of the polls.
    failed: Vec<PollError>,
    summary: Summary,
}

/// Emits, polls, emits again to CPUs that may be eager or lazy, and closes the pipe with an open block.
fn consume(mut pipe: EvPipe, object: &mut Ebpf) -> (Seen, u64) {
    let (cpus, mut failed, mut received) = (online(), Vec::new(), Received::default());
    let mut poll = |pipe: &mut EvPipe, received: &mut Received, times| {
        for _ in 0..times {
            failed.extend(pipe.poll(Some(Duration::from_millis(2)), received).err());
        }
    };
    generate_on(classifier(object, "emit_numbered"), &cpus, N);
    poll(&mut pipe, &mut received, 8);
    cpus.iter().for_each(|&cpu| emit_one_on(object, cpu));
    poll(&mut pipe, &mut received, 3);
    generate_on(classifier(object, "emit_numbered"), &cpus, N);
    let summary = pipe.close(&mut received);
    (Seen { received, failed, summary }, u64::from(2 * N + 1) * cpus.len() as u64)
}

/// As after giving up privileges, on kernels where unprivileged processes may make no call of bpf(2).
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_may_not_ask_for_blocks_lets_none_wait() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &options()).unwrap();
    let (cpu, mut received) = (online()[0], Received::default());
    // It becomes lazy, and packs records.
    generate_on(classifier(&mut object, "emit_numbered"), &[cpu], N);
    let _ = pipe.poll(Some(Duration::ZERO), &mut received).unwrap();
    assert!(pipe.waiting.adaptive.as_ref().unwrap().lazy().any(|lazy| lazy == cpu));
    refuse("bpf", EPERM, || {
        for _ in 0..20 {
            emit_one_on(&mut object, cpu);
            for _ in 0..3 {
                let _ = pipe.poll(Some(Duration::from_millis(2)), &mut received).unwrap();
            }
        }
    });
    assert_eq!(received.total(), u64::from(N) + 20);
}

/// What would be packed then might never be sent: the CPU is quiet afterwards.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_may_not_ask_for_blocks_has_none_packed() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &options()).unwrap();
    let (cpu, mut received) = (online()[0], Received::default());
    refuse("bpf", EPERM, || {
        for _ in 0..2 {
            generate_on(classifier(&mut object, "emit_numbered"), &[cpu], N);
            for _ in 0..20 {
                let _ = pipe.poll(Some(Duration::from_millis(2)), &mut received).unwrap();
            }
        }
    });
    assert_eq!(received.total(), u64::from(2 * N));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_call_that_fails_while_records_are_consumed_loses_none() {
    let before = held();
    let met = many_faults(|fault| {
        let mut object = load();
        let pipe = EvPipe::from_object(&mut object, &options()).unwrap();
        assert_eq!(pipe.fallback(), None);
        let ((seen, emitted), met) = fail(fault, || consume(pipe, &mut object));
        let call = met?;
        let what = format!("{call} fails with {}", io::Error::from_raw_os_error(fault.errno));
        assert_eq!(seen.received.total(), emitted, "{what}");
        assert_eq!(seen.summary.total.records, emitted, "{what}");
        assert!(seen.failed.is_empty() || call == "epoll_wait", "{what}: {:?}", seen.failed);
        match seen.summary.ledger {
            Ok(ledger) => {
                assert!(ledger.balances(), "{what}: {ledger}");
                assert_eq!((ledger.attempted(), ledger.handled()), (emitted, emitted), "{what}");
                assert_eq!(seen.failed.is_empty(), fault.errno == EINTR || call != "epoll_wait");
            }
            Err(error) => assert!(call == "bpf" && fault.errno != EINTR, "{what}: {error}"),
        }
        assert_maps_are_empty(&object, &what);
        drop(object);
        assert_eq!(held(), before, "{what}");
        met
    });
    let always = ["bpf", "epoll_wait", "ioctl", "membarrier"];
    assert_met(&met, &always, &["read", "recvfrom", "timerfd_settime"]);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_call_that_fails_while_records_are_ordered_loses_none() {
    let before = held();
    let met = many_faults(|fault| {
        let mut object = load();
        let pipe = EvPipe::from_object(&mut object, &options()).unwrap();
        let cpus = online();
        let mut received = Received::default();
        generate_on(classifier(&mut object, "emit_numbered"), &cpus, N);
        let (summary, met) = fail(fault, || {
            let mut pipe = match pipe.ordered(Duration::from_millis(4)) {
                Ok(pipe) => pipe,
                Err(error) => return Err(error.to_string()),
            };
            let round = u64::from(N) * cpus.len() as u64;
            let end = Instant::now() + Duration::from_secs(10);
            while received.total() < round && Instant::now() < end {
                let _ = pipe.poll(Some(Duration::from_millis(2)), &mut received);
            }
            let window_is_over = (received.total(), pipe.held());
            generate_on(classifier(&mut object, "emit_numbered"), &cpus, N);
            let _ = pipe.poll(Some(Duration::ZERO), &mut received);
            Ok((window_is_over, pipe.close(&mut received)))
        });
        let call = met?;
        let what = format!("{call} fails with {}", io::Error::from_raw_os_error(fault.errno));
        match summary {
            Ok((given, summary)) => {
                let round = u64::from(N) * cpus.len() as u64;
                assert_eq!(given, (round, 0), "{what}: given in time");
                assert_eq!((received.total(), summary.late), (2 * round, 0), "{what}");
                assert_eq!(summary.total.records, 2 * round, "{what}");
            }
            Err(message) => {
                let is_opening = matches!(call, "timerfd_create" | "epoll_ctl");
                assert!(is_opening && fault.errno != EINTR, "{what}: {message}");
                assert!(message.contains(knob(call, fault.errno)), "{message}");
            }
        }
        assert_maps_are_empty(&object, &what);
        drop(object);
        assert_eq!(held(), before, "{what}");
        met
    });
    let always = ["bpf", "epoll_ctl", "epoll_wait", "ioctl", "membarrier", "timerfd_create"];
    assert_met(&met, &always, &["read", "recvfrom", "timerfd_settime"]);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_call_that_fails_while_a_pipe_runs_does_not_keep_it_from_running() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &options()).unwrap();
    let mut received = Received::default();
    let met = every_fault(|fault| {
        let stop = Stop::new().unwrap();
        let before = received.total();
        online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
        stop.stop();
        let (ran, met) = fail(fault, || pipe.run(&stop, &mut received));
        if let Err(error) = ran {
            assert_eq!(met, Some("epoll_ctl"), "{error}");
            assert!(error.to_string().contains(knob("epoll_ctl", fault.errno)), "{error}");
        }
        let stop = Stop::new().unwrap();
        stop.stop();
        pipe.run(&stop, &mut received).unwrap();
        assert_eq!(received.total() - before, online().len() as u64);
        met
    });
    assert!(met.contains("epoll_ctl"), "{met:?}");
    assert!(pipe.close(&mut received).ledger.unwrap().balances());
}

/// Runs something with each of its calls failing in turn, as under a seccomp filter, up to `membarrier(2)`. Returns what
/// it returned then, or `None` if it does not make that call.
fn without_membarrier<T>(mut run: impl FnMut() -> T) -> Option<T> {
    for after in 0.. {
        match fail(Fault { call: None, after, errno: libc::ENOSYS }, &mut run) {
            (result, Some("membarrier")) => return Some(result),
            (_, Some(_)) => {}
            (_, None) => break,
        }
    }
    None
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_recorder_that_cannot_wait_for_programs_does_not_open_or_dump() {
    let mut object = load();
    let packed = options().overwrite();
    let unpacked = packed.clone().wakeup(Wakeup::PollOnly);
    let mut open = |options| EvPipe::from_object(&mut object, options);
    // The pipes are dropped when no call fails: otherwise they would leave an event in the map.
    let opened = without_membarrier(|| open(&unpacked)).expect("it waits");
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Recorder { .. }), "{error}");
    assert!(error.to_string().contains(". Allow membarrier(2) in the seccomp filter"), "{error}");
    // The flush program finds out whether a program is in the middle of a record.
    assert!(without_membarrier(|| open(&packed)).is_none());

    let mut pipe = open(&unpacked).unwrap();
    let (mut received, mut emitted) = (Received::default(), 0);
    let before = without_membarrier(|| {
        online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
        emitted += online().len() as u64;
        let before = received.total();
        let error = pipe.dump(&mut received).err().map(|error| PollError::from(error).to_string());
        (before, error)
    });
    let (before, error) = before.expect("it waits");
    let error = error.expect("it fails");
    assert!(error.starts_with("cannot dump: waiting until programs have written"), "{error}");
    assert!(!pipe.is_paused() && received.total() == before);
    assert!(pipe.dump(&mut received).unwrap().flow.is_continue());
    assert_eq!(received.total(), emitted);
}

/// A pipe that takes over either has all descriptors that it needs, or takes nothing.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_keeps_its_cpus_if_the_one_that_takes_over_has_too_few_descriptors() {
    type Open = fn(&mut Ebpf, &Options) -> Result<Option<String>, OpenError>;
    let opened: [Open; 2] = [
        |object, options| {
            EvPipe::from_object(object, options).map(|pipe| pipe.fallback().map(str::to_owned))
        },
        |object, options| {
            let pipe = PerCpuPipe::from_object(object, options, |_| Received::default());
            pipe.map(|pipe| pipe.fallback().map(str::to_owned))
        },
    ];
    for (kind, open) in ["EvPipe", "PerCpuPipe"].iter().zip(opened) {
        let mut object = load();
        let mut pipe = EvPipe::from_object(&mut object, &options()).unwrap();
        let mut received = Received::default();
        let limits = getrlimit(Resource::Nofile);
        for (round, most) in (1..).zip(descriptors() as u64..) {
            let restore = Restore(limits);
            setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limits }).unwrap();
            let taken = open(&mut object, &options().take_over());
            drop(restore);
            let error = match taken {
                Ok(fallback) => {
                    assert_eq!(fallback, None, "{kind}, {most} descriptors");
                    break;
                }
                Err(error) => error,
            };
            online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
            assert!(pipe.drain_all(&mut received).is_continue());
            let all = round * online().len() as u64;
            assert_eq!(received.total(), all, "{kind}, {most} descriptors: {error}");
        }
    }
}

/// As above, including the calls of other crates.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn running_out_of_descriptors_names_the_limit() {
    let mut object = load();
    drop(EvPipe::from_object(&mut object, &options()).unwrap());
    let before = held();
    let limits = getrlimit(Resource::Nofile);
    let mut refused = 0;
    // The descriptors of the standard streams are in use; a limit below the first free one is a different error.
    for most in 4.. {
        let restore = Restore(limits);
        let few = Rlimit { current: Some(most), ..limits };
        setrlimit(Resource::Nofile, few).unwrap();
        let opened = EvPipe::from_object(&mut object, &options());
        drop(restore);
        match opened {
            Ok(pipe) if pipe.fallback().is_none() && pipe.hotplug_error().is_none() => break,
            Ok(pipe) => {
                let why = pipe.fallback().map(str::to_owned);
                let why = why.or(pipe.hotplug_error().map(io::Error::to_string)).unwrap();
                assert!(why.contains("Too many open files"), "{most}: {why}");
            }
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains("RLIMIT_NOFILE"), "{most}: {message}");
                refused += 1;
            }
        }
        assert_eq!(held(), before, "{most}");
        assert_maps_are_empty(&object, &format!("{most} descriptors"));
    }
    assert!(refused > 10, "{refused}");
}
