//! The pipe, in three of its policies, and as a flight recorder.

use super::{Reader, Shape};
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
    shape: Shape,
) -> Result<Box<dyn Reader>> {
    let mut options = Options::new().bytes_per_cpu(shape.bytes_per_cpu);
    match contender {
        Contender::EvpipeWatermark | Contender::EvpipeAlone => {
            options = options.wakeup(Wakeup::Watermark(shape.bytes_per_cpu as u32 / 4));
        }
        Contender::EvpipeFlight => options = options.overwrite(),
        Contender::EvpipeEach => options = options.wakeup(Wakeup::EveryRecord),
        _ => {}
    }
    let pipe = EvPipe::from_object(object, &options)?;
    ensure!(pipe.fallback().is_none(), "{}", pipe.fallback().unwrap_or_default());
    Ok(match shape.payload {
        16 => Box::new(Of::<2>::new(pipe)),
        64 => Box::new(Of::<8>::new(pipe)),
        256 => Box::new(Of::<32>::new(pipe)),
        1024 => Box::new(Of::<128>::new(pipe)),
        _ => Box::new(Of::<512>::new(pipe)),
    })
}

/// A pipe whose records have so many words.
struct Of<const WORDS: usize> {
    pipe: EvPipe,
    handlers: IntoSink,
}

/// Handlers that give records to a sink.
pub(super) struct IntoSink {
    handlers: EvHandlers<'static>,
    /// Whose turn it is to take records.
    sink: Arc<AtomicPtr<Sink>>,
}

impl IntoSink {
    /// Of records that have so many words.
    pub(super) fn new<const WORDS: usize>() -> Self {
        let sink = Arc::new(AtomicPtr::<Sink>::default());
        let target = Arc::clone(&sink);
        let mut handlers = EvHandlers::new();
        handlers.on::<Payload<WORDS>, _>(move |event| {
            // SAFETY: to() has borrowed the sink for as long as these are in use, and nobody else does.
            let sink = unsafe { &mut *target.load(Ordering::Relaxed) };
            sink.record(event.time, event.record.as_bytes());
        });
        Self { handlers, sink }
    }

    /// The handlers, which give records to `sink`.
    pub(super) fn to<'s>(&'s mut self, sink: &'s mut Sink) -> &'s mut EvHandlers<'static> {
        self.sink.store(sink, Ordering::Relaxed);
        &mut self.handlers
    }
}

impl<const WORDS: usize> Of<WORDS> {
    fn new(pipe: EvPipe) -> Self {
        Self { pipe, handlers: IntoSink::new::<WORDS>() }
    }
}

impl<const WORDS: usize> Reader for Of<WORDS> {
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
