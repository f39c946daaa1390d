//! The accounting of a trace that has ended.

use crate::session::missed::Missed;
use probe_common::tally::FailureClass;
use probe_sys::escape::Escaped;
use probe_sys::hint::counted;
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
    /// Hits of tracepoints and kernel functions that the kernel did not pass on, in addition to those in `missed`:
    /// another eBPF program was running on the CPU, or, at returns from the functions of a pattern, too many calls were
    /// under way. It counts them for all tasks, whatever a probe's condition. `None` if it does not count them (before 6.7).
    pub skipped: Option<u64>,
}

/// Whether a trace has everything that it should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// Every hit has an event.
    Complete,
    /// Every hit that reached a program of the trace has an event. The kernel skipped others before any program ran.
    ExceptSkipped,
    /// Events are missing, or counts do not balance.
    #[default]
    Incomplete,
}

impl TraceLedger {
    /// Whether the trace has everything that it should. Hits that were sampled out, and calls that have not returned,
    /// are not missing.
    pub fn verdict(&self) -> Verdict {
        let is_whole = |missed: &Missed| missed.no_room == 0 && missed.undecided == 0;
        let is_skipped = |missed: &Missed| missed.by_kernel.unwrap_or(0) > 0;
        if !self.records.is_complete() || self.not_followed > 0 || !self.missed.iter().all(is_whole)
        {
            return Verdict::Incomplete;
        }
        match self.skipped.unwrap_or(0) > 0 || self.missed.iter().any(is_skipped) {
            true => Verdict::ExceptSkipped,
            false => Verdict::Complete,
        }
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
    /// Whether the trace has everything that it should.
    #[serde(default)]
    pub verdict: Verdict,
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
        let reason = |class: FailureClass| (reason_key(class), tally.failed_for(class));
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
            verdict: ledger.verdict(),
            confirmed: records.is_confirmed(),
            discrepancies: records.discrepancies().iter().map(ToString::to_string).collect(),
            records: match ledger.verdict() {
                // Every record may be there, and some hits without one.
                Verdict::Incomplete => {
                    records.to_string().replacen("; complete", "; incomplete", 1)
                }
                _ => records.to_string(),
            },
        }
    }
}

/// What a reason for failures is called in JSON.
pub(crate) fn reason_key(class: FailureClass) -> String {
    class.name().replace(' ', "_")
}

/// For serde, which leaves zeros out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "it is what serde calls")]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// `attempted 12 = handled 10 + lost 2 (ring full 2); incomplete`, followed by the number of events out of order, if any.
impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.not_followed > 0 {
            write!(f, "{} not followed (no room); ", counted(self.not_followed, "task"))?;
        }
        write!(f, "{}", Escaped(self.records.as_bytes()))?;
        if self.verdict == Verdict::ExceptSkipped {
            f.write_str(", except for hits that the kernel skipped")?;
        }
        match self.late {
            0 => Ok(()),
            late => write!(f, "; {} out of order", counted(late, "event")),
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
    use super::{Missed, TraceLedger, Verdict};

    #[test]
    fn late_events_and_unfollowed_tasks_are_printed() {
        let shown = |late, not_followed| {
            TraceLedger { late, not_followed, ..TraceLedger::default() }.to_string()
        };
        let nothing = "attempted 0 = handled 0 + lost 0; complete";
        assert_eq!(shown(0, 0), nothing);
        assert_eq!(shown(1, 0), format!("{nothing}; 1 event out of order"));
        assert_eq!(shown(7, 0), format!("{nothing}; 7 events out of order"));
        let incomplete = nothing.replace("complete", "incomplete");
        assert_eq!(shown(0, 2), format!("2 tasks not followed (no room); {incomplete}"));
    }

    #[test]
    fn there_are_three_verdicts() {
        let of = |missed: Missed, skipped| {
            let ledger = TraceLedger { missed: vec![missed], skipped, ..TraceLedger::default() };
            (ledger.verdict(), ledger.to_string())
        };
        let nothing = Missed::default();
        assert_eq!(of(nothing, None).0, Verdict::Complete);
        let withheld = Missed { sampled_out: 3, no_return: 2, by_kernel: Some(0), ..nothing };
        assert_eq!(of(withheld, Some(0)).0, Verdict::Complete);
        for (missed, skipped) in
            [(nothing, Some(1)), (Missed { by_kernel: Some(1), ..nothing }, None)]
        {
            let (verdict, text) = of(missed, skipped);
            assert_eq!(verdict, Verdict::ExceptSkipped);
            assert!(
                text.ends_with("; complete, except for hits that the kernel skipped"),
                "{text}"
            );
        }
        for missed in [Missed { no_room: 1, ..nothing }, Missed { undecided: 1, ..nothing }] {
            let (verdict, text) = of(missed, Some(1));
            assert_eq!(verdict, Verdict::Incomplete);
            assert!(text.ends_with("; incomplete"), "{text}");
        }
    }
}
