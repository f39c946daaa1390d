//! One measurement of one contender, in a process of its own.

use crate::contender::Contender;
use crate::generator;
use crate::payload::BURST;
use crate::reader::{self, Reader, Shape};
use crate::sink::Sink;
use crate::walk::Ring;
use anyhow::{Context, Result, ensure};
use aya::{Ebpf, EbpfLoader};
use clap::{Args, ValueEnum};
use probe_user::common::control::CLOCK_GLOBAL;
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../ebpf/bench.bpf.o");

/// What is measured.
#[derive(Args, Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
    #[arg(long)]
    pub(crate) contender: Contender,
    #[arg(long, value_enum)]
    pub(crate) load: Load,
    /// Producing CPUs; 0 for all
    #[arg(long)]
    pub(crate) producers: usize,
    /// Bytes of payload
    #[arg(long)]
    pub(crate) payload: usize,
    /// Records a second, for `--load paced`
    #[arg(long, default_value_t = 0)]
    pub(crate) rate: u32,
    /// Milliseconds that it is to take, more or less
    #[arg(long)]
    pub(crate) millis: u64,
    /// KiB of ring for each CPU
    #[arg(long)]
    pub(crate) ring_kib: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Load {
    /// Producers emit as fast as programs run that emit one record each.
    Cost,
    /// Producers emit as fast as they can, many records in a run of their program.
    Saturation,
    /// One producer emits at a rate.
    Paced,
    /// The rings are filled, then drained.
    Drain,
}

impl Load {
    /// How many records a run of the program emits.
    fn burst(self) -> u32 {
        match self {
            Self::Saturation => BURST,
            Self::Cost | Self::Paced | Self::Drain => 1,
        }
    }
}

/// What came of it. What a load does not measure is absent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// What the loop costs without a contender.
    pub(crate) empty_ns: Option<f64>,
    /// What a record costs its producer, without that.
    pub(crate) producer_ns_net: Option<f64>,
    pub(crate) delivered_per_s: Option<f64>,
    pub(crate) attempted: Option<u64>,
    pub(crate) lost: Option<u64>,
    /// CPUs that the consumer kept busy: 0.5 is half of one.
    pub(crate) consumer_cpu: Option<f64>,
    pub(crate) wakeups_per_s: Option<f64>,
    /// What a record costs to drain, and to walk over.
    pub(crate) drain_ns: Option<f64>,
    pub(crate) walk_ns: Option<f64>,
    pub(crate) resident_kib: Option<u64>,
    pub(crate) latency_ns: Option<Latency>,
}

/// From emission to the handler, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl Latency {
    fn of(mut samples: Vec<u64>) -> Option<Self> {
        samples.sort_unstable();
        let at =
            |percent: usize| samples.get((samples.len() * percent / 100).min(samples.len() - 1));
        let max = *samples.last()?;
        Some(Self { p50: *at(50)?, p99: *at(99)?, max })
    }
}

impl Case {
    pub(crate) fn measure(&self) -> Result<Outcome> {
        let mut bench = Bench::set_up(self)?;
        match self.load {
            Load::Cost | Load::Saturation => bench.saturation(),
            Load::Paced => bench.paced(),
            Load::Drain => bench.drain(),
        }
    }
}

struct Bench {
    case: Case,
    object: Ebpf,
    program: String,
    reader: Box<dyn Reader>,
    producers: Vec<u32>,
    /// Where the consumer runs, if a CPU is left for it.
    consumer: Option<u32>,
}

const EMPTY: &str = "empty";
/// So many runs for one reading of what the empty loop costs.
const EMPTY_RUNS: u32 = 200_000;

/// For so long, more or less, a producer runs its program in one system call.
const STRETCH: Duration = Duration::from_millis(5);

impl Bench {
    fn set_up(case: &Case) -> Result<Self> {
        let online = probe_user::cpus::online()?;
        let bytes_per_cpu = case.ring_kib << 10;
        let ring = u32::try_from((bytes_per_cpu * online.len()).next_power_of_two())?;
        let mut loader = EbpfLoader::new();
        loader.btf(None).map_max_entries("PEER_RING", ring);
        let clock = case.contender.clock() as u32;
        loader.override_global(CLOCK_GLOBAL, &clock, true);
        let mut object = loader.load(OBJECT).context("cannot load the programs")?;
        let program = case.contender.emitter().program(case.load.burst(), case.payload);
        generator::load(&mut object, &program)?;
        generator::load(&mut object, EMPTY)?;
        let shape = Shape { bytes_per_cpu, payload: case.payload };
        let reader = reader::open(case.contender, &mut object, shape)?;
        let count = if case.producers == 0 { online.len() } else { case.producers };
        ensure!(count <= online.len(), "there are {} CPUs", online.len());
        let producers = online[online.len() - count..].to_vec();
        let consumer = online.iter().copied().find(|cpu| !producers.contains(cpu));
        Ok(Self { case: *case, object, program, reader, producers, consumer })
    }

