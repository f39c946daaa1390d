//! The ways that led to samples, counted.

use super::event::Addresses;
use super::images::Images;
use super::symbolize::{Frame, Symbols};
use super::ways::{Way, WayCounts};
use crate::perf::record::{Body, Record, Sample, Thread};
use probe_common::trace::{COMM_LEN, Task};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// So many samples wait at most for records of other rings.
const WAITING: usize = 1 << 14;

/// Counts samples by the task and the functions that called each other to get there, which records of a
/// [`Sampler`](crate::perf::Sampler) tell: samples with callchains; and names, forks and ends of threads, with
/// [`Flags::COMM`](crate::perf::Flags::COMM) and [`Flags::TASK`](crate::perf::Flags::TASK).
///
/// With [`Flags::MMAP`](crate::perf::Flags::MMAP), [`MMAP2`](crate::perf::Flags::MMAP2) and
/// [`COMM_EXEC`](crate::perf::Flags::COMM_EXEC), functions of processes have names that have ended before
/// anybody could look into them, if what they executed was mapped while they were sampled, and is there still.
#[derive(Debug)]
pub struct SampledWays {
    counts: WayCounts,
    /// Of threads, by their ids.
    names: HashMap<u32, [u8; COMM_LEN]>,
    images: Images,
    /// Samples of processes that could not be looked into. What these have mapped may be told by another ring.
    waiting: VecDeque<Waiting>,
}

/// A sample with addresses that have no names yet.
#[derive(Debug)]
struct Waiting {
    task: Task,
    time: u64,
    user: Box<[u8]>,
    kernel: Option<Box<[u8]>>,
    /// The names of the process's functions, of each address.
    names: Vec<Arc<[Frame]>>,
}

impl SampledWays {
    /// Counts samples, whose addresses `symbols` names.
    pub fn new(symbols: Symbols) -> Self {
        Self {
            counts: WayCounts::new(symbols),
            names: HashMap::new(),
            images: Images::default(),
            waiting: VecDeque::new(),
        }
    }

    /// Takes a record: a sample is counted, others may tell a name.
    pub fn record(&mut self, record: &Record<'_>) {
        let time = record.ids.time.unwrap_or(0);
        match &record.body {
            Body::Sample(sample) => self.sample(sample),
            Body::Comm { thread, comm, is_exec } => {
                self.names.insert(thread.tid, padded(comm));
                if *is_exec {
                    self.images.exec(thread.pid, time);
                }
            }
            Body::Mmap2 { mapping, file, .. } => self.images.map(mapping, file, time),
            Body::Fork(task) => {
                // It has the name of the one that made it.
                let name = self.name(task.parent);
                self.names.insert(task.thread.tid, name);
                if task.thread.pid != task.parent.pid {
                    self.images.fork(task.thread.pid, task.parent.pid, time);
                }
            }
            Body::Exit(task) if task.thread.pid == task.thread.tid => {
                self.images.end(task.thread.pid, time);
            }
            _ => {}
        }
    }

    /// How many samples were counted.
    pub fn samples(&self) -> u64 {
        self.counts.hits() + self.waiting.len() as u64
    }

    /// Every way, and how many samples there were of it, the most frequent first.
    pub fn ways(&mut self) -> Vec<(Way, u64)> {
        self.settle(self.waiting.len());
        self.counts.ways()
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let Some(thread) = sample.thread else { return };
        let task = Task { pid: thread.pid, tid: thread.tid, comm: self.name(thread) };
        let (user, kernel) =
            sample.callchain.map(|chain| (chain.user(), chain.kernel())).unwrap_or_default();
        let stacks = [user, kernel].map(|words| (!words.is_empty()).then(|| words.as_bytes()));
        let [user, kernel] = stacks.map(|bytes| bytes.map(Addresses::new));
        if self.counts.count_known(&task, user, kernel) {
            return;
        }
        // A process that exists is looked into at once.
        let names = self.counts.names(&task, user);
        if names.iter().all(|frames| !frames.is_empty()) {
            return self.counts.count_named(&task, user, &names, kernel);
        }
        let [user, kernel] = stacks.map(|bytes| bytes.map(Box::from));
        let (time, user) = (sample.time.unwrap_or(0), user.unwrap_or_default());
        self.waiting.push_back(Waiting { task, time, user, kernel, names });
        if self.waiting.len() > WAITING {
            self.settle(WAITING / 2);
        }
    }

    /// Counts samples that have waited, the oldest first.
    fn settle(&mut self, samples: usize) {
        let Self { counts, images, waiting, .. } = self;
        for Waiting { task, time, user, kernel, mut names } in waiting.drain(..samples) {
            let user = Addresses::new(&user);
            for (n, (address, frames)) in user.iter().zip(&mut names).enumerate() {
                if frames.is_empty()
                    && let Some((file, offset)) = images.find(task.pid, time, address)
                {
                    *frames = counts.symbols().of_file(file, offset, n > 0);
                }
            }
            let kernel = kernel.as_deref().map(Addresses::new);
            counts.count_named(&task, Some(user), &names, kernel);
        }
    }

    fn name(&mut self, thread: Thread) -> [u8; COMM_LEN] {
        *self.names.entry(thread.tid).or_insert_with(|| padded(&name(thread)))
    }
}

/// The name of a thread that nobody has told of.
fn name(Thread { pid, tid }: Thread) -> Vec<u8> {
    if tid == 0 {
        return b"swapper".to_vec();
    }
    let name = std::fs::read(format!("/proc/{pid}/task/{tid}/comm"));
    name.map_or_else(|_| format!("{tid}").into_bytes(), |name| name.trim_ascii_end().to_vec())
}

fn padded(name: &[u8]) -> [u8; COMM_LEN] {
    let mut comm = [0; COMM_LEN];
    // One zero at least ends it.
    for (to, from) in comm[..COMM_LEN - 1].iter_mut().zip(name) {
        *to = *from;
    }
    comm
}
