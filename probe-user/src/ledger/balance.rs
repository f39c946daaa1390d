//! The ledger: what happened to every record.

use probe_common::RecordKind;
use probe_common::tally::{FailureClass, KindTally, OutputTally};
use std::collections::BTreeMap;
use std::fmt;

/// What happened to every record that was attempted since the pipe was opened, by CPU and kind.
///
/// Two sides count independently. The eBPF programs count what they attempted, what they sent, and what they
/// could not send and why. The consumer counts what it received. The kernel adds a third count: the outputs
/// that it had no room for. The accounts balance if:
///
/// - for each CPU and kind, every attempted record was sent or failed;
/// - for each CPU and kind, every sent record was handled, was part of malformed bytes that were skipped, or
///   was overwritten because the ring of a flight recorder had no room for it;
/// - for each CPU, as many outputs failed for lack of room as the kernel reports lost.
///
/// Records that were sent but not handled yet are [`unread`](Self::unread). Records in blocks that are not
/// sent yet are in no count. While a program is about to count what it has just sent, more records may be
/// handled than sent. The accounts are therefore exact only when no program emits, as at
/// [`EvPipe::close`](crate::EvPipe::close).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ledger {
    /// Sorted by CPU, then by kind. Entries without any count are left out.
    pub entries: Vec<LedgerEntry>,
    /// Sorted by CPU. CPUs without any count are left out.
    pub cpus: Vec<LedgerCpu>,
}

/// What happened to one CPU's records of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerEntry {
    /// The CPU.
    pub cpu: u32,
    /// The kind.
    pub kind: RecordKind,
    /// What the eBPF side counted.
    pub tally: KindTally,
    /// Records that were delivered to the consumer.
    pub handled: u64,
    /// Records that newer ones replaced before a dump, as [`Options::overwrite`] allows: at the time of the
    /// last dump, the records that were sent but not found in the ring.
    ///
    /// [`Options::overwrite`]: crate::Options::overwrite
    pub overwritten: u64,
}

/// What happened to one CPU's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerCpu {
    /// The CPU.
    pub cpu: u32,
    /// Failed outputs, as counted by the eBPF side.
    pub outputs: OutputTally,
    /// Outputs that the kernel had no room for, as the kernel counted (`PERF_FORMAT_LOST`). `None` on kernels that do
    /// not report them (before 6.0, except Debian's 5.10), and in the ledger of a [`Meter`](crate::ledger::Meter).
    pub kernel_lost: Option<u64>,
    /// How often malformed bytes were skipped, and how many records were shorter than their type.
    pub malformed: u64,
    /// Records of kinds that no program can emit through the pipe.
    pub foreign: u64,
    /// Bytes of ring that were overwritten before a dump. If 0, no record was overwritten.
    pub overwritten_bytes: u64,
    /// Whether anything in the ring, or held for ordering, has not reached the consumer yet.
    pub pending: bool,
}

impl LedgerEntry {
    pub(super) fn of(
        entries: &mut BTreeMap<(u32, RecordKind), Self>,
        cpu: u32,
        kind: RecordKind,
    ) -> &mut Self {
        let empty = Self { cpu, kind, tally: KindTally::default(), handled: 0, overwritten: 0 };
        entries.entry((cpu, kind)).or_insert(empty)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tally == KindTally::default() && self.handled == 0
    }

    /// Records that were sent but neither handled nor overwritten.
    pub fn unread(&self) -> u64 {
        self.tally.sent.saturating_sub(self.handled + self.overwritten)
    }
}

impl LedgerCpu {
    pub(super) fn new(cpu: u32) -> Self {
        Self {
            cpu,
            outputs: OutputTally::default(),
            // A CPU that never had an event never had a full ring.
            kernel_lost: Some(0),
            malformed: 0,
            foreign: 0,
            overwritten_bytes: 0,
            pending: false,
        }
    }

    pub(super) fn of(cpus: &mut BTreeMap<u32, Self>, cpu: u32) -> &mut Self {
        cpus.entry(cpu).or_insert_with(|| Self::new(cpu))
    }

    /// Whether the kernel's count of lost outputs, if there is one, equals that of the eBPF side.
    pub fn agrees(&self) -> bool {
        let failed = self.outputs.failed_for(FailureClass::NoSpace);
        self.kernel_lost.is_none_or(|lost| lost == failed)
    }
}

