//! What became of every record.

use crate::error::TallyError;
use crate::evqueue::EvQueue;
use crate::parts::PipeParts;
use crate::tally::Tally;
use probe_common::RecordKind;
use probe_common::tally::{FailureClass, KindTally, OutputTally};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What became of every record that was attempted since the pipe was opened, by CPU and kind.
///
/// Two sides count, who know nothing of each other: the eBPF programs what they attempted, sent, and
/// could not send and why; the consumer what it was given. The kernel counts a third time, what it had
/// no room for. The books balance if, for each CPU and kind,
///
/// - what was attempted was sent, or failed;
/// - what was sent was handled (or, where malformed bytes were skipped, lay in them; or, where the rings
///   of a flight recorder had no room for all of it, was overwritten);
/// - and, for each CPU, as many outputs failed for lack of room as the kernel says were lost.
///
/// A record that was emitted alone (`pipe::emit_alone`) is counted by its program only if it failed: it counts as sent
/// once it is read, or found by a dump. So it is never unread, or overwritten, in these books.
///
/// What was sent and not handled yet is [`unread`](Self::unread). Records in blocks that are not sent
/// yet are in no count, and while a program is about to count what it has just sent, more may be handled
/// than sent: the books are exact when nobody emits, as at [`EvPipe::close`](crate::EvPipe::close).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ledger {
    /// Ascending by CPU, then by kind; without those of which there was nothing.
    pub entries: Vec<LedgerEntry>,
    /// Ascending by CPU; without those of which there was nothing.
    pub cpus: Vec<LedgerCpu>,
}

/// What became of one CPU's records of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerEntry {
    /// The CPU.
    pub cpu: u32,
    /// The kind.
    pub kind: RecordKind,
    /// What the eBPF side counted.
    pub tally: KindTally,
    /// Records that were given to the consumer.
    pub handled: u64,
    /// Records that newer ones took the place of before a dump, as [`Options::overwrite`] asks for: by the
    /// last dump, what was sent and not found in the ring.
    ///
    /// [`Options::overwrite`]: crate::Options::overwrite
    pub overwritten: u64,
}

/// What one CPU's outputs came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerCpu {
    /// The CPU.
    pub cpu: u32,
    /// Outputs that failed, as the eBPF side counted.
    pub outputs: OutputTally,
    /// Outputs that the kernel had no room for, as it counted; `None` before kernel 6.0, which does
    /// not say (`PERF_FORMAT_LOST`).
    pub kernel_lost: Option<u64>,
    /// How often malformed bytes were skipped.
    pub malformed: u64,
    /// Records of kinds that no program can emit through the pipe.
    pub foreign: u64,
    /// Bytes of ring that were overwritten before a dump: where there are none, no record was.
    pub overwritten_bytes: u64,
    /// There is something in the ring, or held, that the consumer was not given yet.
    pub pending: bool,
}

impl LedgerEntry {
    fn of(
        entries: &mut BTreeMap<(u32, RecordKind), Self>,
        cpu: u32,
        kind: RecordKind,
    ) -> &mut Self {
        let empty = Self { cpu, kind, tally: KindTally::default(), handled: 0, overwritten: 0 };
        entries.entry((cpu, kind)).or_insert(empty)
    }

    fn is_empty(&self) -> bool {
        self.tally == KindTally::default() && self.handled == 0
    }

    /// Records that were sent and not handled, nor overwritten.
    pub fn unread(&self) -> u64 {
        self.tally.sent.saturating_sub(self.handled + self.overwritten)
    }
}

impl LedgerCpu {
    fn new(cpu: u32) -> Self {
        Self {
            cpu,
            outputs: OutputTally::default(),
            // Where there never was an event, there was no full ring.
            kernel_lost: Some(0),
            malformed: 0,
            foreign: 0,
            overwritten_bytes: 0,
            pending: false,
        }
    }

    fn of(cpus: &mut BTreeMap<u32, Self>, cpu: u32) -> &mut Self {
        cpus.entry(cpu).or_insert_with(|| Self::new(cpu))
    }

