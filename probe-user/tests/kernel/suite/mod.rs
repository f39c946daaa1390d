//! Shared helpers of the kernel tests: the loaded suite object, and generators that run its
//! programs.
//!
//! These tests need root and BPF, so plain `cargo test` ignores them. `cargo xtask test` runs them
//! on this machine and on every supported kernel.

pub mod records;

use aya::maps::Map;
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{
    PerfEvent, ProgramError, RawTracePoint, RawTracePointRunOptions, SchedClassifier, TestRun,
    TestRunOptions,
};
use aya::{Ebpf, EbpfLoader};
use probe_testing::left::{Held, KernelObjects};
use probe_user::common::control::TALLY_MAP;
use probe_user::common::limits::KINDS;
use probe_user::common::tally::Bank;
use probe_user::common::{RawRecord, Record, RecordKind};
use probe_user::{
    Consumer, CpuChange, Emitted, EvHandlers, EvPipe, Flow, Loss, Malformed, Options, PerCpuPipe,
    Stop, Wakeup,
};
use records::Numbered;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a ring that never fills: 16 MiB hold 174,762 records of 96 bytes.
pub const AMPLE: usize = 16 << 20;

pub static OBJECT: &[u8] = aya::include_bytes_aligned!("../../ebpf/suite.bpf.o");

/// Loads the suite object. Dropping it asserts that everything acquired since has been released.
pub fn load() -> Loaded {
    load_with(&mut EbpfLoader::new())
}

pub fn load_with(loader: &mut EbpfLoader<'_>) -> Loaded {
    load_object(loader, OBJECT)
}

/// The same for another object.
pub fn load_object(loader: &mut EbpfLoader<'_>, bytes: &[u8]) -> Loaded {
    let before = Held::now();
    let object = loader.btf(None).load(bytes);
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
        // A failed test may leak.
        if !std::thread::panicking() {
            self.before.assert_nothing_else(&at_end);
        }
    }
}

/// Loads the suite object and opens a pipe over it. Drop the pipe first: dropping the object checks for
/// leaks.
pub fn open(options: &Options) -> (Loaded, EvPipe) {
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, options).unwrap();
    (object, pipe)
}

/// The same with a consumer on each CPU.
pub fn open_per_cpu<C: Consumer + Send, M: FnMut(u32) -> C>(
    options: &Options,
    make: M,
) -> (Loaded, PerCpuPipe<C, M>) {
    let mut object = load();
    let pipe = PerCpuPipe::from_object(&mut object, options, make).unwrap();
    (object, pipe)
}

/// A map of the suite object: a perf event array, or an array.
pub fn map<'o>(object: &'o Ebpf, name: &str) -> BorrowedFd<'o> {
    match object.map(name) {
        Some(Map::PerfEventArray(map)) => map.fd().as_fd(),
        Some(Map::PerCpuArray(map) | Map::Array(map)) => map.fd().as_fd(),
        other => panic!("{name}: {other:?}"),
    }
}

pub fn adaptive(max_latency: Duration) -> Wakeup {
    Wakeup::Adaptive { max_latency }
}

/// The number in an environment variable, or a default.
pub fn number_from(variable: &str, default: u32) -> u32 {
    let set = std::env::var(variable).ok();
    set.map_or(default, |number| number.parse().unwrap_or_else(|_| panic!("{variable}={number}")))
}

/// The time of a clock, in nanoseconds. Records use `ClockId::Monotonic`.
pub fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub fn online() -> Vec<u32> {
    probe_sys::cpus::online().unwrap()
}

pub fn classifier<'e>(object: &'e mut Ebpf, name: &str) -> &'e SchedClassifier {
    let program: &mut SchedClassifier = object.program_mut(name).unwrap().try_into().unwrap();
    if program.fd().is_err() {
        program.load().unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    program
}

/// Runs `program` `count` times on each of `cpus`, concurrently.
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

/// Emits `count` `Numbered`s on each of `cpus`, concurrently.
pub fn emit_on(object: &mut Ebpf, cpus: &[u32], count: u32) {
    generate_on(classifier(object, "emit_numbered"), cpus, count);
}

/// The number of records in the burst of [`make_lazy`].
pub const BURST: u32 = 100;

