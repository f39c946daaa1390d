//! One measurement of one contender, in its own process.

mod consume;
mod drain;
mod full_speed;
mod paced;
#[cfg(test)]
mod tests;

use crate::contender::Contender;
use crate::generator;
use crate::payload::BURST;
use crate::reader::{self, PEER_RINGS, Reader, Sizes};
use anyhow::{Context, Result, ensure};
use aya::{Ebpf, EbpfLoader};
use clap::{Args, ValueEnum};
use probe_user::common::control::CLOCK_GLOBAL;
use serde::{Deserialize, Serialize};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../ebpf/bench.bpf.o");

/// A program that does nothing: the cost of the loop.
const EMPTY: &str = "empty";

/// What to measure.
#[derive(Args, Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
    #[arg(long)]
    pub(crate) contender: Contender,
    #[arg(long, value_enum)]
    pub(crate) load: Load,
    /// Number of producing CPUs; 0 for all
    #[arg(long)]
    pub(crate) producers: usize,
    /// Payload length in bytes
    #[arg(long)]
    pub(crate) payload: usize,
    /// Records per second, for `--load paced`
    #[arg(long, default_value_t = 0)]
    pub(crate) rate: u32,
    /// Emit at random intervals, for `--load paced`
    #[arg(long)]
    pub(crate) random: bool,
    /// Send the first record this many milliseconds after a full second of `CLOCK_MONOTONIC`, for
    /// `--load paced`
    #[arg(long)]
    pub(crate) phase: Option<u64>,
    /// Approximate duration in milliseconds
    #[arg(long)]
    pub(crate) millis: u64,
    /// Ring size per CPU, in KiB
    #[arg(long)]
    pub(crate) ring_kib: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Load {
    /// Producers emit at full speed, one record per run of their program.
    Cost,
    /// Producers emit at full speed, many records per run of their program.
    Saturation,
    /// One producer emits at a fixed rate.
    Paced,
    /// The rings are filled, then drained.
    Drain,
}

impl Load {
    /// Number of records that a run of the program emits.
    fn burst(self) -> u32 {
        match self {
            Self::Saturation => BURST,
            Self::Cost | Self::Paced | Self::Drain => 1,
        }
    }
}

impl Case {
    pub(crate) fn measure(&self) -> Result<Outcome> {
        let mut bench = Bench::set_up(self)?;
        match self.load {
            Load::Cost | Load::Saturation => bench.full_speed(),
            Load::Paced => bench.paced(),
            Load::Drain => bench.drain(),
        }
    }
}

/// A contender that is loaded and open.
struct Bench {
    case: Case,
    object: Ebpf,
    program: String,
    reader: Box<dyn Reader>,
    producers: Vec<u32>,
    /// The CPU for the consumer, if the producers leave one.
    consumer: Option<u32>,
}

impl Bench {
    fn set_up(case: &Case) -> Result<Self> {
        let online = probe_user::cpus::online()?;
        let bytes_per_cpu = case.ring_kib << 10;
        let ring = u32::try_from((bytes_per_cpu * online.len()).next_power_of_two())?;
        let mut loader = EbpfLoader::new();
        let last = probe_user::cpus::possible()?.into_iter().max().context("no possible CPU")?;
        loader.btf(None).map_max_entries("PEER_RING", ring).map_max_entries(PEER_RINGS, last + 1);
        let profile = case.contender.profile();
        let clock = profile.clock as u32;
        loader.override_global(CLOCK_GLOBAL, &clock, true);
        let mut object = loader.load(OBJECT).context("cannot load the programs")?;
        let program = profile.emitter.program(case.load.burst(), case.payload);
        generator::load(&mut object, &program)?;
        generator::load(&mut object, EMPTY)?;
        let sizes = Sizes { bytes_per_cpu, payload: case.payload };
        let reader = reader::open(case.contender, &mut object, sizes)?;
        let count = if case.producers == 0 { online.len() } else { case.producers };
        ensure!(count <= online.len(), "only {} CPUs are online", online.len());
        let producers = online[online.len() - count..].to_vec();
        let consumer = online.iter().copied().find(|cpu| !producers.contains(cpu));
        Ok(Self { case: *case, object, program, reader, producers, consumer })
    }
}

/// The result of one measurement. Fields that its load does not measure are absent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Nanoseconds per run of the empty loop.
    pub(crate) empty_ns: Option<f64>,
    /// Producer cost per record in nanoseconds, net of the empty loop.
    pub(crate) producer_ns_net: Option<f64>,
    pub(crate) delivered_per_s: Option<f64>,
    pub(crate) attempted: Option<u64>,
    pub(crate) lost: Option<u64>,
    /// Consumer CPU utilization: 0.5 is half of one CPU.
    pub(crate) consumer_cpu: Option<f64>,
    pub(crate) wakeups_per_s: Option<f64>,
    /// Nanoseconds per record for a drain and for a bare walk.
    pub(crate) drain_ns: Option<f64>,
    pub(crate) walk_ns: Option<f64>,
    pub(crate) resident_kib: Option<u64>,
    pub(crate) latency_ns: Option<Latency>,
}

/// Latency from emission to handler, in nanoseconds.
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

/// The median; for an even count, the mean of the middle two.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 })
}
