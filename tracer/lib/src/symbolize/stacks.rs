//! Counts the stacks of hits.

use crate::resolve::event::{TraceEvent, Value};
use crate::resolve::probe::Probe;
use crate::resolve::shape::Shape;
use crate::symbolize::Symbols;
use crate::symbolize::stack::{Stack, StackTable};
use probe_common::RawRecord;
use probe_user::{Consumer, CpuChange, Malformed};
use std::ops::ControlFlow;

/// Counts hits of probes by the stacks in their events.
///
/// It is meant for events of [`TracerBuilder::stacks_only`](crate::TracerBuilder::stacks_only). Of other events
/// it counts the stacks and ignores the other fields.
#[derive(Debug)]
pub struct StackCounts {
    probes: Vec<Probe>,
    counts: StackTable,
    left: Option<u64>,
}

impl StackCounts {
    /// Counts hits of these probes; `symbols` resolves their addresses.
    pub fn new(probes: Vec<Probe>, symbols: Symbols) -> Self {
        Self { probes, counts: StackTable::new(symbols), left: None }
    }

    /// Limits the number of hits that are counted.
    #[must_use]
    pub fn limit(mut self, hits: Option<u64>) -> Self {
        self.left = hits;
        self
    }

    /// The number of hits counted.
    pub fn hits(&self) -> u64 {
        self.counts.hits()
    }

    /// Every stack with its number of hits, the most frequent first.
    pub fn stacks(&mut self) -> Vec<(Stack, u64)> {
        self.counts.stacks()
    }

    /// Counts an event of one of the probes.
    fn count(&mut self, event: &TraceEvent<'_>) {
        let probe = &self.probes[event.probe as usize];
        let mut stacks = [None, None];
        for (field, value) in event.values(probe) {
            if let Value::Stack(stack) = value {
                stacks[usize::from(field.shape == Shape::KernelStack)] = Some(stack);
            }
        }
        let [user, kernel] = stacks;
        self.counts.count(event.task, event.time, user, kernel);
        self.left = self.left.map(|left| left - 1);
    }
}

impl Consumer for StackCounts {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.accepts()?;
        match TraceEvent::of(&self.probes, cpu, record) {
            Some(event) => self.count(&event),
            None => self.malformed(TraceEvent::undecodable(cpu, record))?,
        }
        self.accepts()
    }

    fn accepts(&mut self) -> ControlFlow<()> {
        if self.left == Some(0) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        self.counts.caught_up();
        ControlFlow::Continue(())
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        log::warn!("{malformed}");
        ControlFlow::Continue(())
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        match change {
            CpuChange::Uncovered { .. } => log::warn!("{change}"),
            _ => log::info!("{change}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tests::probe;
    use crate::resolve::event::Addresses;
    use crate::resolve::event::tests::Hit;
    use crate::symbolize::stack::EntryKind;
    use std::sync::Arc;

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
        // The outermost frame has no caller.
        hit(b"cat", &[1, 2, 0], &[3]);
        assert_eq!(counts.hits(), 5);
        let stacks = counts.stacks();
        let names = |stack: &Stack| stack.names().collect::<Vec<_>>().join(" ");
        let shown: Vec<_> = stacks.iter().map(|(stack, hits)| (names(stack), *hits)).collect();
        let expected = [("cat 0x2 0x1 0x3", 3), ("cat 0x1 0x3 0x2", 1), ("dog\\n 0x2 0x1 0x3", 1)];
        assert_eq!(shown, expected.map(|(stack, hits)| (stack.to_owned(), hits)));
        assert_eq!(stacks[0].0.entries()[2].kind, EntryKind::User);
        assert_eq!(stacks[0].0.entries()[3].kind, EntryKind::Kernel);
        let name = |stack: usize, entry: usize| &stacks[stack].0.entries()[entry].name;
        assert!(Arc::ptr_eq(name(0, 0), name(1, 0)) && Arc::ptr_eq(name(0, 2), name(1, 1)));
    }
}
