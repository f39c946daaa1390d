//! Consumers that come and go, while the programs stay.

use crate::suite::{
    BURST, Log, Received, classifier, emit_on, generate, generate_on, load, make_lazy, map,
    number_from, on_each_cpu, online, open, strict, while_running,
};
use aya::Ebpf;
use aya::programs::SchedClassifier;
use probe_user::common::control::EVENTS_MAP;
use probe_user::common::tally::FailureClass;
use probe_user::{EvHandlers, EvPipe, Options, PipeParts, Stop};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where the parts of the pipe are pinned, for a consumer in a process of its own.
const PINNED: &str = "PROBE_PINNED";

/// What the consumer prints once it is in its state.
const READY: &str = "the consumer is ready";

/// A bpffs of our own. Dropping it removes the pins.
struct Bpffs(TempDir);

impl Bpffs {
    fn mount() -> Self {
        let directory = tempfile::tempdir().unwrap();
        mount("bpf", directory.path(), "bpf", MountFlags::empty(), None).unwrap();
        Self(directory)
    }

    fn parts(&self) -> PathBuf {
        self.0.path().join("pipe")
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        unmount(self.0.path(), UnmountFlags::empty()).unwrap();
    }
}

/// What the consumer has made of the CPUs when it is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Every record wakes it.
    Eager,
    /// Records are packed, and it sweeps the CPUs.
    Lazy,
}

const STATES: [State; 2] = [State::Eager, State::Lazy];

/// A consumer in a process of its own, which runs the test that starts it.
struct Consumer(Child);

