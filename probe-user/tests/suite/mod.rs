//! What the kernel tests share: the loaded suite object, and generators that run in it.
//!
//! These tests need root and BPF, so they are ignored by a plain `cargo test`; `cargo xtask test`
//! runs them, on this machine and in every kernel.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

pub mod left;
pub mod records;
pub mod set_on_drop;
pub mod switches;
pub mod version;

use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{
    PerfEvent, ProgramError, RawTracePoint, RawTracePointRunOptions, SchedClassifier, TestRun,
    TestRunOptions,
};
use aya::{Ebpf, EbpfLoader};
use left::{Held, KernelObjects};
use probe_user::common::control::TALLY_MAP;
use probe_user::common::limits::{DEPTH, KINDS};
use probe_user::common::tally::KindTally;
use probe_user::common::{RawRecord, Record, RecordKind};
use probe_user::{Consumer, EvHandlers, Event, Loss, Malformed};
use records::Numbered;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Deref, DerefMut};
use std::time::Duration;

pub static OBJECT: &[u8] = aya::include_bytes_aligned!("../ebpf/suite.bpf.o");

/// The suite object, loaded. When it is dropped, all has to be gone that has come since.
pub fn load() -> Loaded {
    load_with(&mut EbpfLoader::new())
}

pub fn load_with(loader: &mut EbpfLoader<'_>) -> Loaded {
    let before = Held::now();
    let object = loader.btf(None).load(OBJECT);
    let object = object.expect("the suite object loads: root and BPF are needed");
    Loaded { object: Some(object), before }
}

/// See [`load`].
pub struct Loaded {
    object: Option<Ebpf>,
    before: Held,
}

impl Deref for Loaded {
    type Target = Ebpf;

    fn deref(&self) -> &Ebpf {
        self.object.as_ref().unwrap()
    }
}

impl DerefMut for Loaded {
    fn deref_mut(&mut self) -> &mut Ebpf {
        self.object.as_mut().unwrap()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let at_end = KernelObjects::of("/proc/self");
        drop(self.object.take());
        // A test that fails leaves what it likes.
        if !std::thread::panicking() {
            self.before.assert_nothing_else(&at_end);
        }
    }
}

/// A clock's time, in nanoseconds. That of records is `ClockId::Monotonic`.
pub fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub fn online() -> Vec<u32> {
    probe_user::cpus::online().unwrap()
}

pub fn classifier<'e>(object: &'e mut Ebpf, name: &str) -> &'e SchedClassifier {
    let program: &mut SchedClassifier = object.program_mut(name).unwrap().try_into().unwrap();
    if program.fd().is_err() {
        program.load().unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    program
}

/// Runs `program` `count` times on each of `cpus`, on all of them at the same time.
pub fn generate_on(program: &SchedClassifier, cpus: &[u32], count: u32) {
    std::thread::scope(|scope| {
        for &cpu in cpus {
            scope.spawn(move || {
                stay_on(cpu);
                generate(program, count);
            });
        }
    });
}

/// Runs `program` `count` times on this CPU.
pub fn generate(program: &SchedClassifier, count: u32) {
    let packet = [0u8; 64];
    let mut options = TestRunOptions::new();
    options.data_in = Some(&packet);
    options.repeat = count;
    program.test_run(options).unwrap();
}

/// Keeps this thread on `cpu`.
pub fn stay_on(cpu: u32) {
    try_to_stay_on(cpu).unwrap();
}

/// The same, if that is online.
pub fn try_to_stay_on(cpu: u32) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set)
}

/// Keeps this thread, and those it starts, on other CPUs than `cpu`.
pub fn stay_off(cpu: u32) {
    let mut set = CpuSet::new();
    online().into_iter().filter(|&other| other != cpu).for_each(|other| set.set(other as usize));
    sched_setaffinity(None, &set).unwrap();
}

/// How many descriptors this process has.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Emits one `Numbered` on `cpu`.
pub fn emit_one_on(object: &mut Ebpf, cpu: u32) {
    try_to_emit_one(Generators::load(object).there, cpu).unwrap();
}

/// Emits one `Numbered` on `cpu`, if that is online.
pub fn try_to_emit_one(program: &RawTracePoint, cpu: u32) -> Result<(), ProgramError> {
    let mut options = RawTracePointRunOptions::new();
    options.cpu = Some(cpu);
    program.test_run(options).map(drop)
}

/// The loaded programs that emit `Numbered`s: many on the CPU of the caller, or one on any.
pub struct Generators<'e> {
    pub here: &'e SchedClassifier,
    pub there: &'e RawTracePoint,
}

