//! Counts the stacks of samples.

use crate::resolve::event::Addresses;
use crate::symbolize::images::Images;
use crate::symbolize::stack::{Stack, StackTable, TaskStacks};
use crate::symbolize::{Frame, Symbols};
use probe_perf::record::{Body, Record, Sample, Thread};
use probe_tracer_common::trace::{COMM_LEN, Task};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The number of samples that may wait for records from other rings.
const WAITING: usize = 1 << 14;

/// Counts the samples of a [`Sampler`](probe_perf::Sampler) by task and stack. It needs samples with callchains
/// and, with [`Flags::COMM`](probe_perf::Flags::COMM) and [`Flags::TASK`](probe_perf::Flags::TASK), the names,
/// forks and exits of threads.
///
/// With [`Flags::MMAP`](probe_perf::Flags::MMAP), [`MMAP2`](probe_perf::Flags::MMAP2) and
/// [`COMM_EXEC`](probe_perf::Flags::COMM_EXEC), functions also have names in processes that ended before they
/// could be inspected, provided that their files were mapped during the sampling and still exist.
#[derive(Debug)]
pub struct SampledStacks {
    counts: StackTable,
    /// Names of threads, by thread id.
    names: HashMap<u32, [u8; COMM_LEN]>,
    images: Images,
    /// Samples of processes that could not be inspected. Their mappings may still arrive through another ring.
    waiting: VecDeque<Waiting>,
    /// A process whose samples are left out, and their number.
    without: Option<u32>,
    left_out: u64,
}

/// A sample with addresses that have no names yet.
#[derive(Debug)]
struct Waiting {
    task: Task,
    time: u64,
    user: Box<[u8]>,
    kernel: Box<[u8]>,
    /// The functions at each address of the user stack.
    names: Vec<Arc<[Frame]>>,
}

impl SampledStacks {
    /// Counts samples; `symbols` resolves their addresses.
    pub fn new(symbols: Symbols) -> Self {
        Self {
            counts: StackTable::new(symbols),
            names: HashMap::new(),
            images: Images::default(),
            waiting: VecDeque::new(),
            without: None,
            left_out: 0,
        }
    }

    /// Leaves out the samples of a process, like those of the one that samples.
    #[must_use]
    pub fn without_process(mut self, pid: u32) -> Self {
        self.without = Some(pid);
        self
    }

    /// The number of samples left out.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Counts a sample, or takes from another record what it says about threads and mappings.
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
                // A new thread has the name of its parent.
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

    /// The number of samples counted.
    pub fn samples(&self) -> u64 {
        self.counts.hits() + self.waiting.len() as u64
    }

    /// Every stack with its number of samples, the most frequent first.
    pub fn stacks(&mut self) -> Vec<(Stack, u64)> {
        self.settle(self.waiting.len());
        self.counts.stacks()
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let Some(thread) = sample.thread else { return };
        if self.without == Some(thread.pid) {
            self.left_out += 1;
            return;
        }
        let task = Task { pid: thread.pid, tid: thread.tid, comm: self.name(thread) };
        let (user, kernel) =
            sample.callchain.map(|chain| (chain.user(), chain.kernel())).unwrap_or_default();
        let (user, kernel) = (user.as_bytes(), kernel.as_bytes());
        let hit = task_stacks(&task, user, kernel);
        if self.counts.count_known(hit) {
            return;
        }
        // Inspect the process at once, while it exists.
        let names = self.counts.names(hit);
        if names.iter().all(|frames| !frames.is_empty()) {
            return self.counts.count_named(hit, &names);
        }
        let (time, user, kernel) = (sample.time.unwrap_or(0), user.into(), kernel.into());
        self.waiting.push_back(Waiting { task, time, user, kernel, names });
        if self.waiting.len() > WAITING {
            self.settle(WAITING / 2);
        }
    }

    /// Counts the oldest waiting samples.
    fn settle(&mut self, samples: usize) {
        let Self { counts, images, waiting, .. } = self;
        for Waiting { task, time, user, kernel, mut names } in waiting.drain(..samples) {
            let hit = task_stacks(&task, &user, &kernel);
            for (n, (address, frames)) in hit.user.iter().zip(&mut names).enumerate() {
                if frames.is_empty()
                    && let Some((file, offset)) = images.find(task.pid, time, address)
                {
                    *frames = counts.symbols().of_file(file, offset, n > 0);
                }
            }
            counts.count_named(hit, &names);
        }
    }

    fn name(&mut self, thread: Thread) -> [u8; COMM_LEN] {
        *self.names.entry(thread.tid).or_insert_with(|| padded(&name(thread)))
    }
}

/// The user and kernel stacks are words of 8 bytes.
fn task_stacks<'s>(task: &'s Task, user: &'s [u8], kernel: &'s [u8]) -> TaskStacks<'s> {
    TaskStacks { task, user: Addresses::new(user), kernel: Addresses::new(kernel) }
}

/// A name for a thread whose name is unknown.
fn name(Thread { pid, tid }: Thread) -> Vec<u8> {
    if tid == 0 {
        return b"swapper".to_vec();
    }
    let name = std::fs::read(format!("/proc/{pid}/task/{tid}/comm"));
    name.map_or_else(|_| format!("{tid}").into_bytes(), |name| name.trim_ascii_end().to_vec())
}

fn padded(name: &[u8]) -> [u8; COMM_LEN] {
    let mut comm = [0; COMM_LEN];
    // The last byte remains zero.
    let len = name.len().min(COMM_LEN - 1);
    comm[..len].copy_from_slice(&name[..len]);
    comm
}
