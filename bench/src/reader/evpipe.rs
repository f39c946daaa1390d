//! The pipe with three of its wakeup policies, and as a flight recorder.

use super::{Reader, Sizes};
use crate::contender::Contender;
use crate::payload::Payload;
use crate::sink::Sink;
use anyhow::{Result, ensure};
use aya::Ebpf;
use probe_user::{EvHandlers, EvPipe, Options, Wakeup};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;
use zerocopy::IntoBytes;

pub(super) fn open(
    contender: Contender,
    object: &mut Ebpf,
    sizes: Sizes,
) -> Result<Box<dyn Reader>> {
    let mut options = Options::new().bytes_per_cpu(sizes.bytes_per_cpu);
    match contender {
        Contender::EvpipeWatermark => {
            options = options.wakeup(Wakeup::Watermark(sizes.bytes_per_cpu as u32 / 4));
        }
        Contender::EvpipeFlight => options = options.overwrite(),
        Contender::EvpipeEach => options = options.wakeup(Wakeup::EveryRecord),
        _ => {}
    }
    let pipe = EvPipe::from_object(object, &options)?;
    ensure!(pipe.fallback().is_none(), "{}", pipe.fallback().unwrap_or_default());
    let handlers = match sizes.payload {
        16 => IntoSink::new::<2>(),
        64 => IntoSink::new::<8>(),
        256 => IntoSink::new::<32>(),
        1024 => IntoSink::new::<128>(),
        _ => IntoSink::new::<512>(),
    };
    Ok(Box::new(Pipe { pipe, handlers }))
}

struct Pipe {
    pipe: EvPipe,
    handlers: IntoSink,
}

/// Handlers that pass records to a sink.
pub(super) struct IntoSink {
    handlers: EvHandlers<'static>,
    /// The sink that currently receives the records.
    sink: Arc<AtomicPtr<Sink>>,
}

impl IntoSink {
    /// Handlers for records of `WORDS` words.
    pub(super) fn new<const WORDS: usize>() -> Self {
        let sink = Arc::new(AtomicPtr::<Sink>::default());
        let target = Arc::clone(&sink);
        let mut handlers = EvHandlers::new();
        handlers.on::<Payload<WORDS>, _>(move |event| {
            // SAFETY: to() borrows the sink while these handlers are in use, and nothing else
            // accesses it.
            let sink = unsafe { &mut *target.load(Ordering::Relaxed) };
            sink.record(event.time, event.record.as_bytes());
        });
        Self { handlers, sink }
    }

    /// The handlers, passing records to `sink`.
    pub(super) fn to<'s>(&'s mut self, sink: &'s mut Sink) -> &'s mut EvHandlers<'static> {
        self.sink.store(sink, Ordering::Relaxed);
        &mut self.handlers
    }
}

impl Reader for Pipe {
    fn step(&mut self, timeout: Duration, sink: &mut Sink) -> Result<()> {
        let _ = self.pipe.poll(Some(timeout), self.handlers.to(sink))?;
        Ok(())
    }

    fn drain(&mut self, sink: &mut Sink) -> Result<()> {
        let handlers = self.handlers.to(sink);
        while self.pipe.drain(handlers).pending {}
        Ok(())
    }

    fn event(&self, cpu: u32) -> Option<BorrowedFd<'_>> {
        Some(self.pipe.queue(cpu)?.as_fd())
    }
}