    /// Emits as fast as it goes, while the consumer keeps up as well as it can.
    fn saturation(&mut self) -> Result<Outcome> {
        let stretch = self.calibrate()?;
        let sampled = if self.case.contender.is_timed() { 61 } else { 0 };
        let mut sink = Sink::new(sampled);
        let program = generator::loaded(&self.object, &self.program)?;
        let empty = generator::loaded(&self.object, EMPTY)?;
        let time = Duration::from_millis(self.case.millis);
        let burst = self.case.load.burst();
        let producers = &self.producers;
        let run = consume(&mut *self.reader, &mut sink, self.consumer, || {
            let all_ready = Barrier::new(producers.len());
            let produce = |cpu| {
                let before = generator::pin(cpu).and_then(|()| generator::run(empty, EMPTY_RUNS));
                // The others wait for those that cannot, too.
                all_ready.wait();
                let before = before?;
                let start = Instant::now();
                let (runs, emit) = generator::run_until(program, stretch, start + time)?;
                let after = generator::run(empty, EMPTY_RUNS)?;
                let empty = before.min(after).as_nanos() as f64 / f64::from(EMPTY_RUNS);
                Ok((start, runs, Cost { empty, emit: (emit - empty) / f64::from(burst) }))
            };
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    producers.iter().map(|&cpu| scope.spawn(move || produce(cpu))).collect();
                let ended = threads.into_iter().map(join).collect::<Result<Vec<_>>>()?;
                let start =
                    ended.iter().map(|&(start, ..)| start).min().unwrap_or_else(Instant::now);
                let runs: u64 = ended.iter().map(|&(_, runs, _)| runs).sum();
                let costs = ended.into_iter().map(|(.., cost)| cost).collect();
                Ok(Produced { start, records: runs * u64::from(burst), each: costs })
            })
        })?;
        let attempted = run.attempted;
        let mean = |of: fn(&Cost) -> f64| {
            run.produced.iter().map(of).sum::<f64>() / run.produced.len() as f64
        };
        let costs = Outcome {
            empty_ns: Some(mean(|cost| cost.empty)),
            producer_ns_net: Some(mean(|cost| cost.emit)),
            ..Outcome::default()
        };
        if !self.case.contender.delivers() {
            return Ok(costs);
        }
        Ok(Outcome {
            delivered_per_s: Some(sink.records as f64 / run.until_last.as_secs_f64()),
            attempted: Some(attempted),
            lost: Some(attempted.saturating_sub(sink.records)),
            consumer_cpu: Some(run.cpu.as_secs_f64() / run.until_last.as_secs_f64()),
            wakeups_per_s: Some(run.wakeups as f64 / run.until_last.as_secs_f64()),
            resident_kib: Some(resident_kib()?),
            latency_ns: Latency::of(sink.latencies),
            ..costs
        })
    }

    /// How often a producer runs the program in one [`STRETCH`].
    fn calibrate(&mut self) -> Result<u32> {
        const WARM: u32 = 2_500;
        let burst = self.case.load.burst();
        let mut sink = Sink::new(0);
        let program = generator::loaded(&self.object, &self.program)?;
        let cpu = self.producers[0];
        let run = consume(&mut *self.reader, &mut sink, self.consumer, || {
            let start = Instant::now();
            let time = std::thread::scope(|scope| {
                join(scope.spawn(|| {
                    generator::pin(cpu)?;
                    generator::run(program, WARM)
                }))
            })?;
            Ok(Produced { start, records: u64::from(WARM * burst), each: vec![time / WARM] })
        })?;
        let runs = STRETCH.as_nanos() / run.produced[0].as_nanos().max(1);
        Ok(u32::try_from(runs)?.max(1))
    }

    /// Emits at a rate, on one CPU.
    fn paced(&mut self) -> Result<Outcome> {
        let Case { rate, millis, .. } = self.case;
        let mut sink = Sink::new(1);
        let program = generator::loaded(&self.object, &self.program)?;
        let cpu = self.producers[0];
        let run = consume(&mut *self.reader, &mut sink, self.consumer, || {
            let start = Instant::now();
            let count = std::thread::scope(|scope| {
                join(scope.spawn(|| {
                    generator::pin(cpu)?;
                    // A consumer that is to be idle is so by then.
                    std::thread::sleep(Duration::from_millis(100));
                    generator::pace(program, rate, Duration::from_millis(millis))
                }))
            })?;
            Ok(Produced { start, records: count, each: Vec::<Cost>::new() })
        })?;
        Ok(Outcome {
            attempted: Some(run.attempted),
            lost: Some(run.attempted.saturating_sub(sink.records)),
            delivered_per_s: Some(sink.records as f64 / run.until_last.as_secs_f64()),
            consumer_cpu: Some(run.cpu.as_secs_f64() / run.until_last.as_secs_f64()),
            wakeups_per_s: Some(run.wakeups as f64 / run.until_last.as_secs_f64()),
            latency_ns: Latency::of(sink.latencies),
            ..Outcome::default()
        })
    }

    /// Fills a ring and drains it, all on one CPU, so that it has the bytes in its cache.
    fn drain(&mut self) -> Result<Outcome> {
        let cpu = self.producers[0];
        generator::pin(cpu)?;
        let bytes = self.case.ring_kib << 10;
        let program = generator::loaded(&self.object, &self.program)?;
        // Half a cache of the second level, and never more than half a ring.
        let count = u32::try_from((256 << 10).min(bytes / 2) / (self.case.payload + 40))?;
        let walk = self.reader.event(cpu).map(|event| Ring::map(event, bytes)).transpose()?;
        let (mut drains, mut walks) = (Vec::new(), Vec::new());
        let start = Instant::now();
        let mut round = 0;
        let mut sums = 0;
        while start.elapsed() < Duration::from_millis(self.case.millis) || round < 4 {
            generator::run(program, count)?;
            round += 1;
            // Each second time, somebody else is the first to touch the bytes.
            if let Some(ring) = walk.as_ref().filter(|_| round % 2 == 0) {
                let start = Instant::now();
                let (records, sum) = std::hint::black_box(ring.walk());
                walks.push(start.elapsed().as_nanos() as f64 / records.max(1) as f64);
                sums += sum;
                self.reader.drain(&mut Sink::new(0))?;
                continue;
            }
            let mut sink = Sink::default();
            let start = Instant::now();
            self.reader.drain(&mut sink)?;
            let time = start.elapsed().as_nanos() as f64;
            if sink.records > 0 {
                drains.push(time / sink.records as f64);
            }
            sums += sink.sum;
        }
        std::hint::black_box(sums);
        Ok(Outcome { drain_ns: median(drains), walk_ns: median(walks), ..Outcome::default() })
    }
}

