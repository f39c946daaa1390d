//! Counting the ways that lead to a hit.

use super::event::{Addresses, TraceEvent, Value};
use super::output::{Named, Names};
use super::probe::Probe;
use super::shape::Shape;
use super::symbolize::{Frame, Symbols};
use crate::consumer::{Consumer, Loss, Malformed};
use crate::escape::Escaped;
use probe_common::RawRecord;
use probe_common::trace::Task;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Counts how often probes were hit, by the stacks that their events have.
///
/// It is for events of a [`TracerBuilder::stacks_only`](super::TracerBuilder::stacks_only); of others it
/// counts the stacks, and passes over the other fields.
#[derive(Debug)]
pub struct StackCounts {
    probes: Vec<Probe>,
    symbols: Symbols,
    /// Which way a stack is, by the addresses, and whose they are.
    known: HashMap<Box<[u64]>, usize>,
    by_name: HashMap<Way, usize>,
    ways: Vec<(Way, u64)>,
    /// Of the event at hand.
    key: Vec<u64>,
    left: Option<u64>,
}

/// A way that led to a hit: from the task on to the innermost function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Way(Arc<[Step]>);

/// A step of a way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Step {
    /// Its name, made safe to show; the address, if nobody knows the name.
    pub name: String,
    /// What it is.
    pub kind: StepKind,
}

/// What a step of a way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StepKind {
    /// The task, by its name.
    Task,
    /// A function of a process.
    User,
    /// A function of the kernel.
    Kernel,
}

impl Way {
    /// The task, and then the functions, each called by the one before.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|step| step.name.as_str())
    }
}

impl StackCounts {
    /// Counts hits of these probes, whose addresses `symbols` names.
    pub fn new(probes: Vec<Probe>, symbols: Symbols) -> Self {
        let (known, by_name) = (HashMap::new(), HashMap::new());
        Self { probes, symbols, known, by_name, ways: Vec::new(), key: Vec::new(), left: None }
    }

    /// Counts no more hits than so many.
    #[must_use]
    pub fn limit(mut self, hits: Option<u64>) -> Self {
        self.left = hits;
        self
    }

    /// How many hits were counted.
    pub fn hits(&self) -> u64 {
        self.ways.iter().map(|(_, hits)| hits).sum()
    }

    /// Every way, and how many hits it led to, the most frequent first.
    pub fn ways(&self) -> Vec<(Way, u64)> {
        let mut ways = self.ways.clone();
        ways.sort_by(|(a, a_hits), (b, b_hits)| {
            b_hits.cmp(a_hits).then_with(|| a.names().cmp(b.names()))
        });
        ways
    }

    fn count(&mut self, event: &TraceEvent<'_>) {
        let Some(probe) = self.probes.get(event.probe as usize) else { return };
        let mut stacks = [None, None];
        for (field, value) in event.values(probe) {
            if let Value::Stack(stack) = value {
                stacks[usize::from(field.shape == Shape::KernelStack)] = Some(stack);
            }
        }
        self.key.clear();
        self.key.extend(identity(event.task));
        for stack in stacks.into_iter().flatten() {
            self.key.push(stack.iter().len() as u64);
            self.key.extend(stack.iter());
        }
        let number = match self.known.get(self.key.as_slice()) {
            Some(&number) => number,
            None => {
                let way = way(&mut Names::of(event, &mut self.symbols), event.task, stacks);
                let number = self.number(&way);
                self.known.insert(self.key.as_slice().into(), number);
                number
            }
        };
        self.ways[number].1 += 1;
        self.left = self.left.map(|left| left - 1);
    }

    /// The number of a way, which is new or known.
    fn number(&mut self, way: &Way) -> usize {
        *self.by_name.entry(way.clone()).or_insert_with(|| {
            self.ways.push((way.clone(), 0));
            self.ways.len() - 1
        })
    }
}

