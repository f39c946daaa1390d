//! aya's `PerfEventArray`: one buffer per CPU, polled, then drained with `for_each`.

use super::{PEER_EVENTS, Reader, Sizes, take};
use crate::sink::Sink;
use anyhow::Result;
use aya::Ebpf;
use aya::maps::perf::PerfEvent;
use aya::maps::{MapData, PerfEventArray, perf::PerfEventArrayBuffer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

struct AyaPerf {
    buffers: Vec<PerfEventArrayBuffer<MapData>>,
    payload: usize,
}

pub(super) fn open(object: &mut Ebpf, sizes: Sizes) -> Result<Box<dyn Reader>> {
    let mut array = PerfEventArray::try_from(take(object, PEER_EVENTS)?)?;
    let pages = sizes.bytes_per_cpu / rustix::param::page_size();
    let cpus = probe_user::cpus::online()?;
    let buffers = cpus.into_iter().map(|cpu| array.open(cpu, Some(pages)));
    let buffers = buffers.collect::<Result<_, _>>()?;
    Ok(Box::new(AyaPerf { buffers, payload: sizes.payload }))
}

fn consume(buffer: &mut PerfEventArrayBuffer<MapData>, payload: usize, sink: &mut Sink) {
    buffer.for_each(|event| match event {
        PerfEvent::Sample { head, tail: [] } => sink.framed(head, payload),
        PerfEvent::Sample { head, tail } => sink.framed(&[head, tail].concat(), payload),
        PerfEvent::Lost { count } => sink.lost += count,
    });
}

impl Reader for AyaPerf {
    fn step(&mut self, timeout: Duration, sink: &mut Sink) -> Result<()> {
        let mut fds: Vec<_> =
            self.buffers.iter().map(|buffer| PollFd::new(buffer, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(timeout)?;
        poll(&mut fds, Some(&timeout))?;
        let readable: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for (buffer, _) in self.buffers.iter_mut().zip(readable).filter(|(_, readable)| *readable) {
            consume(buffer, self.payload, sink);
        }
        Ok(())
    }

    fn drain(&mut self, sink: &mut Sink) -> Result<()> {
        for buffer in &mut self.buffers {
            consume(buffer, self.payload, sink);
        }
        Ok(())
    }
}
