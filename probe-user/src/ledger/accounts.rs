//! Reads the three counts side by side into a ledger.

use crate::error::TallyError;
use crate::ledger::balance::{Ledger, LedgerCpu, LedgerEntry};
use crate::ledger::tally::{CpuOutputs, Tally};
use crate::queue::counts::Received;
use crate::queue::evqueue::EvQueue;
use probe_common::RecordKind;
use probe_common::tally::{FailureClass, KindTally, OutputTally};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the eBPF side has counted since a pipe was opened on its maps.
#[derive(Debug)]
pub(crate) struct Accounts {
    tally: Arc<Tally>,
    /// The CPUs of the pipe; `None` for all.
    cpus: Option<Vec<u32>>,
    bounds: Mutex<Bounds>,
}

/// Between which counts the records of a pipe lie.
#[derive(Clone, Debug)]
struct Bounds {
    /// What had been counted before the pipe was opened, for earlier pipes or for none.
    before: Counted,
    /// What had been counted on CPUs that another consumer has taken over, when the pipe noticed that.
    end: Counted,
}

/// What the eBPF side has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) records: BTreeMap<(u32, RecordKind), KindTally>,
    /// Each CPU that is counted at all is in here.
    pub(crate) outputs: BTreeMap<u32, OutputTally>,
}

impl Counted {
    fn read(tally: &Tally) -> Result<Self, TallyError> {
        let outputs = tally.outputs()?;
        let records = tally.by_kind(&outputs)?;
        Ok(Self { records, ..Self::of_outputs(outputs) })
    }

    fn of_outputs(outputs: Vec<CpuOutputs>) -> Self {
        let outputs = outputs.into_iter().map(|counted| (counted.cpu, counted.tally)).collect();
        Self { records: BTreeMap::new(), outputs }
    }

    fn retain(&mut self, is_wanted: impl Fn(u32) -> bool) {
        self.records.retain(|&(cpu, _), _| is_wanted(cpu));
        self.outputs.retain(|&cpu, _| is_wanted(cpu));
    }

    /// Replaces the counts of the CPUs in `other` by those.
    fn replace(&mut self, other: &Self) {
        self.retain(|cpu| !other.outputs.contains_key(&cpu));
        self.records.extend(&other.records);
        self.outputs.extend(&other.outputs);
    }

    fn since(mut self, before: &Self) -> Self {
        for (of, now) in &mut self.records {
            *now = now.since(before.records.get(of).unwrap_or(&KindTally::default()));
        }
        for (cpu, now) in &mut self.outputs {
            *now = now.since(before.outputs.get(cpu).unwrap_or(&OutputTally::default()));
        }
        self
    }
}