    /// Whether the kernel, where it counts, has counted what the eBPF side has.
    pub fn agrees(&self) -> bool {
        let failed = self.outputs.failed_for(FailureClass::NoSpace);
        self.kernel_lost.is_none_or(|lost| lost == failed)
    }
}

/// What the eBPF side has counted since a pipe was opened over it.
#[derive(Debug)]
pub(crate) struct Books {
    tally: Arc<Tally>,
    /// What had been counted by then, for earlier pipes or for nobody.
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

impl Books {
    /// Opens books of what was loaded, if it counts: before the maps have events.
    pub(crate) fn of_parts(parts: &PipeParts) -> Result<Option<Arc<Self>>, TallyError> {
        let tally = parts.tally.clone();
        Ok(tally.map(Self::open).transpose()?.map(Arc::new))
    }

    /// Opens books in which nothing is: before a map has events.
    pub(crate) fn open(tally: Arc<Tally>) -> Result<Self, TallyError> {
        let before = Counted::read(&tally)?;
        Ok(Self { tally, before })
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What a CPU has counted of outputs that failed.
    pub(crate) fn outputs_of(&self, cpu: u32) -> Result<OutputTally, TallyError> {
        let outputs = self.tally.outputs()?;
        let counted = outputs.iter().find(|counted| counted.cpu == cpu);
        Ok(counted.map(|counted| self.outputs_since(cpu, &counted.tally)).unwrap_or_default())
    }

    /// How many outputs a CPU has counted that found no room; `None` where the count cannot be read.
    pub(crate) fn lost_outputs(&self, cpu: u32) -> Option<u64> {
        Some(self.outputs_of(cpu).ok()?.failed_for(FailureClass::NoSpace))
    }

    fn outputs_since(&self, cpu: u32, now: &OutputTally) -> OutputTally {
        now.since(self.before.outputs.get(&cpu).unwrap_or(&OutputTally::default()))
    }

    /// What each CPU has sent of each kind.
    pub(crate) fn sent(&self) -> Result<BTreeMap<(u32, RecordKind), u64>, TallyError> {
        let counted = Counted::read(&self.tally)?;
        let sent = counted.records.into_iter().map(|(of, now)| {
            let before = self.before.records.get(&of).map_or(0, |before| before.sent);
            (of, now.sent.wrapping_sub(before))
        });
        Ok(sent.collect())
    }

    /// Reads them, beside what the queues have counted.
    pub(crate) fn read<'q>(
        &self,
        queues: impl Iterator<Item = &'q EvQueue> + Clone,
    ) -> Result<Ledger, TallyError> {
        // What the consumer has counted first: it can only have handled what was sent before.
        let mut entries: BTreeMap<(u32, RecordKind), LedgerEntry> = BTreeMap::new();
        let mut cpus: BTreeMap<u32, LedgerCpu> = BTreeMap::new();
        for queue in queues.clone() {
            let cpu = queue.cpu();
            for (kind, count) in queue.kinds().iter() {
                LedgerEntry::of(&mut entries, cpu, kind).handled = count;
            }
            for (kind, count) in queue.uncounted() {
                LedgerEntry::of(&mut entries, cpu, kind).tally.sent += count;
            }
            for (kind, count) in queue.overwritten().iter() {
                LedgerEntry::of(&mut entries, cpu, kind).overwritten = count;
            }
            let entry = LedgerCpu::of(&mut cpus, cpu);
            entry.overwritten_bytes = queue.overwritten_bytes();
            entry.kernel_lost = queue.kernel_lost();
            entry.malformed = queue.counts().malformed;
            entry.foreign = queue.kinds().other();
        }
        let counted = Counted::read(&self.tally)?;
        for (&(cpu, kind), now) in &counted.records {
            let nothing = KindTally::default();
            let before = self.before.records.get(&(cpu, kind)).unwrap_or(&nothing);
            LedgerEntry::of(&mut entries, cpu, kind).tally += now.since(before);
        }
        for (&cpu, now) in &counted.outputs {
            LedgerCpu::of(&mut cpus, cpu).outputs = self.outputs_since(cpu, now);
        }
        // Last: what is in no ring now was not sent after the consumer's count was read.
        for queue in queues {
            LedgerCpu::of(&mut cpus, queue.cpu()).pending = queue.has_records();
        }
        let entries = entries.into_values().filter(|entry| !entry.is_empty()).collect();
        let cpus = cpus.into_values().filter(|cpu| *cpu != LedgerCpu::new(cpu.cpu)).collect();
        Ok(Ledger { entries, cpus })
    }
}

impl Ledger {
    /// A record that was taken out of its ring was not given to the consumer after all.
    pub(crate) fn not_given(&mut self, cpu: u32, kind: RecordKind) {
        let of_it = |entry: &&mut LedgerEntry| (entry.cpu, entry.kind) == (cpu, kind);
        if let Some(entry) = self.entries.iter_mut().find(of_it) {
            entry.handled = entry.handled.saturating_sub(1);
        }
        match self.cpus.iter_mut().find(|entry| entry.cpu == cpu) {
            Some(entry) => entry.pending = true,
            None => {
                let at = self.cpus.partition_point(|entry| entry.cpu < cpu);
                self.cpus.insert(at, LedgerCpu { pending: true, ..LedgerCpu::new(cpu) });
            }
        }
    }

