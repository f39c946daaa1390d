//! The ways that led to hits, counted.

use super::event::Addresses;
use super::symbolize::{Frame, Symbols};
use crate::escape::Escaped;
use probe_common::trace::Task;
use std::collections::HashMap;
use std::sync::Arc;

/// A way that led to a hit: from the task on to the innermost function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Way(pub(super) Arc<[Step]>);

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

/// Counts hits by the ways that led to them.
#[derive(Debug)]
pub struct WayCounts {
    symbols: Symbols,
    /// Which way a stack is, by the addresses, and whose they are.
    known: HashMap<Box<[u64]>, usize>,
    by_name: HashMap<Way, usize>,
    ways: Vec<(Way, u64)>,
    /// Of the hit at hand.
    key: Vec<u64>,
}

impl WayCounts {
    /// Counts hits, whose addresses `symbols` names.
    pub fn new(symbols: Symbols) -> Self {
        let (known, by_name) = (HashMap::new(), HashMap::new());
        Self { symbols, known, by_name, ways: Vec::new(), key: Vec::new() }
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

    /// Counts a hit of a task, which was there in its process, and went into the kernel from there.
    pub fn count(
        &mut self,
        task: &Task,
        user: Option<Addresses<'_>>,
        kernel: Option<Addresses<'_>>,
    ) {
        if !self.count_known(task, user, kernel) {
            let names = self.names(task, user);
            self.count_named(task, user, &names, kernel);
        }
    }

    /// Counts a hit that is like one before. `false` if it is not.
    pub(super) fn count_known(
        &mut self,
        task: &Task,
        user: Option<Addresses<'_>>,
        kernel: Option<Addresses<'_>>,
    ) -> bool {
        self.key.clear();
        self.key.extend(identity(task));
        for stack in [user, kernel].into_iter().flatten() {
            self.key.push(stack.iter().len() as u64);
            self.key.extend(stack.iter());
        }
        let known = self.known.get(self.key.as_slice());
        if let Some(&number) = known {
            self.ways[number].1 += 1;
        }
        known.is_some()
    }

    /// Counts a hit whose functions of the process are known.
    pub(super) fn count_named(
        &mut self,
        task: &Task,
        user: Option<Addresses<'_>>,
        names: &[Arc<[Frame]>],
        kernel: Option<Addresses<'_>>,
    ) {
        if self.count_known(task, user, kernel) {
            return;
        }
        let way = self.way(task, user, names, kernel);
        let number = self.number(&way);
        self.known.insert(self.key.as_slice().into(), number);
        self.ways[number].1 += 1;
    }

    /// The functions of a process, of each address: none, if nobody knows.
    pub(super) fn names(&mut self, task: &Task, user: Option<Addresses<'_>>) -> Vec<Arc<[Frame]>> {
        let addresses: Vec<u64> = user.into_iter().flat_map(|stack| stack.iter()).collect();
        self.symbols.of_process_stack(task, &addresses)
    }

    /// Where names come from.
    pub(super) fn symbols(&mut self) -> &mut Symbols {
        &mut self.symbols
    }

    /// The number of a way, which is new or known.
    fn number(&mut self, way: &Way) -> usize {
        *self.by_name.entry(way.clone()).or_insert_with(|| {
            self.ways.push((way.clone(), 0));
            self.ways.len() - 1
        })
    }

    fn way(
        &mut self,
        task: &Task,
        user: Option<Addresses<'_>>,
        names: &[Arc<[Frame]>],
        kernel: Option<Addresses<'_>>,
    ) -> Way {
        let of_kernel: Vec<u64> = kernel.into_iter().flat_map(|stack| stack.iter()).collect();
        let kernel_names = self.symbols.of_kernel_stack(&of_kernel);
        let mut steps = vec![step(task.comm(), StepKind::Task)];
        let user = user.into_iter().flat_map(|stack| stack.iter());
        steps.extend(outermost_first(StepKind::User, user, names));
        steps.extend(outermost_first(StepKind::Kernel, of_kernel.into_iter(), &kernel_names));
        Way(steps.into())
    }
}

fn step(name: &[u8], kind: StepKind) -> Step {
    Step { name: Escaped(name).to_string(), kind }
}

/// The steps of a stack.
fn outermost_first(
    kind: StepKind,
    addresses: impl Iterator<Item = u64>,
    names: &[Arc<[Frame]>],
) -> Vec<Step> {
    let mut steps = Vec::new();
    for (address, frames) in addresses.zip(names) {
        if frames.is_empty() {
            steps.push(step(format!("{address:#x}").as_bytes(), kind));
        }
        steps.extend(frames.iter().map(|Frame { name, .. }| step(name.as_bytes(), kind)));
    }
    steps.reverse();
    steps
}

/// The process, and the task's name.
fn identity(task: &Task) -> [u64; 3] {
    let (words, _) = task.comm.as_chunks();
    let [first, second] = [words[0], words[1]].map(u64::from_ne_bytes);
    [task.pid.into(), first, second]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A way of functions of the kernel, and hits.
    pub(crate) fn example(task: &str, functions: &[&str], hits: u64) -> (Way, u64) {
        let step = |name: &str, kind| Step { name: name.to_owned(), kind };
        let functions = functions.iter().map(|name| step(name, StepKind::Kernel));
        (Way([step(task, StepKind::Task)].into_iter().chain(functions).collect()), hits)
    }
}
