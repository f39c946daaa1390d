//! Consumers on threads of their own, which put down what they get until somebody collects it.

use super::{Reader, Spent};
use crate::sink::Sink;
use anyhow::{Result, bail};
use probe_user::Stop;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Consumers at work; as a reader, it collects what they have got.
pub(super) struct Threads {
    desks: Arc<Desks>,
    stop: Stop,
    running: Option<JoinHandle<Result<()>>>,
}

impl Threads {
    /// Has `run` consume, until it is stopped, and put what comes down at `desks`.
    pub(super) fn start(
        desks: Arc<Desks>,
        run: impl FnOnce(&Stop) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let stop = Stop::new()?;
        let running = std::thread::spawn({
            let stop = stop.clone();
            move || run(&stop)
        });
        Ok(Self { desks, stop, running: Some(running) })
    }
}

impl Reader for Threads {
    fn step(&mut self, timeout: Duration, sink: &mut Sink) -> Result<()> {
        self.desks.time_one_in(sink.every());
        std::thread::sleep(timeout);
        self.desks.collect(sink);
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
        self.desks.spent()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.stop();
        // Whether they have failed is of no interest any more.
        let _ = self.running.take().map(JoinHandle::join);
    }
}

/// Where the consumer of each CPU puts down what it has got.
pub(super) struct Desks {
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

impl Desks {
    /// For all CPUs that there may be.
    pub(super) fn new() -> Result<Self> {
        let cpus = probe_user::cpus::possible()?;
        let desks = cpus.into_iter().map(|cpu| (cpu, Mutex::default())).collect();
        Ok(Self { every: AtomicU64::new(0), desks })
    }

    /// One record in so many is to be timed.
    pub(super) fn every(&self) -> u64 {
        self.every.load(Ordering::Relaxed)
    }

    /// The calling thread puts down what it has got on a CPU.
    pub(super) fn put(&self, cpu: u32, sink: &mut Sink) {
        let mut desk = self.desk(cpu);
        sink.pass_on_to(&mut desk.sink);
        desk.spent = Some(Spent::here());
    }

    fn time_one_in(&self, every: u64) {
        self.every.store(every, Ordering::Relaxed);
    }

    fn collect(&self, sink: &mut Sink) {
        for &cpu in self.desks.keys() {
            self.desk(cpu).sink.pass_on_to(sink);
        }
    }

    fn spent(&self) -> Spent {
        let spent = self.desks.keys().filter_map(|&cpu| self.desk(cpu).spent);
        let add = |one: Spent, other: Spent| Spent {
            at: one.at.max(other.at),
            cpu: one.cpu + other.cpu,
            wakeups: one.wakeups + other.wakeups,
        };
        spent.reduce(add).unwrap_or(Spent { at: Instant::now(), cpu: Duration::ZERO, wakeups: 0 })
    }

    fn desk(&self, cpu: u32) -> MutexGuard<'_, Desk> {
        self.desks[&cpu].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