    /// What the eBPF side counted, of all CPUs and kinds.
    pub fn tally(&self) -> KindTally {
        self.entries.iter().fold(KindTally::default(), |mut sum, entry| {
            sum += entry.tally;
            sum
        })
    }

    /// Records that were attempted.
    pub fn attempted(&self) -> u64 {
        self.tally().attempted()
    }

    /// Records that were given to the consumer.
    pub fn handled(&self) -> u64 {
        self.entries.iter().map(|entry| entry.handled).sum()
    }

    /// Records that were sent, and overwritten before a dump.
    pub fn overwritten(&self) -> u64 {
        self.entries.iter().map(|entry| entry.overwritten).sum()
    }

    /// Records that were not sent, for whatever reason.
    pub fn failed(&self) -> u64 {
        self.tally().failed()
    }

    /// Records that were sent and not handled, nor overwritten: they are in the rings, or, if the pipe is closed, were
    /// when the consumer broke.
    pub fn unread(&self) -> u64 {
        self.entries.iter().map(LedgerEntry::unread).sum()
    }

    /// How often malformed bytes were skipped.
    pub fn malformed(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.malformed).sum()
    }

    /// Whether the books balance: every record that was attempted was handled, failed for a reason
    /// that is known, or is in a ring still. What does not balance, [`discrepancies`] tells.
    ///
    /// [`discrepancies`]: Self::discrepancies
    pub fn is_complete(&self) -> bool {
        self.discrepancies().is_empty()
    }

    /// Whether the kernel has confirmed how many outputs were lost. If not, this rests on the eBPF
    /// side's count alone.
    pub fn is_confirmed(&self) -> bool {
        self.cpus.iter().all(|cpu| cpu.kernel_lost.is_some())
    }

    /// What does not balance.
    pub fn discrepancies(&self) -> Vec<Discrepancy> {
        let mut found = Vec::new();
        for &LedgerCpu { cpu, malformed, foreign, .. } in &self.cpus {
            if malformed > 0 {
                found.push(Discrepancy::Malformed { cpu, times: malformed });
            }
            if foreign > 0 {
                found.push(Discrepancy::Foreign { cpu, records: foreign });
            }
        }
        for cpu in self.cpus.iter().filter(|cpu| !cpu.agrees()) {
            let counted = cpu.outputs.failed_for(FailureClass::NoSpace);
            let kernel = cpu.kernel_lost.unwrap_or(0);
            found.push(Discrepancy::Lost { cpu: cpu.cpu, counted, kernel });
        }
        for entry in &self.entries {
            let (cpu, kind, sent, handled) =
                (entry.cpu, entry.kind, entry.tally.sent, entry.handled + entry.overwritten);
            let is_pending = || self.cpus.iter().any(|entry| entry.cpu == cpu && entry.pending);
            if handled > sent {
                found.push(Discrepancy::Surplus { cpu, kind, records: handled - sent });
            } else if sent > handled && !is_pending() {
                found.push(Discrepancy::Missing { cpu, kind, records: sent - handled });
            }
        }
        found
    }
}

