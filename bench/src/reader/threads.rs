//! Consumers on background threads, which deposit records until the reader collects them.

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

/// Running consumers. As a reader, it collects what they have received.
pub(super) struct Threads {
    inboxes: Arc<Inboxes>,
    stop: Stop,
    running: Option<JoinHandle<Result<()>>>,
}

impl Threads {
    /// Starts `run`, which consumes until it is stopped and deposits records at `inboxes`.
    pub(super) fn start(
        inboxes: Arc<Inboxes>,
        run: impl FnOnce(&Stop) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let stop = Stop::new()?;
        let running = std::thread::spawn({
            let stop = stop.clone();
            move || run(&stop)
        });
        Ok(Self { inboxes, stop, running: Some(running) })
    }
}

impl Reader for Threads {
    fn step(&mut self, timeout: Duration, sink: &mut Sink) -> Result<()> {
        self.inboxes.time_one_in(sink.every());
        std::thread::sleep(timeout);
        self.inboxes.collect(sink);
        if let Some(running) = self.running.take_if(|running| running.is_finished()) {
            running.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            bail!("the consumers ended early");
        }
        Ok(())
    }

    fn drain(&mut self, _: &mut Sink) -> Result<()> {
        bail!("its consumers drain on their own")
    }

    fn spent(&self) -> Spent {
        self.inboxes.spent()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.stop();
        // Dropping discards their errors.
        let _ = self.running.take().map(JoinHandle::join);
    }
}

/// Where the consumer of each CPU deposits what it has received.
pub(super) struct Inboxes {
    /// One record in `every` is timed.
    every: AtomicU64,
    inboxes: BTreeMap<u32, Mutex<Inbox>>,
}

/// What a consumer has received since the last collection, and its total cost.
#[derive(Default)]
struct Inbox {
    sink: Sink,
    spent: Option<Spent>,
}

impl Inboxes {
    /// Creates inboxes for all possible CPUs.
    pub(super) fn new() -> Result<Self> {
        let cpus = probe_user::cpus::possible()?;
        let inboxes = cpus.into_iter().map(|cpu| (cpu, Mutex::default())).collect();
        Ok(Self { every: AtomicU64::new(0), inboxes })
    }

    /// Times one record in `every` from now on.
    pub(super) fn every(&self) -> u64 {
        self.every.load(Ordering::Relaxed)
    }

    /// Deposits what the calling thread has received on `cpu`.
    pub(super) fn put(&self, cpu: u32, sink: &mut Sink) {
        let mut inbox = self.inbox(cpu);
        sink.pass_on_to(&mut inbox.sink);
        inbox.spent = Some(Spent::here());
    }

    fn time_one_in(&self, every: u64) {
        self.every.store(every, Ordering::Relaxed);
    }

    fn collect(&self, sink: &mut Sink) {
        for &cpu in self.inboxes.keys() {
            self.inbox(cpu).sink.pass_on_to(sink);
        }
    }

    fn spent(&self) -> Spent {
        let spent = self.inboxes.keys().filter_map(|&cpu| self.inbox(cpu).spent);
        let add = |one: Spent, other: Spent| Spent {
            at: one.at.max(other.at),
            cpu: one.cpu + other.cpu,
            wakeups: one.wakeups + other.wakeups,
        };
        spent.reduce(add).unwrap_or(Spent { at: Instant::now(), cpu: Duration::ZERO, wakeups: 0 })
    }

    fn inbox(&self, cpu: u32) -> MutexGuard<'_, Inbox> {
        self.inboxes[&cpu].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
