//! The tracer's goals relative to its peers.

use super::row::{Figure, Row, ratio};
use super::tool::Tool;
use serde::Serialize;

/// One of our figures divided by one of theirs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) what: &'static str,
    pub(super) ours: Tool,
    pub(super) theirs: Tool,
    pub(super) ratio: f64,
    /// The largest acceptable ratio, if there is one.
    #[serde(rename = "aim")]
    pub(super) goal: Option<f64>,
}

impl Comparison {
    pub(super) fn falls_short(&self) -> bool {
        self.goal.is_some_and(|goal| self.ratio > goal)
    }
}

/// A figure to compare, with the goals per peer.
struct Goal {
    what: &'static str,
    of: fn(&Row) -> Option<Figure>,
    peers: &'static [(Tool, f64)],
}

const GOALS: [Goal; 13] = [
    Goal {
        what: "slowdown of the traced program",
        of: |row| row.slowdown_s,
        peers: &[(Tool::Bpftrace, 0.6), (Tool::Perf, 0.6)],
    },
    Goal {
        what: "slowdown, in CPU time",
        of: |row| row.slowdown_cpu_s,
        peers: &[(Tool::Bpftrace, 0.6), (Tool::Perf, 0.6)],
    },
    Goal { what: "until the events are text", of: |row| row.text_s, peers: &[] },
    Goal { what: "tracer's CPU time", of: |row| row.cpu_s, peers: &[] },
    // In a flood, a part of what bpftrace has is the cost of dropping events.
    Goal { what: "run time of a hit, flood", of: |row| row.hit_ns, peers: &[] },
    Goal {
        what: "run time of a hit, steady",
        of: |row| row.paced_ns,
        peers: &[(Tool::Bpftrace, 0.5)],
    },
    Goal {
        what: "run time of a counted hit",
        of: |row| row.count_ns,
        peers: &[(Tool::Bpftrace, 0.8)],
    },
    Goal {
        what: "run time of a hit, kprobe",
        of: |row| row.dereference_ns,
        peers: &[(Tool::Bpftrace, 0.5)],
    },
    Goal { what: "beyond an empty program", of: |row| row.count_alone_ns, peers: &[] },
    Goal { what: "first event", of: |row| row.first_s, peers: &[(Tool::Bpftrace, 1.0 / 3.0)] },
    Goal { what: "stop, busy", of: |row| row.stop_s, peers: &[] },
    Goal { what: "resident, flood", of: |row| row.flood_kib, peers: &[(Tool::Bpftrace, 0.2)] },
    Goal { what: "resident, idle", of: |row| row.idle_kib, peers: &[(Tool::Bpftrace, 0.2)] },
];

/// Compares each of our tools with each of theirs, figure by figure.
pub(super) fn compare(rows: &[Row]) -> Vec<Comparison> {
    let (ours, theirs): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.tool.is_ours());
    let mut comparisons = Vec::new();
    for Goal { what, of, peers } in GOALS {
        for theirs in &theirs {
            for ours in &ours {
                let Some(ratio) = ratio(of(ours), of(theirs)) else { continue };
                let goal =
                    peers.iter().find(|(tool, _)| *tool == theirs.tool).map(|(_, goal)| *goal);
                let (ours, theirs) = (ours.tool, theirs.tool);
                comparisons.push(Comparison { what, ours, theirs, ratio, goal });
            }
        }
    }
    comparisons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracer::round::Outcomes;

    fn row(tool: Tool, slowdown: f64) -> Row {
        Row { slowdown_s: Figure::of([slowdown]), ..Row::new(&Outcomes::new(tool)) }
    }

    #[test]
    fn ours_is_compared_with_each_of_theirs() {
        let rows = [row(Tool::Probe, 0.5), row(Tool::Bpftrace, 12.0), row(Tool::Perf, 0.4)];
        let comparisons = compare(&rows);
        let results: Vec<_> = comparisons
            .iter()
            .map(|one| (one.what, one.theirs, one.ratio < 0.05, one.falls_short()))
            .collect();
        let what = "slowdown of the traced program";
        assert_eq!(results, [(what, Tool::Bpftrace, true, false), (what, Tool::Perf, false, true)]);
    }
}
