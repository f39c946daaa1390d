//! The ways that led to samples, counted.

use super::event::Addresses;
use super::symbolize::Symbols;
use super::ways::{Way, WayCounts};
use crate::perf::record::{Body, Record, Sample, Thread};
use probe_common::trace::{COMM_LEN, Task};
use std::collections::HashMap;

/// Counts samples by the task and the functions that led there, which records of a
/// [`Sampler`](crate::perf::Sampler) tell: samples with callchains; and names, forks and ends of threads, with
/// [`Flags::COMM`](crate::perf::Flags::COMM) and [`Flags::TASK`](crate::perf::Flags::TASK).
#[derive(Debug)]
pub struct SampledWays {
    counts: WayCounts,
    /// Of threads, by their ids.
    names: HashMap<u32, [u8; COMM_LEN]>,
}

impl SampledWays {
    /// Counts samples, whose addresses `symbols` names.
    pub fn new(symbols: Symbols) -> Self {
        Self { counts: WayCounts::new(symbols), names: HashMap::new() }
    }

    /// Takes a record: a sample is counted, others may tell a name.
    pub fn record(&mut self, record: &Record<'_>) {
        match &record.body {
            Body::Sample(sample) => self.sample(sample),
            Body::Comm { thread, comm, .. } => drop(self.names.insert(thread.tid, padded(comm))),
            Body::Fork(task) => {
                // It has the name of the one that made it.
                let name = self.name(task.parent);
                self.names.insert(task.thread.tid, name);
            }
            _ => {}
        }
    }

    /// How many samples were counted.
    pub fn samples(&self) -> u64 {
        self.counts.hits()
    }

    /// Every way, and how many samples there were of it, the most frequent first.
    pub fn ways(&self) -> Vec<(Way, u64)> {
        self.counts.ways()
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let Some(thread) = sample.thread else { return };
        let task = Task { pid: thread.pid, tid: thread.tid, comm: self.name(thread) };
        let (user, kernel) =
            sample.callchain.map(|chain| (chain.user(), chain.kernel())).unwrap_or_default();
        let [user, kernel] = [user, kernel]
            .map(|words| (!words.is_empty()).then(|| Addresses::new(words.as_bytes())));
        self.counts.count(&task, user, kernel);
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