impl Consumer {
    /// Starts it, and brings it into a state.
    fn start(test: &str, parts: &Path, state: State, object: &mut Ebpf) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program)
            .args(["--ignored", "--exact", "--nocapture", test])
            .env(PINNED, parts)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut wait = || assert!(lines.any(|line| line.contains(READY)), "it has ended");
        wait();
        if state == State::Lazy {
            // It answers no wakeup of the burst.
            let process = Pid::from_child(&child);
            kill_process(process, Signal::STOP).unwrap();
            waitpid(Some(process), WaitOptions::UNTRACED).unwrap();
            emit_on(object, &online(), BURST);
            kill_process(process, Signal::CONT).unwrap();
            wait();
        }
        Self(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Consumes, in that process, until it is killed.
fn consume(parts: &Path) -> ! {
    // No sweep comes before the consumer is killed.
    let options = Options::new().wakeup(crate::suite::adaptive(Duration::from_secs(600)));
    let mut pipe = EvPipe::from_pinned(parts, &options).unwrap();
    assert_eq!(pipe.fallback(), None);
    let (mut records, burst) = (0, u64::from(BURST) * online().len() as u64);
    let _ = pipe.drain(&mut EvHandlers::new());
    println!("{READY}");
    loop {
        let before = records;
        records += pipe.poll(None, &mut EvHandlers::new()).unwrap().records;
        if before < burst && records >= burst {
            println!("{READY}");
        }
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_next_consumer_receives_everything_after_one_was_killed() {
    const TEST: &str = "restart::the_next_consumer_receives_everything_after_one_was_killed";
    if let Some(parts) = std::env::var_os(PINNED) {
        consume(Path::new(&parts));
    }
    type Open = fn(&Bpffs, &mut Ebpf, &Options) -> EvPipe;
    let ways: [(&str, Open); 4] = [
        ("map", |_, object, options| EvPipe::from_map(map(object, EVENTS_MAP), options).unwrap()),
        ("object", |_, object, options| EvPipe::from_object(object, options).unwrap()),
        ("parts", |bpffs, _, options| EvPipe::from_pinned(bpffs.parts(), options).unwrap()),
        ("pinned map", |bpffs, _, options| {
            EvPipe::from_pinned(bpffs.parts().join(EVENTS_MAP), options).unwrap()
        }),
    ];
    for (state, (way, open)) in STATES.into_iter().flat_map(|state| ways.map(|way| (state, way))) {
        let mut object = load();
        let bpffs = Bpffs::mount();
        PipeParts::of_object(&mut object).unwrap().pin(bpffs.parts()).unwrap();
        let consumer = Consumer::start(TEST, &bpffs.parts(), state, &mut object);
        // In a lazy CPU's open block when the consumer dies.
        emit_on(&mut object, &online(), 1);
        consumer.kill();
        let mut pipe = open(&bpffs, &mut object, &Options::new());
        let mut seen = 0;
        generate_on(classifier(&mut object, "emit_numbered"), &online(), 3);
        let (start, expected) = (Instant::now(), 3 * online().len() as u64);
        while seen < expected {
            let progress = pipe.poll(Some(Duration::from_secs(1)), &mut EvHandlers::new()).unwrap();
            seen += progress.records;
            let waited = start.elapsed() > Duration::from_secs(60);
            assert!(!waited, "{way}, {state:?}: {seen} of {expected}");
        }
        match pipe.ledger() {
            Ok(ledger) => assert!(ledger.is_complete(), "{way}, {state:?}: {ledger}"),
            Err(error) => assert!(way.ends_with("map"), "{way}, {state:?}: {error}"),
        }
        drop(pipe);
    }
}

/// How many consumers are killed, unless the variable overrides it. Each takes some 30 ms, most of them to start.
const KILLS: u32 = 50;
const KILLS_VARIABLE: &str = "PROBE_KILLS";

/// Programs emit all the time. None of the consumers stands in the way of the next one, whose ledger has every record from
/// its beginning on.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn consumers_are_killed_under_load_and_followed_by_others() {
    const TEST: &str = "restart::consumers_are_killed_under_load_and_followed_by_others";
    if let Some(parts) = std::env::var_os(PINNED) {
        let mut pipe = EvPipe::from_pinned(parts, &Options::new()).unwrap();
        println!("{READY}");
        pipe.run(&Stop::new().unwrap(), &mut EvHandlers::new()).unwrap();
    }
    let mut object = load();
    let bpffs = Bpffs::mount();
    PipeParts::of_object(&mut object).unwrap().pin(bpffs.parts()).unwrap();
    for kill in 0..number_from(KILLS_VARIABLE, KILLS) {
        let consumer = Consumer::start(TEST, &bpffs.parts(), State::Eager, &mut object);
        let program = classifier(&mut object, "emit_numbered");
        let mut received = Log::default();
        let pipe = while_loaded(program, || {
            // Consumers are killed in different moments of their lives.
            std::thread::sleep(Duration::from_micros(u64::from(kill % 16) * 500));
            consumer.kill();
            let mut pipe = EvPipe::from_pinned(bpffs.parts(), &Options::new()).unwrap();
            let start = Instant::now();
            while received.received.total() < 1000 {
                let _ = pipe.poll(Some(Duration::from_secs(1)), &mut received).unwrap();
                assert!(start.elapsed() < Duration::from_secs(30), "after kill {kill}");
            }
            pipe
        });
        let ledger = pipe.close(&mut received).ledger.unwrap();
        assert!(ledger.balances() && ledger.unread() == 0, "after kill {kill}: {ledger}");
        let lost = ledger.tally().failed_for(FailureClass::NoSpace);
        let counts = (ledger.handled(), lost);
        assert_eq!(counts, (received.received.total(), received.lost_records()), "{ledger}");
    }
}

/// Emits on every CPU while `act` runs, with pauses in which other tasks run.
fn while_loaded<T>(program: &SchedClassifier, act: impl FnOnce() -> T) -> T {
    let emit = || {
        generate(program, 100);
        std::thread::sleep(Duration::from_micros(100));
    };
    while_running(|stop| on_each_cpu(stop, emit), act)
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_pipe_that_closes_leaves_the_cpus_of_another_alone() {
    let (mut object, mut first) = open(&Options::new());
    make_lazy(&mut object, &mut first, &online());
    let mut second = EvPipe::from_object(&mut object, &Options::new().take_over()).unwrap();
    drop(first);
    let mut received = Received::default();
    emit_on(&mut object, &online(), 10);
    let start = Instant::now();
    while received.total() < 10 * online().len() as u64 {
        let _ = second.poll(Some(Duration::from_secs(1)), &mut strict(&mut received)).unwrap();
        assert!(start.elapsed() < Duration::from_secs(10), "{} records", received.total());
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn parts_are_pinned_together_or_not_at_all() {
    let mut object = load();
    let bpffs = Bpffs::mount();
    let parts = PipeParts::of_object(&mut object).unwrap();
    parts.pin(bpffs.parts()).unwrap();
    let error = parts.pin(bpffs.parts()).unwrap_err().to_string();
    assert!(error.ends_with("remove it, or choose another directory"), "{error}");
    assert_eq!(std::fs::read_dir(bpffs.parts()).unwrap().count(), 7);
    // The first part is in the way of the second pin, which removes nothing that it has not pinned.
    std::fs::remove_file(bpffs.parts().join(EVENTS_MAP)).unwrap();
    assert!(parts.pin(bpffs.parts()).is_err());
    assert_eq!(std::fs::read_dir(bpffs.parts()).unwrap().count(), 6);
    let elsewhere = tempfile::tempdir().unwrap();
    let error = parts.pin(elsewhere.path().join("pipe")).unwrap_err().to_string();
    assert!(error.contains("in a directory of a bpffs"), "{error}");
}
