//! What the tracer is meant to reach, beside its peers.

use super::figure::{Figure, ratio};
use super::row::Row;
use super::tool::Tool;
use serde::Serialize;

/// A figure of ours by one of theirs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) what: &'static str,
    pub(super) ours: Tool,
    pub(super) theirs: Tool,
    pub(super) ratio: f64,
    /// At most this is aimed at, where anything is.
    pub(super) aim: Option<f64>,
}

impl Comparison {
    pub(super) fn falls_short(&self) -> bool {
        self.aim.is_some_and(|aim| self.ratio > aim)
    }
}

/// A figure that is compared, and what is aimed at beside whom.
struct Aim {
    what: &'static str,
    of: fn(&Row) -> Option<Figure>,
    beside: &'static [(Tool, f64)],
}

const AIMS: [Aim; 8] = [
    Aim {
        what: "slowdown of the traced",
        of: |row| row.slowdown_s,
        beside: &[(Tool::Bpftrace, 1.0 / 12.0), (Tool::Perf, 1.0)],
    },
    Aim {
        what: "slowdown, in CPU time",
        of: |row| row.slowdown_cpu_s,
        beside: &[(Tool::Bpftrace, 1.0 / 12.0), (Tool::Perf, 1.0)],
    },
    Aim { what: "until the events are text", of: |row| row.text_s, beside: &[] },
    Aim { what: "tracer's CPU time", of: |row| row.cpu_s, beside: &[] },
    Aim { what: "first event", of: |row| row.first_s, beside: &[(Tool::Bpftrace, 1.0 / 3.0)] },
    Aim { what: "stop, busy", of: |row| row.stop_s, beside: &[] },
    Aim { what: "resident, flood", of: |row| row.flood_kib, beside: &[(Tool::Bpftrace, 0.2)] },
    Aim { what: "resident, idle", of: |row| row.idle_kib, beside: &[(Tool::Bpftrace, 0.2)] },
];

/// Each of ours beside each of theirs, figure by figure.
pub(super) fn compare(rows: &[Row]) -> Vec<Comparison> {
    let (ours, theirs): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.tool.is_ours());
    let mut comparisons = Vec::new();
    for Aim { what, of, beside } in AIMS {
        for theirs in &theirs {
            for ours in &ours {
                let Some(ratio) = ratio(of(ours), of(theirs)) else { continue };
                let aim = beside.iter().find(|(tool, _)| *tool == theirs.tool).map(|(_, aim)| *aim);
                let (ours, theirs) = (ours.tool, theirs.tool);
                comparisons.push(Comparison { what, ours, theirs, ratio, aim });
            }
        }
    }
    comparisons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tool: Tool, slowdown: f64) -> Row {
        Row { slowdown_s: Figure::of([slowdown]), ..Row::empty(tool) }
    }

    #[test]
    fn ours_is_compared_with_each_of_theirs() {
        let rows = [row(Tool::Probe, 0.5), row(Tool::Bpftrace, 12.0), row(Tool::Perf, 0.4)];
        let comparisons = compare(&rows);
        let told: Vec<_> = comparisons
            .iter()
            .map(|one| (one.what, one.theirs, one.ratio < 0.05, one.falls_short()))
            .collect();
        let what = "slowdown of the traced";
        assert_eq!(told, [(what, Tool::Bpftrace, true, false), (what, Tool::Perf, false, true)]);
    }
}