impl Ledger {
    /// Corrects the ledger for a record that was taken out of its ring but not delivered to the consumer.
    pub(crate) fn not_delivered(&mut self, cpu: u32, kind: RecordKind) {
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| (entry.cpu, entry.kind) == (cpu, kind)) {
            entry.handled = entry.handled.saturating_sub(1);
        }
        self.cpu(cpu).pending = true;
    }

    /// Counts records that were delivered, but are no records of their kind.
    pub(crate) fn reject(&mut self, cpu: u32, records: u64) {
        self.cpu(cpu).malformed += records;
    }

    /// The entry of a CPU, which is added if there is none.
    fn cpu(&mut self, cpu: u32) -> &mut LedgerCpu {
        let at = self.cpus.partition_point(|entry| entry.cpu < cpu);
        if self.cpus.get(at).is_none_or(|entry| entry.cpu != cpu) {
            self.cpus.insert(at, LedgerCpu::new(cpu));
        }
        &mut self.cpus[at]
    }

    /// What the eBPF side counted, summed over all CPUs and kinds.
    pub fn tally(&self) -> KindTally {
        let mut sum = KindTally::default();
        self.entries.iter().for_each(|entry| sum += entry.tally);
        sum
    }

    /// Records that were attempted.
    pub fn attempted(&self) -> u64 {
        self.tally().attempted()
    }

    /// Records that were delivered to the consumer.
    pub fn handled(&self) -> u64 {
        self.entries.iter().map(|entry| entry.handled).sum()
    }

    /// Records that were sent, but overwritten before a dump.
    pub fn overwritten(&self) -> u64 {
        self.entries.iter().map(|entry| entry.overwritten).sum()
    }

    /// Records that were not sent, for any reason.
    pub fn failed(&self) -> u64 {
        self.tally().failed()
    }

    /// Records that were sent but neither handled nor overwritten. They are still in the rings or, after the
    /// pipe was closed, were there when the consumer broke.
    pub fn unread(&self) -> u64 {
        self.entries.iter().map(LedgerEntry::unread).sum()
    }

    /// How often malformed bytes were skipped.
    pub fn malformed(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.malformed).sum()
    }

    /// Whether every attempted record was handled, or was overwritten as a flight recorder is asked to.
    pub fn is_complete(&self) -> bool {
        self.failed() == 0 && self.unread() == 0 && self.balances()
    }

    /// Whether the accounts balance: every attempted record was handled or overwritten, failed for a known
    /// reason, or is still in a ring. [`discrepancies`] returns what does not balance.
    ///
    /// [`discrepancies`]: Self::discrepancies
    pub fn balances(&self) -> bool {
        self.discrepancies().is_empty()
    }

    /// Whether the kernel has confirmed the number of lost outputs. If not, the ledger relies on the eBPF
    /// side's count alone.
    pub fn is_confirmed(&self) -> bool {
        self.cpus.iter().all(|cpu| cpu.kernel_lost.is_some())
    }

    /// Everything that does not balance.
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

/// Two counts that must be equal but differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Discrepancy {
    /// Malformed bytes were skipped. The number of records in them is unknown.
    #[error("malformed bytes or records on CPU {cpu} (times: {times})")]
    Malformed {
        /// The CPU.
        cpu: u32,
        /// How often bytes were skipped.
        times: u64,
    },
    /// Records arrived whose kinds no program can emit through the pipe.
    #[error("CPU {cpu} delivered records of unknown kinds (records: {records})")]
    Foreign {
        /// The CPU.
        cpu: u32,
        /// How many records.
        records: u64,
    },
    /// The kernel and the eBPF side disagree about how many outputs were lost.
    #[error("the kernel counted {kernel} lost outputs on CPU {cpu}, the eBPF side {counted}")]
    Lost {
        /// The CPU.
        cpu: u32,
        /// The eBPF side's count.
        counted: u64,
        /// The kernel's count.
        kernel: u64,
    },
    /// More records were handled than sent.
    #[error("more records of kind {kind} were handled than sent on CPU {cpu} (surplus: {records})")]
    Surplus {
        /// The CPU.
        cpu: u32,
        /// The kind.
        kind: RecordKind,
        /// How many more.
        records: u64,
    },
    /// Fewer records were handled than sent, and nothing is left in the ring.
    #[error(
        "fewer records of kind {kind} were handled than sent on CPU {cpu} (missing: {records})"
    )]
    Missing {
        /// The CPU.
        cpu: u32,
        /// The kind.
        kind: RecordKind,
        /// How many fewer.
        records: u64,
    },
}