impl Accounts {
    /// Opens empty accounts of some CPUs, or of all without a list. Call this before any map has events.
    pub(crate) fn open(tally: Arc<Tally>, cpus: Option<&[u32]>) -> Result<Self, TallyError> {
        let before = Counted::read(&tally)?;
        let bounds = Mutex::new(Bounds { before, end: Counted::default() });
        Ok(Self { tally, cpus: cpus.map(<[u32]>::to_vec), bounds })
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    fn bounds(&self) -> MutexGuard<'_, Bounds> {
        // The bounds are whole even after a panic elsewhere.
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `now` means for this pipe.
    fn ours(&self, mut now: Counted) -> Counted {
        let bounds = self.bounds();
        now.retain(|cpu| self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu)));
        now.replace(&bounds.end);
        now.since(&bounds.before)
    }

    /// What was counted for this pipe.
    fn counted(&self) -> Result<Counted, TallyError> {
        Ok(self.ours(Counted::read(&self.tally)?))
    }

    /// What was counted for this pipe about failed outputs. This is little to read.
    pub(crate) fn outputs(&self) -> Result<BTreeMap<u32, OutputTally>, TallyError> {
        Ok(self.ours(Counted::of_outputs(self.tally.outputs()?)).outputs)
    }

    /// Ends the accounts of CPUs that another consumer has taken over. What it has lost itself since then is in these
    /// accounts, and not in its own.
    pub(crate) fn end(&self, cpus: &[u32]) -> Result<(), TallyError> {
        let mut now = Counted::read(&self.tally)?;
        now.retain(|cpu| cpus.contains(&cpu));
        self.bounds().end.replace(&now);
        Ok(())
    }

    /// Begins the accounts of some CPUs where those of an earlier consumer end.
    pub(crate) fn begin_at(&self, end: &Counted) {
        self.bounds().before.replace(end);
    }

    /// Where the accounts of the CPUs end that another consumer has taken over.
    pub(crate) fn ends(&self, ledger: &Ledger) -> Counted {
        let Bounds { mut before, end } = { self.bounds().clone() };
        before.retain(|cpu| end.outputs.contains_key(&cpu));
        for entry in ledger.entries.iter().filter(|entry| end.outputs.contains_key(&entry.cpu)) {
            *before.records.entry((entry.cpu, entry.kind)).or_default() += entry.tally;
        }
        for (&cpu, &now) in &end.outputs {
            let at = before.outputs.entry(cpu).or_default();
            let mut outputs = now.since(at);
            let lost = ledger.cpus.iter().find(|entry| entry.cpu == cpu);
            let lost = lost.map_or(Some(0), |entry| entry.kernel_lost);
            let counted = &mut outputs.failed[FailureClass::NoSpace as usize];
            *counted = lost.unwrap_or(*counted).min(*counted);
            *at += outputs;
        }
        before
    }

    /// The number of outputs of all CPUs that failed for another reason than a full ring.
    pub(crate) fn failed_outputs(&self) -> Result<u64, TallyError> {
        let failed = self.outputs()?.into_values();
        Ok(failed.map(|failed| others().map(|class| failed.failed_for(class)).sum::<u64>()).sum())
    }

    /// The number of records that failed for another reason than a full ring, by CPU.
    pub(crate) fn failed(&self) -> Result<BTreeMap<(u32, FailureClass), u64>, TallyError> {
        let mut failed = BTreeMap::new();
        for ((cpu, _), now) in self.counted()?.records {
            for class in others() {
                *failed.entry((cpu, class)).or_default() += now.failed_for(class);
            }
        }
        failed.retain(|_, records| *records > 0);
        Ok(failed)
    }

    /// How many records of each kind each CPU has sent.
    pub(crate) fn sent(&self) -> Result<BTreeMap<(u32, RecordKind), u64>, TallyError> {
        Ok(self.counted()?.records.into_iter().map(|(of, now)| (of, now.sent)).collect())
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
            let cpu = LedgerCpu::of(&mut draft.cpus, queue.cpu());
            cpu.pending = queue.has_records();
            if queue.is_taken_over() && !cpu.pending {
                draft.settle(queue.cpu());
            }
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
        let counted = self.counted()?;
        for ((cpu, kind), now) in counted.records {
            LedgerEntry::of(&mut draft.entries, cpu, kind).tally += now;
        }
        for (cpu, now) in counted.outputs {
            LedgerCpu::of(&mut draft.cpus, cpu).outputs = now;
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

    /// Corrects the counts of a CPU that another consumer has taken over, and whose ring is empty: they were read later than
    /// that. What was sent before is what the ring had.
    fn settle(&mut self, cpu: u32) {
        for entry in self.entries.values_mut().filter(|entry| entry.cpu == cpu) {
            entry.tally.sent = entry.handled + entry.overwritten;
        }
        let entry = LedgerCpu::of(&mut self.cpus, cpu);
        if let Some(lost) = entry.kernel_lost {
            entry.outputs.failed[FailureClass::NoSpace as usize] = lost;
        }
    }
}

impl From<Draft> for Ledger {
    fn from(draft: Draft) -> Self {
        let entries = draft.entries.into_values().filter(|entry| !entry.is_empty()).collect();
        let cpus = draft.cpus.into_values().filter(|cpu| *cpu != LedgerCpu::new(cpu.cpu)).collect();
        Self { entries, cpus }
    }
}
