//! Counts the stacks of samples.

use crate::object::namespaces::PidNamespace;
use crate::resolve::event::Addresses;
use crate::symbolize::Symbols;
use crate::symbolize::stack::{Stack, StackTable, TaskStacks};
use crate::symbolize::thread_names::ThreadNames;
use probe_perf::record::{Body, Record, Sample, Thread};
use probe_tracer_common::trace::Task;
use std::collections::HashMap;
use zerocopy::IntoBytes;

/// How many records, and words of stacks, wait until the names of threads are known.
const WAITING: usize = 1 << 16;
const WORDS: usize = 1 << 20;

/// Counts the samples of a [`Sampler`](probe_perf::Sampler) by task and stack. It needs samples with callchains
/// and, with [`Flags::COMM`](probe_perf::Flags::COMM) and [`Flags::TASK`](probe_perf::Flags::TASK), the names,
/// forks and exits of threads. The times must be of
/// `CLOCK_MONOTONIC`, which is the default.
#[derive(Debug)]
pub struct SampledStacks {
    counts: StackTable,
    names: ThreadNames,
    /// What was read since the last look at all rings.
    samples: Vec<Waiting>,
    /// Threads, their parents, and when they were created.
    forks: Vec<(u32, Thread, u64)>,
    exits: Vec<u32>,
    /// How many records have an effect that waits.
    changes: usize,
    /// The user and kernel stacks of the samples, one after the other.
    addresses: Vec<u64>,
    /// The time of the last record.
    last: u64,
    /// A process whose samples are left out, and their number.
    without: Option<u32>,
    left_out: u64,
}

/// A sample whose thread may have a name that is still to be read.
#[derive(Debug)]
struct Waiting {
    thread: Thread,
    time: u64,
    event: u64,
    /// The lengths of its stacks.
    user: usize,
    kernel: usize,
}

impl SampledStacks {
    /// Counts samples; `symbols` resolves their addresses.
    pub fn new(symbols: Symbols) -> Self {
        let is_nested = PidNamespace::own().is_ok_and(|own| !own.is_initial());
        Self {
            counts: StackTable::without(symbols, |_| 0),
            names: ThreadNames::new(is_nested),
            samples: Vec::new(),
            forks: Vec::new(),
            exits: Vec::new(),
            changes: 0,
            addresses: Vec::new(),
            last: 0,
            without: None,
            left_out: 0,
        }
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

    /// Takes a sample, or from another record what it says about threads. A sample is counted by the name that its thread had
    /// then, once it is known that no earlier record has another one: call [`caught_up`](Self::caught_up) when all rings
    /// were read.
    pub fn record(&mut self, record: &Record<'_>) {
        self.last = record.ids.time.unwrap_or(self.last);
        match &record.body {
            Body::Sample(sample) => self.sample(sample, record.id().unwrap_or(0)),
            Body::Comm { thread, comm, .. } => self.names.called(thread.tid, self.last, comm),
            Body::Fork(task) => self.forks.push((task.thread.tid, task.parent, task.time)),
            Body::Exit(task) => self.exits.push(task.thread.tid),
            _ => return,
        }
        self.changes += 1;
        if self.changes >= WAITING || self.addresses.len() >= WORDS {
            self.settle();
        }
    }

    /// Counts the samples that were taken since the last call, and looks up their names. Call it when there are no more
    /// records for now: the names of a process may be unknown once it has ended.
    pub fn caught_up(&mut self) {
        self.settle();
        self.counts.caught_up();
    }

    /// Counts the samples that wait.
    fn settle(&mut self) {
        // A parent may itself have been created since.
        self.forks.sort_by_key(|(_, _, time)| *time);
        for (tid, parent, time) in self.forks.drain(..) {
            self.names.forked(tid, parent, time);
        }
        let mut rest = self.addresses.as_slice();
        for Waiting { thread, time, event, user, kernel } in self.samples.drain(..) {
            let (of_sample, others) = rest.split_at(user + kernel);
            let (user, kernel) = of_sample.split_at(user);
            rest = others;
            let [user, kernel] = [user, kernel].map(|stack| Addresses::new(stack.as_bytes()));
            let comm = self.names.at(thread, time);
            let task = &Task { pid: thread.pid, tid: thread.tid, comm };
            self.counts.count_in(TaskStacks { task, time, event, user, kernel });
        }
        self.addresses.clear();
        self.exits.drain(..).for_each(|tid| self.names.ended(tid));
        self.names.forget_old();
        self.changes = 0;
    }

    /// The number of samples counted.
    pub fn samples(&self) -> u64 {
        self.counts.hits() + self.samples.len() as u64
    }

    /// Every stack with its number of samples, the most frequent first.
    pub fn stacks(&mut self) -> Vec<(Stack, u64)> {
        self.settle();
        self.counts.stacks()
    }

    /// Like [`stacks`](Self::stacks), with the stacks of each event apart: each begins with the name of its event. `names`
    /// has those of the ids of events ([`Sampler::ids`](probe_perf::Sampler::ids)).
    pub fn stacks_by_event(&mut self, names: &HashMap<u64, String>) -> Vec<(Stack, u64)> {
        self.settle();
        self.counts.stacks_by(|id| names.get(&id).map(String::as_str))
    }

    fn sample(&mut self, sample: &Sample<'_>, event: u64) {
        let Some(thread) = sample.thread else { return };
        let is_left_out = |own| own == thread.pid || self.counts.are_symbols_read_by(thread.pid);
        if self.without.is_some_and(is_left_out) {
            self.left_out += 1;
            return;
        }
        let (user, kernel) =
            sample.callchain.map(|chain| (chain.user(), chain.kernel())).unwrap_or_default();
        for stack in [user, kernel] {
            self.addresses.extend(stack.iter());
        }
        let time = sample.time.unwrap_or(self.last);
        let (user, kernel) = (user.len(), kernel.len());
        self.samples.push(Waiting { thread, time, event, user, kernel });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::thread_names::EXITED;
    use probe_perf::record::SampleId;

    #[test]
    fn a_sample_has_the_name_that_its_thread_had() {
        let mut stacks = SampledStacks::new(Symbols::none());
        let [thread, parent] = [1, 2].map(|n| Thread { pid: EXITED - n, tid: EXITED - n });
        let mut record = |body: Option<Body<'_>>, time| {
            let mut sample = Sample::default();
            (sample.thread, sample.time) = (Some(thread), Some(time));
            let mut ids = SampleId::default();
            ids.time = Some(time);
            stacks.record(&Record::new(body.unwrap_or(Body::Sample(sample)), ids));
        };
        // As the rings of three CPUs are read.
        record(None, 25);
        record(None, 35);
        record(Some(Body::Comm { thread, comm: b"gcc", is_exec: true }), 30);
        record(None, 15);
        record(Some(Body::Comm { thread: parent, comm: b"make", is_exec: true }), 5);
        stacks.forks.push((thread.tid, parent, 10));
        let counts = stacks.stacks().into_iter();
        let counts = counts.map(|(stack, hits)| (stack.entries()[0].name.to_string(), hits));
        assert_eq!(counts.collect::<Vec<_>>(), [("make".to_owned(), 2), ("gcc".to_owned(), 1)]);
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