/// Makes CPUs lazy, so that they pack: each emits a [`BURST`] that nobody answers.
pub fn make_lazy(object: &mut Ebpf, pipe: &mut EvPipe, cpus: &[u32]) {
    emit_on(object, cpus, BURST);
    let progress = pipe.drain(&mut EvHandlers::new());
    assert_eq!(progress.records, u64::from(BURST) * cpus.len() as u64);
}

/// Calls `act` while `run` consumes in another thread. Stops `run` at the end, even if `act` panics.
pub fn while_running<T>(run: impl FnOnce(&Stop) + Send, act: impl FnOnce() -> T) -> T {
    struct StopOnDrop<'s>(&'s Stop);

    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    let stop = Stop::new().unwrap();
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| run(&stop));
        act()
    })
}

/// Emits `count` `Numbered`s on every CPU while `run` consumes, then stops `run`.
pub fn while_emitting(object: &mut Ebpf, count: u32, run: impl FnOnce(&Stop) + Send) {
    let program = classifier(object, "emit_numbered");
    while_running(run, || generate_on(program, &online(), count));
}

/// Waits until `is_done`, for 30 seconds at most.
pub fn wait_until(is_done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_done() {
        assert!(Instant::now() < end, "it takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `program` `count` times on the current CPU.
pub fn generate(program: &SchedClassifier, count: u32) {
    let packet = [0u8; 64];
    let mut options = TestRunOptions::new();
    options.data_in = Some(&packet);
    options.repeat = count;
    program.test_run(options).unwrap();
}

/// Repeats `step` on each CPU until the stop.
pub fn on_each_cpu(stop: &Stop, step: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for cpu in online() {
            let step = &step;
            scope.spawn(move || {
                stay_on(cpu);
                while !stop.is_stopped() {
                    step();
                }
            });
        }
    });
}

/// Pins this thread to `cpu`.
pub fn stay_on(cpu: u32) {
    try_to_stay_on(cpu).unwrap();
}

/// Pins this thread to `cpu`, if that is online.
pub fn try_to_stay_on(cpu: u32) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set)
}

/// Keeps this thread and those it spawns off `cpu`.
pub fn stay_off(cpu: u32) {
    let mut set = CpuSet::new();
    online().into_iter().filter(|&other| other != cpu).for_each(|other| set.set(other as usize));
    sched_setaffinity(None, &set).unwrap();
}

/// Whether a descriptor is readable within this time.
pub fn is_readable(descriptor: &impl AsFd, within: Duration) -> bool {
    let within = within.try_into().unwrap();
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&within)).unwrap() > 0
}

/// Number of open descriptors of this process.
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

/// The loaded programs that emit `Numbered`s: many on the caller's CPU, or one on any CPU.
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

/// Attaches `program` to a timer on every CPU, which interrupts whatever runs there.
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

/// Detaches `program`, so that it interrupts nothing any more.
pub fn detach_clock(object: &mut Ebpf, program: &str) {
    let program: &mut PerfEvent = object.program_mut(program).unwrap().try_into().unwrap();
    program.unload().unwrap();
}

/// Number of `kind` records from programs that interrupted another one in the middle of a record,
/// without those that failed.
pub fn nested(object: &Ebpf, kind: RecordKind) -> u64 {
    let map = object.map(TALLY_MAP).unwrap();
    let map = aya::maps::PerCpuArray::<_, [u64; KINDS as usize]>::try_from(map).unwrap();
    let index = kind.index().unwrap() as usize;
    map.get(&Bank::SentNested.index(), 0).unwrap().iter().map(|kinds| kinds[index]).sum()
}

/// What each CPU delivered. Checks contents and order on arrival.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    pub by_cpu: BTreeMap<u32, PerCpu>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct PerCpu {
    /// Records received.
    pub count: u64,
    /// One past the last number received.
    pub next: u64,
    /// Numbers skipped.
    pub missing: u64,
    /// Time of the last record; it must not decrease.
    pub time: u64,
}

impl Received {
    pub fn take(&mut self, event: &Emitted<'_, Numbered>) {
        self.take_numbered(event.cpu, event.time, event.record);
    }

