//! Reads the three counts side by side into a ledger.

use crate::error::TallyError;
use crate::ledger::balance::{Ledger, LedgerCpu, LedgerEntry};
use crate::ledger::tally::Tally;
use crate::queue::counts::Received;
use crate::queue::evqueue::EvQueue;
use probe_common::RecordKind;
use probe_common::tally::{FailureClass, KindTally, OutputTally};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the eBPF side has counted since a pipe was opened on its maps.
#[derive(Debug)]
pub(crate) struct Accounts {
    tally: Arc<Tally>,
    /// What had been counted before the pipe was opened, for earlier pipes or for none.
    before: Counted,
}

/// What the eBPF side has counted.
#[derive(Debug, Default)]
struct Counted {
    records: BTreeMap<(u32, RecordKind), KindTally>,
    outputs: BTreeMap<u32, OutputTally>,
}

impl Counted {
    fn read(tally: &Tally) -> Result<Self, TallyError> {
        let records = tally.by_kind()?;
        let outputs = tally.outputs()?.into_iter().map(|counted| (counted.cpu, counted.tally));
        Ok(Self { records, outputs: outputs.collect() })
    }
}

impl Accounts {
    /// Opens empty accounts. Call this before any map has events.
    pub(crate) fn open(tally: Arc<Tally>) -> Result<Self, TallyError> {
        let before = Counted::read(&tally)?;
        Ok(Self { tally, before })
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What a CPU has counted about failed outputs.
    pub(crate) fn outputs_of(&self, cpu: u32) -> Result<OutputTally, TallyError> {
        let outputs = self.tally.outputs()?;
        let counted = outputs.iter().find(|counted| counted.cpu == cpu);
        Ok(counted.map(|counted| self.outputs_since(cpu, &counted.tally)).unwrap_or_default())
    }

    /// The number of outputs on a CPU that found no room, as the eBPF side counted. `None` if the count
    /// cannot be read.
    pub(crate) fn lost_outputs(&self, cpu: u32) -> Option<u64> {
        Some(self.outputs_of(cpu).ok()?.failed_for(FailureClass::NoSpace))
    }

    /// The number of outputs of all CPUs that failed for another reason than a full ring.
    pub(crate) fn failed_outputs(&self) -> Result<u64, TallyError> {
        let outputs = self.tally.outputs()?;
        let failed = outputs.iter().map(|counted| {
            let failed = self.outputs_since(counted.cpu, &counted.tally);
            others().map(|class| failed.failed_for(class)).sum::<u64>()
        });
        Ok(failed.sum())
    }

    /// The number of records that failed for another reason than a full ring, by CPU.
    pub(crate) fn failed(&self) -> Result<BTreeMap<(u32, FailureClass), u64>, TallyError> {
        let mut failed = BTreeMap::new();
        for (of, now) in self.tally.by_kind()? {
            let now = self.records_since(of, &now);
            for class in others() {
                *failed.entry((of.0, class)).or_default() += now.failed_for(class);
            }
        }
        failed.retain(|_, records| *records > 0);
        Ok(failed)
    }

    fn records_since(&self, of: (u32, RecordKind), now: &KindTally) -> KindTally {
        now.since(self.before.records.get(&of).unwrap_or(&KindTally::default()))
    }

    fn outputs_since(&self, cpu: u32, now: &OutputTally) -> OutputTally {
        now.since(self.before.outputs.get(&cpu).unwrap_or(&OutputTally::default()))
    }

    /// How many records of each kind each CPU has sent.
    pub(crate) fn sent(&self) -> Result<BTreeMap<(u32, RecordKind), u64>, TallyError> {
        let counted = self.tally.by_kind()?;
        Ok(counted.iter().map(|(&of, now)| (of, self.records_since(of, now).sent)).collect())
    }

    /// Reads the accounts, together with what the queues have counted.
    pub(crate) fn read<'q>(
        &self,
        queues: impl Iterator<Item = &'q EvQueue> + Clone,
    ) -> Result<Ledger, TallyError> {
        // Read the consumer's counts first: it can only have handled what was sent before.
        let mut draft = Draft::default();
        for queue in queues.clone() {
            draft.add_received(queue.cpu(), queue.received()).kernel_lost = queue.kernel_lost();
        }
        self.add_counted(&mut draft)?;
        // Read this last: what is in no ring now was not sent after the consumer's counts were read.
        for queue in queues {
            LedgerCpu::of(&mut draft.cpus, queue.cpu()).pending = queue.has_records();
        }
        Ok(draft.into())
    }

    /// The same from outside of the pipe, where nobody can see what is in the rings, and what the kernel counts.
    pub(crate) fn read_outside(
        &self,
        queues: impl Iterator<Item = (u32, Arc<Received>)>,
    ) -> Result<Ledger, TallyError> {
        let mut draft = Draft::default();
        for (cpu, received) in queues {
            let entry = draft.add_received(cpu, &received);
            (entry.kernel_lost, entry.pending) = (None, true);
        }
        self.add_counted(&mut draft)?;
        Ok(draft.into())
    }

    /// Adds what the eBPF side has counted.
    fn add_counted(&self, draft: &mut Draft) -> Result<(), TallyError> {
        let counted = Counted::read(&self.tally)?;
        for (&(cpu, kind), now) in &counted.records {
            LedgerEntry::of(&mut draft.entries, cpu, kind).tally +=
                self.records_since((cpu, kind), now);
        }
        for (&cpu, now) in &counted.outputs {
            LedgerCpu::of(&mut draft.cpus, cpu).outputs = self.outputs_since(cpu, now);
        }
        Ok(())
    }
}

/// Every reason but a full ring.
fn others() -> impl Iterator<Item = FailureClass> {
    FailureClass::ALL.into_iter().filter(|class| *class != FailureClass::NoSpace)
}

/// A ledger that is being written.
#[derive(Default)]
struct Draft {
    entries: BTreeMap<(u32, RecordKind), LedgerEntry>,
    cpus: BTreeMap<u32, LedgerCpu>,
}

impl Draft {
    /// Adds what a queue has received.
    fn add_received(&mut self, cpu: u32, received: &Received) -> &mut LedgerCpu {
        for (kind, count) in received.given.iter() {
            LedgerEntry::of(&mut self.entries, cpu, kind).handled = count;
        }
        for (kind, count) in received.recovered.iter() {
            LedgerEntry::of(&mut self.entries, cpu, kind).tally.sent += count;
        }
        for (kind, count) in received.overwritten.iter() {
            LedgerEntry::of(&mut self.entries, cpu, kind).overwritten = count;
        }
        let entry = LedgerCpu::of(&mut self.cpus, cpu);
        entry.overwritten_bytes = received.overwritten_bytes.get();
        entry.malformed = received.malformed.get();
        entry.foreign = received.given.other();
        entry
    }
}

impl From<Draft> for Ledger {
    fn from(draft: Draft) -> Self {
        let entries = draft.entries.into_values().filter(|entry| !entry.is_empty()).collect();
        let cpus = draft.cpus.into_values().filter(|cpu| *cpu != LedgerCpu::new(cpu.cpu)).collect();
        Self { entries, cpus }
    }
}
