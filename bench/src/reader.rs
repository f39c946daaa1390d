//! The consumers' half of every contender.

use crate::contender::Contender;
use crate::generator;
use crate::sink::Sink;
use anyhow::{Context, Result};
use aya::Ebpf;
use aya::maps::Map;
use std::time::{Duration, Instant};

mod aya_perf;
mod evpipe;
mod evpipe_per_cpu;
#[cfg(feature = "libbpf")]
mod libbpf;
mod threads;

/// Reads what one contender delivers.
pub(crate) trait Reader: Send {
    /// Waits as this contender's users do, for `timeout` at most, and drains.
    fn step(&mut self, timeout: Duration, sink: &mut Sink) -> Result<()>;

    /// Drains without waiting.
    fn drain(&mut self, sink: &mut Sink) -> Result<()>;

    /// What consuming has taken so far.
    fn spent(&self) -> Spent {
        Spent::here()
    }

    /// The ring's event of a CPU, where it can be mapped once more.
    fn event(&self, _cpu: u32) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// What consuming has taken by some moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) at: Instant,
    pub(crate) cpu: Duration,
    pub(crate) wakeups: u64,
}

impl Spent {
    /// What this thread has taken by now.
    pub(crate) fn here() -> Self {
        Self { at: Instant::now(), cpu: generator::cpu_time(), wakeups: generator::waits() }
    }
}

/// What every contender has: bytes of ring for each CPU, and its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) bytes_per_cpu: usize,
    pub(crate) payload: usize,
}

const REALTIME_PRIORITY: u32 = 1;

/// Those that emit wait for a consumer that has a real-time priority, so it needs but an eighth of the ring.
fn realtime_part(shape: Shape) -> Shape {
    Shape { bytes_per_cpu: shape.bytes_per_cpu / 8, ..shape }
}

/// Opens the consumer of a contender over a loaded object.
pub(crate) fn open(
    contender: Contender,
    object: &mut Ebpf,
    shape: Shape,
) -> Result<Box<dyn Reader>> {
    match contender {
        Contender::EvpipeAdaptive
        | Contender::EvpipeAdaptiveBlocktime
        | Contender::EvpipeAdaptiveCoarse
        | Contender::EvpipeFlight
        | Contender::EvpipeWatermark
        | Contender::EvpipeAlone
        | Contender::EvpipeEach => evpipe::open(contender, object, shape),
        Contender::EvpipePercpu => evpipe_per_cpu::open(object, shape, None),
        Contender::EvpipePercpuRealtime => {
            evpipe_per_cpu::open(object, realtime_part(shape), Some(REALTIME_PRIORITY))
        }
        Contender::Aya => aya_perf::open(object, shape),
        Contender::NoOutput => Ok(Box::new(Nobody)),
        #[cfg(feature = "libbpf")]
        _ => libbpf::open(contender, object, shape),
        #[cfg(not(feature = "libbpf"))]
        _ => anyhow::bail!("{contender} is not built in: libbpf is missing"),
    }
}

/// Reads what nobody sends.
struct Nobody;

impl Reader for Nobody {
    fn step(&mut self, timeout: Duration, _: &mut Sink) -> Result<()> {
        std::thread::sleep(timeout);
        Ok(())
    }

    fn drain(&mut self, _: &mut Sink) -> Result<()> {
        Ok(())
    }
}

fn take(object: &mut Ebpf, name: &str) -> Result<Map> {
    object.take_map(name).with_context(|| format!("the object has no map {name}"))
}

const PEER_EVENTS: &str = "PEER_EVENTS";
#[cfg(feature = "libbpf")]
const PEER_RING: &str = "PEER_RING";
pub(crate) const PEER_RINGS: &str = "PEER_RINGS";
