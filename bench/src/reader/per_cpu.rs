//! The pipe with a consumer on each CPU.

use super::evpipe::IntoSink;
use super::{Reader, Shape, Spent};
use crate::payload::Payload;
use crate::sink::Sink;
use anyhow::{Result, bail, ensure};
use aya::Ebpf;
use probe_user::common::RawRecord;
use probe_user::{Batch, Consumer, Loss, Malformed, Options, PerCpuPipe, Stop};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    let shared = Arc::new(Shared {
        every: AtomicU64::new(0),
        desks: probe_user::cpus::possible()?
            .into_iter()
            .map(|cpu| (cpu, Mutex::default()))
            .collect(),
    });
    let make = {
        let shared = Arc::clone(&shared);
        move |cpu| {
            let (sink, handlers) = (Sink::default(), IntoSink::new::<WORDS>());
            Local { cpu, sink, handlers, shared: Arc::clone(&shared) }
        }
    };
    let mut pipe = PerCpuPipe::from_object(object, &options, make)?;
    ensure!(pipe.fallback().is_none(), "{}", pipe.fallback().unwrap_or_default());
    let stop = Stop::new()?;
    let running = std::thread::spawn({
        let stop = stop.clone();
        move || Ok(pipe.run(&stop)?)
    });
    Ok(Box::new(PerCpu { shared, stop, running: Some(running) }))
}

/// Its consumers are at work; this collects what they have got.
struct PerCpu {
    shared: Arc<Shared>,
    stop: Stop,
    running: Option<JoinHandle<Result<()>>>,
}

struct Shared {
    /// One record in so many is timed.
    every: AtomicU64,
    desks: BTreeMap<u32, Mutex<Desk>>,
}

/// What a consumer has got since somebody looked, and what it has spent in all.
#[derive(Default)]
struct Desk {
    sink: Sink,
    spent: Option<Spent>,
}

/// One CPU's consumer.
struct Local {
    cpu: u32,
    sink: Sink,
    handlers: IntoSink,
    shared: Arc<Shared>,
}

impl Shared {
    fn desk(&self, cpu: u32) -> MutexGuard<'_, Desk> {
        self.desks[&cpu].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Consumer for Local {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.handlers.to(&mut self.sink).record(cpu, record)
    }

    fn batch(&mut self, cpu: u32, batch: &mut Batch<'_>) -> ControlFlow<()> {
        self.sink.time_one_in(self.shared.every.load(Ordering::Relaxed));
        self.handlers.to(&mut self.sink).batch(cpu, batch)
    }

    fn lost(&mut self, _: Loss) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn malformed(&mut self, _: Malformed) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        let mut desk = self.shared.desk(self.cpu);
        self.sink.pass_on_to(&mut desk.sink);
        desk.spent = Some(Spent::here());
        ControlFlow::Continue(())
    }
}

impl Reader for PerCpu {
    fn step(&mut self, timeout: Duration, sink: &mut Sink) -> Result<()> {
        self.shared.every.store(sink.every(), Ordering::Relaxed);
        std::thread::sleep(timeout);
        for &cpu in self.shared.desks.keys() {
            self.shared.desk(cpu).sink.pass_on_to(sink);
        }
        if let Some(running) = self.running.take_if(|running| running.is_finished()) {
            running.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            bail!("the consumers have ended");
        }
        Ok(())
    }

    fn drain(&mut self, _: &mut Sink) -> Result<()> {
        bail!("its consumers drain when they like")
    }

    fn spent(&self) -> Spent {
        let spent = self.shared.desks.keys().filter_map(|&cpu| self.shared.desk(cpu).spent);
        let add = |one: Spent, other: Spent| Spent {
            at: one.at.max(other.at),
            cpu: one.cpu + other.cpu,
            wakeups: one.wakeups + other.wakeups,
        };
        spent.reduce(add).unwrap_or(Spent { at: Instant::now(), cpu: Duration::ZERO, wakeups: 0 })
    }
}

impl Drop for PerCpu {
    fn drop(&mut self) {
        self.stop.stop();
        // Whether it has failed is of no interest any more.
        let _ = self.running.take().map(JoinHandle::join);
    }
}