impl<'e> Generators<'e> {
    pub fn load(object: &'e mut Ebpf) -> Self {
        classifier(object, "emit_numbered");
        let there: &mut RawTracePoint =
            object.program_mut("emit_numbered_raw").unwrap().try_into().unwrap();
        if there.fd().is_err() {
            there.load().unwrap();
        }
        let program = |name| object.program(name).unwrap();
        Self {
            here: program("emit_numbered").try_into().unwrap(),
            there: program("emit_numbered_raw").try_into().unwrap(),
        }
    }
}

/// A clock on every CPU that interrupts whatever runs there, with `program`.
pub fn attach_clock(object: &mut Ebpf, program: &str, period: Duration) {
    let program: &mut PerfEvent = object.program_mut(program).unwrap().try_into().unwrap();
    program.load().unwrap();
    let clock = PerfEventConfig::Software(SoftwareEvent::CpuClock);
    let period = SamplePolicy::Period(period.as_nanos() as u64);
    for cpu in online() {
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        program.attach(clock, scope, period, false).unwrap();
    }
}

/// Nobody is interrupted by it any more.
pub fn detach_clock(object: &mut Ebpf, program: &str) {
    let program: &mut PerfEvent = object.program_mut(program).unwrap().try_into().unwrap();
    program.unload().unwrap();
}

/// How many records of `kind` were emitted by programs that had interrupted another one in the
/// middle of a record, and did not fail for want of a slot: all banks of the tally but the first and
/// the last, as `probe_common::control::TALLY_MAP` describes them.
pub fn nested(object: &Ebpf, kind: RecordKind) -> u64 {
    const WORDS: usize = size_of::<KindTally>() / size_of::<u64>();
    let map = object.map(TALLY_MAP).unwrap();
    let map = aya::maps::PerCpuArray::<_, [[u64; WORDS]; KINDS as usize]>::try_from(map).unwrap();
    let index = kind.index().unwrap() as usize;
    let attempted =
        |bank| map.get(&bank, 0).unwrap().iter().map(|kinds| kinds[index][0]).sum::<u64>();
    (1..DEPTH).map(attempted).sum()
}

/// What each CPU delivered: checks contents and order as they come.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    pub by_cpu: BTreeMap<u32, PerCpu>,
    /// Those that are emitted alone overtake others: only contents are checked, and counted.
    pub in_any_order: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct PerCpu {
    /// How many came.
    pub count: u64,
    /// The number after the last that came.
    pub next: u64,
    /// How many numbers were left out.
    pub missing: u64,
    /// Time of the last, which never goes back.
    pub time: u64,
}

impl Received {
    pub fn take(&mut self, event: &Event<'_, Numbered>) {
        self.take_numbered(event.cpu, event.time, event.record);
    }

    pub fn take_numbered(&mut self, cpu: u32, time: u64, record: &Numbered) {
        assert_eq!(*record, Numbered::new(record.number, u64::from(cpu)), "torn or of another CPU");
        let seen = self.by_cpu.entry(cpu).or_default();
        seen.count += 1;
        if self.in_any_order {
            return;
        }
        assert!(record.number >= seen.next, "CPU {cpu}: {} after {}", record.number, seen.next);
        assert!(time >= seen.time, "CPU {cpu}: time goes back");
        seen.missing += record.number - seen.next;
        seen.next = record.number + 1;
        seen.time = time;
    }

    pub fn total(&self) -> u64 {
        self.by_cpu.values().map(|seen| seen.count).sum()
    }

    /// Exactly `count` came of each of `cpus`, and nothing of any other.
    pub fn assert_complete(&self, cpus: &[u32], count: u64) {
        assert_eq!(self.by_cpu.keys().copied().collect::<Vec<_>>(), cpus);
        for (cpu, seen) in &self.by_cpu {
            assert_eq!((seen.count, seen.next, seen.missing), (count, count, 0), "CPU {cpu}");
        }
    }
}

/// Refuses everything but `Numbered`s, as [`strict`] does.
impl Consumer for Received {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        assert_eq!(record.kind, Numbered::KIND, "CPU {cpu}");
        let (numbered, _) = record.read::<Numbered>().expect("a payload as long as its type");
        self.take_numbered(cpu, record.time, numbered);
        ControlFlow::Continue(())
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        panic!("{loss:?}")
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        panic!("{malformed}")
    }
}

/// Handlers that feed `received`, and refuse everything but `Numbered`s.
pub fn strict(received: &mut Received) -> EvHandlers<'_> {
    let mut handlers = EvHandlers::new();
    handlers
        .on::<Numbered, _>(|event| received.take(&event))
        .on_unknown::<()>(|cpu, record| panic!("CPU {cpu}: {record:?}"))
        .on_loss::<()>(|loss| panic!("{loss:?}"))
        .on_malformed::<()>(|malformed| panic!("{malformed}"));
    handlers
}