/// The process, and the task's name.
fn identity(task: &Task) -> [u64; 3] {
    let (words, _) = task.comm.as_chunks();
    let [first, second] = [words[0], words[1]].map(u64::from_ne_bytes);
    [task.pid.into(), first, second]
}

/// The way of a task with these stacks: its own, and that of the kernel, into which it went then.
fn way(names: &mut Names<'_>, task: &Task, stacks: [Option<Addresses<'_>>; 2]) -> Way {
    let step = |name: &[u8], kind| Step { name: Escaped(name).to_string(), kind };
    let mut steps = vec![step(task.comm(), StepKind::Task)];
    let sorts = [(Shape::UserStack, StepKind::User), (Shape::KernelStack, StepKind::Kernel)];
    for ((shape, kind), stack) in sorts.into_iter().zip(stacks) {
        let Some(stack) = stack else { continue };
        for Named { address, frames } in names.stack(&shape, stack).iter().rev() {
            if frames.is_empty() {
                steps.push(step(format!("{address:#x}").as_bytes(), kind));
            }
            let outermost_first = frames.iter().rev();
            steps.extend(outermost_first.map(|Frame { name, .. }| step(name.as_bytes(), kind)));
        }
    }
    Way(steps.into())
}

impl Consumer for StackCounts {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        if self.left == Some(0) {
            return ControlFlow::Break(());
        }
        if let Some(event) = TraceEvent::decode(cpu, record) {
            self.count(&event);
        }
        ControlFlow::Continue(())
    }

    /// What is lost, the ledger tells.
    fn lost(&mut self, _: Loss) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        log::warn!("{malformed}");
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::trace::event::tests::Hit;
    use crate::trace::output::tests::probe;

    /// A way of functions of the kernel, and hits.
    pub(crate) fn example(task: &str, functions: &[&str], hits: u64) -> (Way, u64) {
        let step = |name: &str, kind| Step { name: name.to_owned(), kind };
        let functions = functions.iter().map(|name| step(name, StepKind::Kernel));
        (Way([step(task, StepKind::Task)].into_iter().chain(functions).collect()), hits)
    }

    fn addresses(stack: &[u64]) -> Vec<u8> {
        stack.iter().flat_map(|address| address.to_ne_bytes()).collect()
    }

    #[test]
    fn hits_are_counted_by_task_and_stack() {
        let fields = [("ustack", Shape::UserStack), ("kstack", Shape::KernelStack)];
        let mut counts = StackCounts::new(vec![probe("f", &fields)], Symbols::none());
        let mut hit = |comm: &[u8], user: &[u64], kernel: &[u64]| {
            let (user, kernel) = (addresses(user), addresses(kernel));
            let stacks = [&user, &kernel].map(|bytes| Value::Stack(Addresses::new(bytes)));
            counts.count(&Hit::new(comm, 0, &stacks).event());
        };
        hit(b"cat", &[1, 2], &[3]);
        hit(b"cat", &[1], &[2, 3]);
        hit(b"cat", &[1, 2], &[3]);
        hit(b"dog\n", &[1, 2], &[3]);
        hit(b"cat", &[1, 2], &[3]);
        assert_eq!(counts.hits(), 5);
        let ways = counts.ways();
        let shown: Vec<_> = ways
            .iter()
            .map(|(way, hits)| {
                let names: Vec<_> = way.steps().iter().map(|step| step.name.as_str()).collect();
                (names.join(" "), *hits)
            })
            .collect();
        let expected = [("cat 0x2 0x1 0x3", 3), ("cat 0x1 0x3 0x2", 1), ("dog\\n 0x2 0x1 0x3", 1)];
        assert_eq!(shown, expected.map(|(way, hits)| (way.to_owned(), hits)));
        assert_eq!(ways[0].0.steps()[2].kind, StepKind::User);
        assert_eq!(ways[0].0.steps()[3].kind, StepKind::Kernel);
    }
}
