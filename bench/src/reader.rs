//! The consuming half of every contender.

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

/// Reads the records of one contender.
pub(crate) trait Reader: Send {
    /// Waits the way this contender's users do, for `timeout` at most, then drains.
    fn step(&mut self, timeout: Duration, sink: &mut Sink) -> Result<()>;

    /// Drains without waiting.
    fn drain(&mut self, sink: &mut Sink) -> Result<()>;

    /// CPU time and wakeups spent on consuming so far.
    fn spent(&self) -> Spent {
        Spent::here()
    }

    /// The event behind a CPU's ring, if the ring can be mapped a second time.
    fn event(&self, _cpu: u32) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// What consuming has cost up to a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) at: Instant,
    pub(crate) cpu: Duration,
    pub(crate) wakeups: u64,
}

impl Spent {
    /// The cost of the calling thread until now.
    pub(crate) fn here() -> Self {
        Self { at: Instant::now(), cpu: generator::cpu_time(), wakeups: generator::waits() }
    }
}

/// What all contenders share: the bytes of ring per CPU and the record's size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) bytes_per_cpu: usize,
    pub(crate) payload: usize,
}

const REALTIME_PRIORITY: u32 = 1;

/// A real-time consumer preempts the producers, so an eighth of the ring is enough.
fn realtime_part(sizes: Sizes) -> Sizes {
    Sizes { bytes_per_cpu: sizes.bytes_per_cpu / 8, ..sizes }
}

/// Opens the consumer of a contender on a loaded object.
pub(crate) fn open(
    contender: Contender,
    object: &mut Ebpf,
    sizes: Sizes,
) -> Result<Box<dyn Reader>> {
    match contender {
        Contender::EvpipeAdaptive
        | Contender::EvpipeAdaptiveBlocktime
        | Contender::EvpipeAdaptiveCoarse
        | Contender::EvpipeFlight
        | Contender::EvpipeWatermark
        | Contender::EvpipeEach => evpipe::open(contender, object, sizes),
        Contender::EvpipePercpu => evpipe_per_cpu::open(object, sizes, None),
        Contender::EvpipePercpuRealtime => {
            evpipe_per_cpu::open(object, realtime_part(sizes), Some(REALTIME_PRIORITY))
        }
        Contender::Aya => aya_perf::open(object, sizes),
        Contender::NoOutput => Ok(Box::new(Unread)),
        #[cfg(feature = "libbpf")]
        _ => libbpf::open(contender, object, sizes),
        #[cfg(not(feature = "libbpf"))]
        _ => anyhow::bail!("{contender} needs libbpf; rebuild with the `libbpf` feature"),
    }
}

/// The reader of a contender that outputs nothing.
struct Unread;

impl Reader for Unread {
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