/// Where two counts that have to be equal are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Discrepancy {
    /// Malformed bytes were skipped: nobody knows how many records they were.
    Malformed {
        /// The CPU.
        cpu: u32,
        /// How often.
        times: u64,
    },
    /// Records came of kinds that no program can emit through the pipe.
    Foreign {
        /// The CPU.
        cpu: u32,
        /// How many.
        records: u64,
    },
    /// The kernel and the eBPF side disagree about how many outputs were lost.
    Lost {
        /// The CPU.
        cpu: u32,
        /// As the eBPF side counted.
        counted: u64,
        /// As the kernel counted.
        kernel: u64,
    },
    /// More was handled than was sent.
    Surplus {
        /// The CPU.
        cpu: u32,
        /// The kind.
        kind: RecordKind,
        /// How many more.
        records: u64,
    },
    /// Less was handled than was sent, and nothing is left in the ring.
    Missing {
        /// The CPU.
        cpu: u32,
        /// The kind.
        kind: RecordKind,
        /// How many less.
        records: u64,
    },
}

impl fmt::Display for Discrepancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { cpu, times } => {
                write!(f, "malformed bytes skipped {times} times on CPU {cpu}")
            }
            Self::Foreign { cpu, records } => {
                write!(f, "{records} records of unknown kinds on CPU {cpu}")
            }
            Self::Lost { cpu, counted, kernel } => {
                write!(
                    f,
                    "the kernel counted {kernel} lost outputs on CPU {cpu}, the eBPF side {counted}"
                )
            }
            Self::Surplus { cpu, kind, records } => {
                write!(f, "{records} records of kind {kind} too many on CPU {cpu}")
            }
            Self::Missing { cpu, kind, records } => {
                write!(f, "{records} records of kind {kind} missing on CPU {cpu}")
            }
        }
    }
}

