//! One measurement of one contender, in a process of its own.

mod consume;
mod drain;
mod full_speed;
mod outcome;
mod paced;
#[cfg(test)]
mod tests;

pub(crate) use outcome::{Latency, Outcome, median};

use crate::contender::Contender;
use crate::generator;
use crate::payload::BURST;
use crate::reader::{self, PEER_RINGS, Reader, Shape};
use anyhow::{Context, Result, ensure};
use aya::{Ebpf, EbpfLoader};
use clap::{Args, ValueEnum};
use probe_user::common::control::CLOCK_GLOBAL;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../ebpf/bench.bpf.o");

/// A program that does nothing.
const EMPTY: &str = "empty";

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
    /// The first record comes so many milliseconds after a full second of `CLOCK_MONOTONIC`, for `--load paced`
    #[arg(long)]
    pub(crate) phase: Option<u64>,
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

/// A contender that is ready.
struct Bench {
    case: Case,
    object: Ebpf,
    program: String,
    reader: Box<dyn Reader>,
    producers: Vec<u32>,
    /// Where the consumer runs, if a CPU is left for it.
    consumer: Option<u32>,
}

impl Bench {
    fn set_up(case: &Case) -> Result<Self> {
        let online = probe_user::cpus::online()?;
        let bytes_per_cpu = case.ring_kib << 10;
        let ring = u32::try_from((bytes_per_cpu * online.len()).next_power_of_two())?;
        let mut loader = EbpfLoader::new();
        let last = probe_user::cpus::possible()?.into_iter().max().context("there is no CPU")?;
        loader.btf(None).map_max_entries("PEER_RING", ring).map_max_entries(PEER_RINGS, last + 1);
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
}
