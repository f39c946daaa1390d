//! Counting the ways that lead to a hit.

use super::event::{TraceEvent, Value};
use super::probe::Probe;
use super::shape::Shape;
use super::symbolize::Symbols;
use super::ways::{Way, WayCounts};
use crate::consumer::{Consumer, Loss, Malformed};
use probe_common::RawRecord;
use std::ops::ControlFlow;

/// Counts how often probes were hit, by the stacks that their events have.
///
/// It is for events of a [`TracerBuilder::stacks_only`](super::TracerBuilder::stacks_only); of others it
/// counts the stacks, and passes over the other fields.
#[derive(Debug)]
pub struct StackCounts {
    probes: Vec<Probe>,
    counts: WayCounts,
    left: Option<u64>,
}

impl StackCounts {
    /// Counts hits of these probes, whose addresses `symbols` names.
    pub fn new(probes: Vec<Probe>, symbols: Symbols) -> Self {
        Self { probes, counts: WayCounts::new(symbols), left: None }
    }

    /// Counts no more hits than so many.
    #[must_use]
    pub fn limit(mut self, hits: Option<u64>) -> Self {
        self.left = hits;
        self
    }

    /// How many hits were counted.
    pub fn hits(&self) -> u64 {
        self.counts.hits()
    }

    /// Every way, and how many hits it led to, the most frequent first.
    pub fn ways(&self) -> Vec<(Way, u64)> {
        self.counts.ways()
    }

    fn count(&mut self, event: &TraceEvent<'_>) {
        let Some(probe) = self.probes.get(event.probe as usize) else { return };
        let mut stacks = [None, None];
        for (field, value) in event.values(probe) {
            if let Value::Stack(stack) = value {
                stacks[usize::from(field.shape == Shape::KernelStack)] = Some(stack);
            }
        }
        let [user, kernel] = stacks;
        self.counts.count(event.task, user, kernel);
        self.left = self.left.map(|left| left - 1);
    }
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
mod tests {
    use super::*;
    use crate::trace::event::Addresses;
    use crate::trace::event::tests::Hit;
    use crate::trace::output::tests::probe;
    use crate::trace::ways::StepKind;

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
