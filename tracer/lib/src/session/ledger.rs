//! The accounting of a trace that has ended.

use crate::session::missed::Missed;
use probe_common::tally::FailureClass;
use probe_sys::escape::Escaped;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Accounts for every hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceLedger {
    /// Accounts for every record.
    pub records: probe_user::ledger::Ledger,
    /// Events that arrived too late to be delivered in the order of time. They were delivered out of order. 0
    /// unless that order was requested.
    pub late: u64,
    /// Processes and threads that should have been followed, but found no room.
    pub not_followed: u64,
    /// The hits of each probe without a record, in the order of the probes' numbers.
    pub missed: Vec<Missed>,
    /// Hits of tracepoints and kernel functions that the kernel did not pass on, because another eBPF program was
    /// running on the CPU, in addition to those in `missed`. It counts them for all tasks, whatever a probe's
    /// condition. `None` if it does not count them (before 6.7).
    pub skipped: Option<u64>,
}

impl TraceLedger {
    /// Whether the outcome of every hit is known.
    pub fn is_complete(&self) -> bool {
        self.records.is_complete() && self.not_followed == 0
    }
}

/// A summary of a [`TraceLedger`] for outputs: the sums, without the details of each CPU. A
/// recording ends with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Account {
    /// Records that programs attempted to send.
    pub attempted: u64,
    /// Records that the consumer handled.
    pub handled: u64,
    /// Records that were not sent.
    pub lost: u64,
    /// The lost records by reason, without the reasons that did not occur.
    pub reasons: BTreeMap<String, u64>,
    /// Records that were overwritten before a dump.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overwritten: u64,
    /// Records that were sent, but neither handled nor overwritten.
    pub unread: u64,
    /// See [`TraceLedger::late`].
    pub late: u64,
    /// See [`TraceLedger::not_followed`].
    pub not_followed: u64,
    /// See [`TraceLedger::missed`].
    pub missed: Vec<Missed>,
    /// See [`TraceLedger::skipped`].
    #[serde(default)]
    pub skipped: Option<u64>,
    /// Whether the outcome of every hit is known.
    pub complete: bool,
    /// Whether the kernel has confirmed how many outputs were lost.
    pub confirmed: bool,
    /// Counts that do not balance.
    pub discrepancies: Vec<String>,
    /// The outcome of all records, in one line.
    records: String,
}

impl From<&TraceLedger> for Account {
    fn from(ledger: &TraceLedger) -> Self {
        let (records, tally) = (&ledger.records, ledger.records.tally());
        let failed = FailureClass::ALL.into_iter().filter(|&class| tally.failed_for(class) > 0);
        let reason =
            |class: FailureClass| (class.name().replace(' ', "_"), tally.failed_for(class));
        Self {
            attempted: tally.attempted(),
            handled: records.handled(),
            lost: tally.failed(),
            reasons: failed.map(reason).collect(),
            overwritten: records.overwritten(),
            unread: records.unread(),
            late: ledger.late,
            not_followed: ledger.not_followed,
            missed: ledger.missed.clone(),
            skipped: ledger.skipped,
            complete: ledger.is_complete(),
            confirmed: records.is_confirmed(),
            discrepancies: records.discrepancies().iter().map(ToString::to_string).collect(),
            records: records.to_string(),
        }
    }
}

/// For serde, which leaves zeros out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "it is what serde calls")]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// `attempted 12 = handled 10 + lost 2 (ring full 2); complete`, followed by the number of events
/// out of order, if any.
impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.not_followed > 0 {
            write!(f, "{} tasks not followed (no room); ", self.not_followed)?;
        }
        write!(f, "{}", Escaped(self.records.as_bytes()))?;
        match self.late {
            0 => Ok(()),
            1 => f.write_str("; 1 event out of order"),
            late => write!(f, "; {late} events out of order"),
        }
    }
}

/// Formats the same as [`Account`].
impl fmt::Display for TraceLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Account::from(self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::TraceLedger;

    #[test]
    fn late_events_and_unfollowed_tasks_are_printed() {
        let shown = |late, not_followed| {
            TraceLedger { late, not_followed, ..TraceLedger::default() }.to_string()
        };
        let nothing = "attempted 0 = handled 0 + lost 0; complete";
        assert_eq!(shown(0, 0), nothing);
        assert_eq!(shown(1, 0), format!("{nothing}; 1 event out of order"));
        assert_eq!(shown(7, 0), format!("{nothing}; 7 events out of order"));
        assert_eq!(shown(0, 2), format!("2 tasks not followed (no room); {nothing}"));
    }
}