    pub fn take_numbered(&mut self, cpu: u32, time: u64, record: &Numbered) {
        assert_eq!(*record, Numbered::new(record.number, u64::from(cpu)), "torn or of another CPU");
        let seen = self.by_cpu.entry(cpu).or_default();
        seen.count += 1;
        assert!(record.number >= seen.next, "CPU {cpu}: {} after {}", record.number, seen.next);
        assert!(time >= seen.time, "CPU {cpu}: time goes back");
        seen.missing += record.number - seen.next;
        seen.next = record.number + 1;
        seen.time = time;
    }

    pub fn total(&self) -> u64 {
        self.by_cpu.values().map(|seen| seen.count).sum()
    }

    /// Asserts that each of `cpus` delivered exactly `count` records, and other CPUs none.
    pub fn assert_complete(&self, cpus: &[u32], count: u64) {
        assert_eq!(self.by_cpu.keys().copied().collect::<Vec<_>>(), cpus);
        for (cpu, seen) in &self.by_cpu {
            assert_eq!((seen.count, seen.next, seen.missing), (count, count, 0), "CPU {cpu}");
        }
    }
}

/// Rejects everything but `Numbered`s, like [`strict`].
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

/// A consumer that checks records as [`Received`] does, and logs everything else but malformed bytes.
#[derive(Debug, Default)]
pub struct Log {
    pub received: Received,
    /// The number of records, where other threads can read it.
    pub total: Arc<AtomicU64>,
    /// How many times CPUs came online, where other threads can read it.
    pub covered: Arc<AtomicU64>,
    /// Records delivered on another CPU than the one that emitted them.
    pub elsewhere: u64,
    /// Reported losses by CPU.
    pub lost: BTreeMap<u32, Lost>,
    /// CPUs that went offline or online.
    pub changes: Vec<String>,
    /// The number of a record, and what to do when it has arrived.
    pub end: Option<(u64, End)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub outputs: u64,
    pub records: u64,
}

/// How a consumer ends a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Break,
    Panic,
}

impl Log {
    /// The number of records of a CPU.
    pub fn count(&self, cpu: u32) -> u64 {
        self.received.by_cpu.get(&cpu).map_or(0, |seen| seen.count)
    }

    /// The number of lost records of all CPUs.
    pub fn lost_records(&self) -> u64 {
        self.lost.values().map(|lost| lost.records).sum()
    }
}

impl Consumer for Log {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.elsewhere += u64::from(sched_getcpu() != cpu as usize);
        self.total.fetch_add(1, Ordering::Relaxed);
        self.received.record(cpu, record)?;
        let number = self.received.by_cpu[&cpu].next - 1;
        match self.end.take_if(|(end, _)| *end == number) {
            Some((_, End::Break)) => ControlFlow::Break(()),
            Some((_, End::Panic)) => panic!("on purpose"),
            None => ControlFlow::Continue(()),
        }
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        let lost = self.lost.entry(loss.cpu).or_default();
        lost.outputs += loss.count;
        lost.records += loss.records.expect("the pipe has a tally");
        ControlFlow::Continue(())
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        panic!("{malformed}")
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        let is_covered = matches!(change, CpuChange::Covered { .. });
        self.covered.fetch_add(u64::from(is_covered), Ordering::Relaxed);
        self.changes.push(change.to_string());
    }
}

/// Handlers that reject everything for which no handler is added.
pub fn rejecting<'h>() -> EvHandlers<'h> {
    let mut handlers = EvHandlers::new();
    handlers
        .on_unknown::<()>(|cpu, record| panic!("CPU {cpu}: {record:?}"))
        .on_loss::<()>(|loss| panic!("{loss:?}"))
        .on_malformed::<()>(|malformed| panic!("{malformed}"));
    handlers
}

/// Handlers with `handler` for `Numbered`s, which ignore everything else.
pub fn on_numbered<'h, F: Flow>(
    handler: impl FnMut(Emitted<'_, Numbered>) -> F + Send + 'h,
) -> EvHandlers<'h> {
    let mut handlers = EvHandlers::new();
    handlers.on(handler);
    handlers
}

/// Handlers that feed `received` and reject everything but `Numbered`s.
pub fn strict(received: &mut Received) -> EvHandlers<'_> {
    let mut handlers = rejecting();
    handlers.on::<Numbered, _>(|event| received.take(&event));
    handlers
}
