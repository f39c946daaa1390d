//! One BPF ring buffer per CPU, with the pipe's packing.

use super::ring_buffer::RingBuffer;
use super::{Entry, ring_per_cpu};
use crate::reader::{PEER_RINGS, Reader, Sizes, take};
use crate::sink::Sink;
use anyhow::{Context, Result};
use aya::Ebpf;
use aya::programs::{ProgramFd, RawTracePoint};
use std::os::fd::AsFd;
use std::time::Duration;

/// The program that sends the open block of its CPU.
const FLUSH: &str = "packed_flush";

pub(super) fn open(object: &mut Ebpf, sweep: Duration, sizes: Sizes) -> Result<Box<dyn Reader>> {
    let program = object.program_mut(FLUSH).with_context(|| format!("no program {FLUSH}"))?;
    let program: &mut RawTracePoint = program.try_into()?;
    program.load()?;
    let flush = program.fd()?.try_clone()?;
    let rings = ring_per_cpu::create(&take(object, PEER_RINGS)?, sizes)?;
    let consumer = ring_per_cpu::consumer(&rings, sweep, Entry::Block)?;
    let cpus = rings.into_iter().map(|(cpu, _)| cpu).collect();
    Ok(Box::new(Packed { rings: consumer, cpus, flush }))
}

/// All rings, read by one consumer, which asks for the open blocks when nothing has arrived.
struct Packed {
    rings: RingBuffer,
    cpus: Vec<u32>,
    flush: ProgramFd,
}

impl Reader for Packed {
    fn step(&mut self, timeout: Duration, sink: &mut Sink) -> Result<()> {
        let before = sink.records;
        self.rings.step(timeout, sink)?;
        if sink.records > before {
            return Ok(());
        }
        for &cpu in &self.cpus {
            probe_sys::bpf::run_on(self.flush.as_fd(), cpu)?;
        }
        self.drain(sink)
    }

    fn drain(&mut self, sink: &mut Sink) -> Result<()> {
        self.rings.drain(sink)
    }
}