/// `attempted 12 = handled 10 + lost 2 (ring full 2); complete`
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = self.tally();
        write!(
            f,
            "attempted {} = handled {} + lost {}",
            tally.attempted(),
            self.handled(),
            tally.failed()
        )?;
        let mut classes =
            FailureClass::ALL.into_iter().filter(|&class| tally.failed_for(class) > 0);
        if let Some(first) = classes.next() {
            write!(f, " ({} {}", first.name(), tally.failed_for(first))?;
            for class in classes {
                write!(f, ", {} {}", class.name(), tally.failed_for(class))?;
            }
            write!(f, ")")?;
        }
        let overwritten = self.overwritten();
        if overwritten > 0 {
            write!(f, " + overwritten {overwritten}")?;
        }
        let unread = self.unread();
        if unread > 0 {
            write!(f, " + unread {unread}")?;
        }
        match self.discrepancies().as_slice() {
            [] if self.is_confirmed() => write!(f, "; complete"),
            [] => write!(f, "; complete, by the count of the eBPF side alone"),
            [first, rest @ ..] => {
                write!(f, "; INCOMPLETE: {first}")?;
                rest.iter().try_for_each(|one| write!(f, ", {one}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: RecordKind = RecordKind::user(0);

    /// One CPU that lost 2 outputs with 3 records.
    fn ledger() -> Ledger {
        let mut tally = KindTally { sent: 10, ..KindTally::default() };
        tally.failed[FailureClass::NoSpace as usize] = 2;
        tally.failed[FailureClass::Nested as usize] = 1;
        let mut cpu = LedgerCpu { kernel_lost: Some(1), ..LedgerCpu::new(3) };
        cpu.outputs.failed[FailureClass::NoSpace as usize] = 1;
        cpu.outputs.lost_records = 2;
        let entries = vec![LedgerEntry { cpu: 3, kind: KIND, tally, handled: 10, overwritten: 0 }];
        Ledger { entries, cpus: vec![cpu] }
    }

    #[test]
    fn it_says_what_failed_and_why() {
        let empty = Ledger::default();
        assert_eq!(empty.to_string(), "attempted 0 = handled 0 + lost 0; complete");
        let said = "attempted 13 = handled 10 + lost 3 (ring full 2, nested too deep 1); complete";
        assert_eq!(ledger().to_string(), said);
        assert!(ledger().is_complete() && ledger().is_confirmed());
    }

    #[test]
    fn it_says_what_it_rests_on() {
        let mut ledger = ledger();
        ledger.cpus[0].kernel_lost = None;
        assert!(ledger.is_complete() && !ledger.is_confirmed());
        let said = ledger.to_string();
        assert!(said.ends_with("; complete, by the count of the eBPF side alone"), "{said}");
    }

    #[test]
    fn it_says_where_counts_differ() {
        let check = |change: fn(&mut Ledger), expected: &[Discrepancy], end: &str| {
            let mut ledger = ledger();
            change(&mut ledger);
            assert_eq!(ledger.discrepancies(), expected);
            let said = ledger.to_string();
            assert!(said.ends_with(&format!("; INCOMPLETE: {end}")), "{said}");
        };
        check(
            |ledger| ledger.entries[0].handled = 9,
            &[Discrepancy::Missing { cpu: 3, kind: KIND, records: 1 }],
            "1 records of kind 0x1000 missing on CPU 3",
        );
        check(
            |ledger| ledger.entries[0].handled = 11,
            &[Discrepancy::Surplus { cpu: 3, kind: KIND, records: 1 }],
            "1 records of kind 0x1000 too many on CPU 3",
        );
        check(
            |ledger| ledger.cpus[0].kernel_lost = Some(4),
            &[Discrepancy::Lost { cpu: 3, counted: 1, kernel: 4 }],
            "the kernel counted 4 lost outputs on CPU 3, the eBPF side 1",
        );
        check(
            |ledger| (ledger.cpus[0].malformed, ledger.cpus[0].foreign) = (1, 2),
            &[
                Discrepancy::Malformed { cpu: 3, times: 1 },
                Discrepancy::Foreign { cpu: 3, records: 2 },
            ],
            "malformed bytes skipped 1 times on CPU 3, 2 records of unknown kinds on CPU 3",
        );
    }

    #[test]
    fn what_was_held_and_not_given_is_unread() {
        let mut ledger = ledger();
        ledger.cpus.clear();
        (0..6).for_each(|_| ledger.not_given(3, KIND));
        assert_eq!((ledger.handled(), ledger.unread()), (4, 6));
        assert_eq!((ledger.cpus.len(), ledger.cpus[0].cpu), (1, 3));
        let said = "attempted 13 = handled 4 + lost 3 (ring full 2, nested too deep 1) + unread 6; complete";
        assert_eq!(ledger.to_string(), said);
    }

    #[test]
    fn what_was_overwritten_is_neither_lost_nor_missing() {
        let mut ledger = ledger();
        (ledger.entries[0].handled, ledger.entries[0].overwritten) = (4, 6);
        assert!(ledger.is_complete());
        assert_eq!((ledger.overwritten(), ledger.unread(), ledger.failed()), (6, 0, 3));
        let said = "attempted 13 = handled 4 + lost 3 (ring full 2, nested too deep 1) + overwritten 6; complete";
        assert_eq!(ledger.to_string(), said);
        ledger.entries[0].overwritten = 7;
        assert!(matches!(ledger.discrepancies()[..], [Discrepancy::Surplus { records: 1, .. }]));
        ledger.entries[0].overwritten = 5;
        assert!(matches!(ledger.discrepancies()[..], [Discrepancy::Missing { records: 1, .. }]));
    }

    #[test]
    fn what_is_in_a_ring_is_not_missing() {
        let mut ledger = ledger();
        ledger.entries[0].handled = 4;
        ledger.cpus[0].pending = true;
        assert!(ledger.is_complete());
        assert!(ledger.to_string().contains(" + unread 6; complete"), "{ledger}");
    }
}
