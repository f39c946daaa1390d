//! The pipe with a consumer on each CPU.

use super::evpipe::IntoSink;
use super::threads::{Desks, Threads};
use super::{Reader, Shape};
use crate::payload::Payload;
use crate::sink::Sink;
use anyhow::{Result, ensure};
use aya::Ebpf;
use probe_user::common::RawRecord;
use probe_user::{Batch, Consumer, Loss, Malformed, Options, PerCpuPipe};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The words of the payload that it is measured with.
const WORDS: usize = 8;

pub(super) fn open(
    object: &mut Ebpf,
    shape: Shape,
    priority: Option<u32>,
) -> Result<Box<dyn Reader>> {
    ensure!(shape.payload == size_of::<Payload<WORDS>>(), "there is no program for that payload");
    let mut options = Options::new().bytes_per_cpu(shape.bytes_per_cpu);
    if let Some(priority) = priority {
        options = options.realtime(priority);
    }
    let desks = Arc::new(Desks::new()?);
    let make = {
        let desks = Arc::clone(&desks);
        move |cpu| {
            let (sink, handlers) = (Sink::default(), IntoSink::new::<WORDS>());
            Local { cpu, sink, handlers, desks: Arc::clone(&desks) }
        }
    };
    let mut pipe = PerCpuPipe::from_object(object, &options, make)?;
    ensure!(pipe.fallback().is_none(), "{}", pipe.fallback().unwrap_or_default());
    Ok(Box::new(Threads::start(desks, move |stop| Ok(pipe.run(stop)?))?))
}

/// One CPU's consumer.
struct Local {
    cpu: u32,
    sink: Sink,
    handlers: IntoSink,
    desks: Arc<Desks>,
}

impl Consumer for Local {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.handlers.to(&mut self.sink).record(cpu, record)
    }

    fn batch(&mut self, cpu: u32, batch: &mut Batch<'_>) -> ControlFlow<()> {
        self.sink.time_one_in(self.desks.every());
        self.handlers.to(&mut self.sink).batch(cpu, batch)
    }

    fn lost(&mut self, _: Loss) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn malformed(&mut self, _: Malformed) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        self.desks.put(self.cpu, &mut self.sink);
        ControlFlow::Continue(())
    }
}
