//! Counts the stacks of samples.

use crate::resolve::event::Addresses;
use crate::symbolize::Symbols;
use crate::symbolize::stack::{Stack, StackTable, TaskStacks};
use probe_perf::record::{Body, Record, Sample, Thread};
use probe_tracer_common::trace::{COMM_LEN, Task};
use std::collections::{HashMap, VecDeque};

/// The id of a thread that has exited but is still running in the kernel.
const EXITED: u32 = u32::MAX;

/// The number of ended threads whose names are kept: a thread may still be sampled after its end was reported.
const ENDED: usize = 4096;

/// The number of threads whose names are known at a time. The ends of some may have been lost.
const THREADS: usize = 1 << 16;

/// Counts the samples of a [`Sampler`](probe_perf::Sampler) by task and stack. It needs samples with callchains
/// and, with [`Flags::COMM`](probe_perf::Flags::COMM) and [`Flags::TASK`](probe_perf::Flags::TASK), the names,
/// forks and exits of threads. The times must be of
/// `CLOCK_MONOTONIC`, which is the default.
#[derive(Debug)]
pub struct SampledStacks {
    counts: StackTable,
    /// Names of threads, by thread id.
    names: HashMap<u32, [u8; COMM_LEN]>,
    /// The last threads that have ended.
    ended: VecDeque<u32>,
    /// A process whose samples are left out, and their number.
    without: Option<u32>,
    left_out: u64,
}

impl SampledStacks {
    /// Counts samples; `symbols` resolves their addresses.
    pub fn new(symbols: Symbols) -> Self {
        let counts = StackTable::without(symbols, |_| 0);
        let (names, ended) = (HashMap::new(), VecDeque::new());
        Self { counts, names, ended, without: None, left_out: 0 }
    }

    /// Leaves out the samples of a process, like those of the one that samples, and of the processes that read symbols.
    #[must_use]
    pub fn without_process(mut self, pid: u32) -> Self {
        self.without = Some(pid);
        self
    }

    /// The number of samples left out.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Counts a sample, or takes from another record what it says about threads.
    pub fn record(&mut self, record: &Record<'_>) {
        match &record.body {
            Body::Sample(sample) => self.sample(sample, record.id().unwrap_or(0)),
            Body::Comm { thread, comm, .. } => self.is_called(thread.tid, padded(comm)),
            Body::Fork(task) => {
                // A new thread has the name of its parent.
                let name = self.name(task.parent);
                self.is_called(task.thread.tid, name);
            }
            Body::Exit(task) => self.end(task.thread.tid),
            _ => {}
        }
    }

    /// Looks up the names of the samples that were counted since the last call. Call it when there are no more records for now:
    /// the names of a process may be unknown once it has ended.
    pub fn caught_up(&mut self) {
        self.counts.caught_up();
    }

    /// Forgets the name of a thread that ended some time ago. If its id has been used again, the name of the new thread is
    /// looked up with its next sample.
    fn end(&mut self, tid: u32) {
        self.ended.push_back(tid);
        if self.ended.len() > ENDED
            && let Some(first) = self.ended.pop_front()
        {
            self.names.remove(&first);
        }
    }

    /// The number of samples counted.
    pub fn samples(&self) -> u64 {
        self.counts.hits()
    }

    /// Every stack with its number of samples, the most frequent first.
    pub fn stacks(&mut self) -> Vec<(Stack, u64)> {
        self.counts.stacks()
    }

    /// The same, with the stacks of each event apart: each begins with the name of its event. `names` has those of the
    /// ids of events ([`Sampler::ids`](probe_perf::Sampler::ids)).
    pub fn stacks_by_event(&mut self, names: &HashMap<u64, String>) -> Vec<(Stack, u64)> {
        self.counts.stacks_by(|id| names.get(&id).map(String::as_str))
    }

    fn sample(&mut self, sample: &Sample<'_>, event: u64) {
        let Some(thread) = sample.thread else { return };
        let is_left_out = |own| own == thread.pid || self.counts.are_symbols_read_by(thread.pid);
        if self.without.is_some_and(is_left_out) {
            self.left_out += 1;
            return;
        }
        let task = Task { pid: thread.pid, tid: thread.tid, comm: self.name(thread) };
        let (user, kernel) =
            sample.callchain.map(|chain| (chain.user(), chain.kernel())).unwrap_or_default();
        // The user and kernel stacks are words of 8 bytes.
        let [user, kernel] = [user, kernel].map(|stack| Addresses::new(stack.as_bytes()));
        let time = sample.time.unwrap_or(0);
        self.counts.count_in(TaskStacks { task: &task, time, event, user, kernel });
    }

    fn name(&mut self, thread: Thread) -> [u8; COMM_LEN] {
        if let Some(known) = self.names.get(&thread.tid) {
            return *known;
        }
        let name = padded(&name(thread));
        self.is_called(thread.tid, name);
        name
    }

    fn is_called(&mut self, tid: u32, name: [u8; COMM_LEN]) {
        if self.names.len() >= THREADS {
            self.names.clear();
        }
        self.names.insert(tid, name);
    }
}

/// A name for a thread whose name is unknown.
fn name(Thread { pid, tid }: Thread) -> Vec<u8> {
    if tid == 0 {
        return b"swapper".to_vec();
    }
    if tid == EXITED {
        return b"[exited]".to_vec();
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

#[cfg(test)]
mod tests {
    use super::*;
    use probe_perf::record::SampleId;

    #[test]
    fn names_of_threads_are_forgotten_some_time_after_their_end() {
        let mut stacks = SampledStacks::new(Symbols::none());
        for tid in 1..=100_000 {
            stacks.names.insert(tid, padded(b"churn"));
            stacks.end(tid);
            // The last one is remembered.
            assert!(stacks.names.contains_key(&tid));
        }
        assert_eq!((stacks.names.len(), stacks.ended.len()), (ENDED, ENDED));
    }

    #[test]
    fn names_of_threads_whose_ends_were_lost_are_forgotten() {
        let mut stacks = SampledStacks::new(Symbols::none());
        for tid in 1..=2 * THREADS as u32 {
            stacks.is_called(tid, padded(b"lost"));
            assert!(stacks.names.len() <= THREADS && stacks.names.contains_key(&tid));
        }
    }

    #[test]
    fn samples_are_counted_by_the_names_of_their_events() {
        let mut stacks = SampledStacks::new(Symbols::none());
        for (id, tid) in [(1, 0), (2, 0), (2, EXITED), (3, EXITED)] {
            let mut sample = Sample::default();
            (sample.id, sample.thread) = (Some(id), Some(Thread { pid: tid, tid }));
            stacks.record(&Record::new(Body::Sample(sample), SampleId::default()));
        }
        let names = [(1, "faults"), (2, "cycles"), (3, "cycles")];
        let names = names.map(|(id, name)| (id, name.to_owned())).into();
        let shown = |(stack, hits): (Stack, u64)| {
            let names: Vec<_> = stack.entries().iter().map(|entry| entry.name.clone()).collect();
            (names.join(";"), hits)
        };
        let by_event: Vec<_> = stacks.stacks_by_event(&names).into_iter().map(shown).collect();
        let expected = [("cycles;[exited]", 2), ("cycles;swapper", 1), ("faults;swapper", 1)];
        assert_eq!(by_event, expected.map(|(names, hits)| (names.to_owned(), hits)));
        let all: Vec<_> = stacks.stacks().into_iter().map(shown).collect();
        let expected = [("[exited]", 2), ("swapper", 2)];
        assert_eq!(all, expected.map(|(names, hits)| (names.to_owned(), hits)));
    }
}
