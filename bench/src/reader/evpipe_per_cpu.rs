//! The pipe with one consumer per CPU.

use super::evpipe::IntoSink;
use super::threads::{Inboxes, Threads};
use super::{Reader, Sizes};
use crate::payload::Payload;
use crate::sink::Sink;
use anyhow::{Result, ensure};
use aya::Ebpf;
use probe_user::common::RawRecord;
use probe_user::{Batch, Consumer, Options, PerCpuPipe};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The only payload length with a program for it, in words.
const WORDS: usize = 8;

pub(super) fn open(
    object: &mut Ebpf,
    sizes: Sizes,
    priority: Option<u32>,
) -> Result<Box<dyn Reader>> {
    ensure!(sizes.payload == size_of::<Payload<WORDS>>(), "no program emits this payload length");
    let mut options = Options::new().bytes_per_cpu(sizes.bytes_per_cpu);
    if let Some(priority) = priority {
        options = options.realtime(priority);
    }
    let inboxes = Arc::new(Inboxes::new()?);
    let make = {
        let inboxes = Arc::clone(&inboxes);
        move |cpu| {
            let (sink, handlers) = (Sink::default(), IntoSink::new::<WORDS>());
            Local { cpu, sink, handlers, inboxes: Arc::clone(&inboxes) }
        }
    };
    let mut pipe = PerCpuPipe::from_object(object, &options, make)?;
    ensure!(pipe.fallback().is_none(), "{}", pipe.fallback().unwrap_or_default());
    Ok(Box::new(Threads::start(inboxes, move |stop| Ok(pipe.run(stop)?))?))
}

/// The consumer of one CPU.
struct Local {
    cpu: u32,
    sink: Sink,
    handlers: IntoSink,
    inboxes: Arc<Inboxes>,
}

impl Consumer for Local {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.handlers.to(&mut self.sink).record(cpu, record)
    }

    fn batch(&mut self, cpu: u32, batch: &mut Batch<'_>) -> ControlFlow<()> {
        self.sink.time_one_in(self.inboxes.every());
        self.handlers.to(&mut self.sink).batch(cpu, batch)
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        self.inboxes.put(self.cpu, &mut self.sink);
        ControlFlow::Continue(())
    }
}
