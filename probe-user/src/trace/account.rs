//! What became of every hit, as it is told.

use super::ledger::Ledger;
use super::missed::Missed;
use crate::escape::Escaped;
use probe_common::tally::FailureClass;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What outputs tell of a [`Ledger`]: its sums, not what it has of each CPU. A recording ends with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Account {
    /// Records that were attempted.
    pub attempted: u64,
    /// Records that were given to the consumer.
    pub handled: u64,
    /// Records that were not sent.
    pub lost: u64,
    /// How many of these for which reason; without those for which there were none.
    pub reasons: BTreeMap<String, u64>,
    /// Records that were overwritten before a dump.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overwritten: u64,
    /// Records that were sent and not handled, nor overwritten.
    pub unread: u64,
    /// As [`Ledger::late`].
    pub late: u64,
    /// As [`Ledger::not_followed`].
    pub not_followed: u64,
    /// As [`Ledger::missed`].
    pub missed: Vec<Missed>,
    /// Whether it is known what became of every hit.
    pub complete: bool,
    /// Whether the kernel has confirmed how many outputs were lost.
    pub confirmed: bool,
    /// What does not balance.
    pub discrepancies: Vec<String>,
    /// What became of every record, in a line.
    records: String,
}

impl From<&Ledger> for Account {
    fn from(ledger: &Ledger) -> Self {
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
            complete: ledger.is_complete(),
            confirmed: records.is_confirmed(),
            discrepancies: records.discrepancies().iter().map(ToString::to_string).collect(),
            records: records.to_string(),
        }
    }
}

/// Whether there is nothing to tell.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "it is what serde calls")]
pub(in crate::trace) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// `attempted 12 = handled 10 + lost 2 (ring full 2); complete`, and how many came out of order, if any.
impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.not_followed > 0 {
            write!(f, "{} tasks not followed, for want of room; ", self.not_followed)?;
        }
        write!(f, "{}", Escaped(self.records.as_bytes()))?;
        match self.late {
            0 => Ok(()),
            1 => f.write_str("; 1 event out of order"),
            late => write!(f, "; {late} events out of order"),
        }
    }
}