/// `attempted 12 = handled 10 + lost 2 (ring full 2); incomplete`
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = self.tally();
        let (attempted, failed) = (tally.attempted(), tally.failed());
        write!(f, "attempted {attempted} = handled {} + lost {failed}", self.handled())?;
        let counts = FailureClass::ALL.map(|class| (class.name(), tally.failed_for(class)));
        let counts = counts.into_iter().filter(|&(_, count)| count > 0);
        let counts: Vec<_> = counts.map(|(name, count)| format!("{name} {count}")).collect();
        if !counts.is_empty() {
            write!(f, " ({})", counts.join(", "))?;
        }
        for (name, count) in [("overwritten", self.overwritten()), ("unread", self.unread())] {
            if count > 0 {
                write!(f, " + {name} {count}")?;
            }
        }
        f.write_str(if self.is_complete() { "; complete" } else { "; incomplete" })?;
        match self.discrepancies().as_slice() {
            [] if self.is_confirmed() => Ok(()),
            [] => f.write_str(", by the count of the eBPF side alone"),
            found => {
                let found: Vec<_> = found.iter().map(Discrepancy::to_string).collect();
                write!(f, ", and the counts do not balance: {}", found.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: RecordKind = RecordKind::user(0);

    /// A CPU that sent 10 of 13 records: 2 were lost in one output, and 1 was nested too deep.
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
    fn failures_are_printed_by_class() {
        let empty = Ledger::default();
        assert_eq!(empty.to_string(), "attempted 0 = handled 0 + lost 0; complete");
        let printed =
            "attempted 13 = handled 10 + lost 3 (ring full 2, nested too deep 1); incomplete";
        assert_eq!(ledger().to_string(), printed);
        assert!(ledger().balances() && ledger().is_confirmed());
        assert!(empty.is_complete() && !ledger().is_complete());
    }

    #[test]
    fn an_unconfirmed_ledger_says_so() {
        let mut ledger = ledger();
        ledger.cpus[0].kernel_lost = None;
        assert!(ledger.balances() && !ledger.is_confirmed());
        let printed = ledger.to_string();
        assert!(
            printed.ends_with("; incomplete, by the count of the eBPF side alone"),
            "{printed}"
        );
    }

    #[test]
    fn discrepancies_are_printed() {
        let check = |change: fn(&mut Ledger), expected: &[Discrepancy], end: &str| {
            let mut ledger = ledger();
            change(&mut ledger);
            assert_eq!(ledger.discrepancies(), expected);
            let printed = ledger.to_string();
            assert!(
                printed.ends_with(&format!("; incomplete, and the counts do not balance: {end}")),
                "{printed}"
            );
        };
        check(
            |ledger| ledger.entries[0].handled = 9,
            &[Discrepancy::Missing { cpu: 3, kind: KIND, records: 1 }],
            "fewer records of kind 0x1000 were handled than sent on CPU 3 (missing: 1)",
        );
        check(
            |ledger| ledger.entries[0].handled = 11,
            &[Discrepancy::Surplus { cpu: 3, kind: KIND, records: 1 }],
            "more records of kind 0x1000 were handled than sent on CPU 3 (surplus: 1)",
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
            "malformed bytes or records on CPU 3 (times: 1), CPU 3 delivered records of unknown kinds (records: 2)",
        );
    }

    #[test]
    fn records_held_for_ordering_are_unread() {
        let mut ledger = ledger();
        ledger.cpus.clear();
        (0..6).for_each(|_| ledger.not_delivered(3, KIND));
        assert_eq!((ledger.handled(), ledger.unread()), (4, 6));
        assert_eq!((ledger.cpus.len(), ledger.cpus[0].cpu), (1, 3));
        let printed = "attempted 13 = handled 4 + lost 3 (ring full 2, nested too deep 1) + unread 6; incomplete";
        assert_eq!(ledger.to_string(), printed);
    }

    #[test]
    fn overwritten_records_are_neither_lost_nor_missing() {
        let mut ledger = ledger();
        (ledger.entries[0].handled, ledger.entries[0].overwritten) = (4, 6);
        assert!(ledger.balances());
        assert_eq!((ledger.overwritten(), ledger.unread(), ledger.failed()), (6, 0, 3));
        let printed = "attempted 13 = handled 4 + lost 3 (ring full 2, nested too deep 1) + overwritten 6; incomplete";
        assert_eq!(ledger.to_string(), printed);
        ledger.entries[0].overwritten = 7;
        assert!(matches!(ledger.discrepancies()[..], [Discrepancy::Surplus { records: 1, .. }]));
        ledger.entries[0].overwritten = 5;
        assert!(matches!(ledger.discrepancies()[..], [Discrepancy::Missing { records: 1, .. }]));
    }

    #[test]
    fn records_in_a_ring_are_not_missing() {
        let mut ledger = ledger();
        ledger.entries[0].handled = 4;
        ledger.cpus[0].pending = true;
        assert!(ledger.balances());
        assert!(ledger.to_string().contains(" + unread 6; incomplete"), "{ledger}");
    }
}