/// What one producer's records cost, in nanoseconds.
struct Cost {
    /// A run of the empty program.
    empty: f64,
    /// A record, without that.
    emit: f64,
}

/// What producers did.
struct Produced<T> {
    /// When they began.
    start: Instant,
    records: u64,
    /// What each of them says.
    each: Vec<T>,
}

/// What happened while a consumer consumed.
struct Run<T> {
    produced: Vec<T>,
    attempted: u64,
    /// From the start of the producers until the last record was delivered.
    until_last: Duration,
    cpu: Duration,
    wakeups: u64,
}

const NOT_YET: u64 = u64::MAX;

/// Consumes on this thread while `produce` runs on another, until everything has come that it says
/// it attempted, or nothing comes any more.
fn consume<T: Send>(
    reader: &mut dyn Reader,
    sink: &mut Sink,
    cpu: Option<u32>,
    produce: impl FnOnce() -> Result<Produced<T>> + Send,
) -> Result<Run<T>> {
    /// Longer than any contender keeps a record.
    const PATIENCE: Duration = Duration::from_millis(300);
    let attempted = AtomicU64::new(NOT_YET);
    let told = &attempted;
    std::thread::scope(|scope| {
        if let Some(cpu) = cpu {
            generator::pin(cpu)?;
        }
        let (cpu_before, wakeups_before) = (generator::cpu_time(), wakeups());
        let producer = scope.spawn(move || {
            let produced = produce();
            told.store(produced.as_ref().map_or(0, |produced| produced.records), Ordering::Release);
            produced
        });
        let mut last = Instant::now();
        let (mut cpu, mut woken) = (cpu_before, wakeups_before);
        loop {
            let before = sink.records;
            reader.step(sink)?;
            if sink.records != before {
                last = Instant::now();
                (cpu, woken) = (generator::cpu_time(), wakeups());
            }
            let attempted = told.load(Ordering::Acquire);
            if attempted != NOT_YET && (sink.records >= attempted || last.elapsed() > PATIENCE) {
                break;
            }
        }
        let Produced { start, records: attempted, each: produced } = join(producer)?;
        Ok(Run {
            produced,
            attempted,
            until_last: last.duration_since(start),
            cpu: cpu - cpu_before,
            wakeups: woken - wakeups_before,
        })
    })
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// How often this thread has waited.
fn wakeups() -> u64 {
    // SAFETY: zeros are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills it in.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_nvcsw as u64
}

/// The most memory that this process had resident.
fn resident_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.context("/proc/self/status has no VmHWM")
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 })
}
