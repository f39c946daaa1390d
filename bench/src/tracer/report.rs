//! What a run came to: a row of figures for each tracer, and ours beside theirs.

use super::aim::{self, Comparison};
use super::figure::Figure;
use super::ring::{self, Enough};
use super::round::{Outcomes, Plan};
use super::table;
use super::tool::Tool;
use crate::machine::Machine;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) machine: Machine,
    pub(super) rounds: usize,
    /// Of dd, in a flood.
    pub(super) writes: u64,
    pub(super) versions: BTreeMap<String, String>,
    pub(super) rows: Vec<Row>,
    pub(super) comparisons: Vec<Comparison>,
    /// With which ring `probe` loses nothing, if it does with its own.
    pub(super) enough: Option<Enough>,
    /// Tracers that do not work here, and why.
    pub(super) missing: BTreeMap<String, String>,
    /// Measurements that came to an error.
    pub(super) failures: Vec<String>,
}

/// One tracer. A figure is absent where it was not measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) tool: Tool,
    /// dd by itself, right before each flood.
    pub(super) alone_s: Option<Figure>,
    pub(super) traced_s: Option<Figure>,
    /// What dd took longer than right before, by itself.
    pub(super) slowdown_s: Option<Figure>,
    /// The same in CPU time, which others on the machine take no part of.
    pub(super) slowdown_cpu_s: Option<Figure>,
    pub(super) wall_s: Option<Figure>,
    /// From the start until all events are text: `wall_s`, and another command where it takes one.
    pub(super) text_s: Option<Figure>,
    pub(super) cpu_s: Option<Figure>,
    pub(super) flood_kib: Option<Figure>,
    pub(super) idle_kib: Option<Figure>,
    pub(super) first_s: Option<Figure>,
    pub(super) stop_s: Option<Figure>,
    pub(super) idle_stop_s: Option<Figure>,
    /// In all rounds together.
    pub(super) printed: u64,
    pub(super) missing: u64,
    pub(super) out_of_order: u64,
    /// What the tracer says that it lost, in its own unit, in all rounds together.
    pub(super) own_losses: Option<u64>,
    /// In how many floods nothing was missing, and `probe` says so itself.
    pub(super) whole: usize,
    pub(super) floods: usize,
}

impl Row {
    #[cfg(test)]
    pub(super) fn empty(tool: Tool) -> Self {
        Self::new(&Outcomes::new(tool))
    }

    fn new(outcomes: &Outcomes) -> Self {
        let Outcomes { tool, floods, starts, idles, .. } = outcomes;
        Self {
            tool: *tool,
            alone_s: Figure::of(floods.iter().map(|one| one.alone_s)),
            traced_s: Figure::of(floods.iter().map(|one| one.traced_s)),
            slowdown_s: Figure::of(floods.iter().map(|one| one.slowdown_s())),
            slowdown_cpu_s: Figure::of(floods.iter().map(|one| one.slowdown_cpu_s())),
            wall_s: Figure::of(floods.iter().map(|one| one.wall_s)),
            text_s: Figure::of(floods.iter().map(|one| one.wall_s + one.text_s.unwrap_or(0.0))),
            cpu_s: Figure::of(floods.iter().map(|one| one.cpu_s)),
            flood_kib: Figure::of(floods.iter().map(|one| one.peak_kib as f64)),
            idle_kib: Figure::of(idles.iter().map(|one| one.peak_kib as f64)),
            first_s: Figure::of(starts.iter().map(|one| one.first_s)),
            stop_s: Figure::of(starts.iter().map(|one| one.stop_s)),
            idle_stop_s: Figure::of(idles.iter().map(|one| one.stop_s)),
            printed: floods.iter().map(|one| one.printed).sum(),
            missing: floods.iter().map(|one| one.missing).sum(),
            out_of_order: floods.iter().map(|one| one.out_of_order).sum(),
            own_losses: floods.iter().filter_map(|one| one.own_losses).reduce(|sum, one| sum + one),
            whole: floods.iter().filter(|one| one.is_whole()).count(),
            floods: floods.len(),
        }
    }
}

impl Report {
    /// Measures what works here.
    pub(super) fn new(plan: &Plan) -> Result<Self> {
        let (mut versions, mut missing) = (BTreeMap::new(), BTreeMap::new());
        let mut tools = Vec::new();
        for tool in Tool::ALL {
            match plan.try_out(tool) {
                Ok(version) => {
                    versions.insert(tool.to_string(), version);
                    tools.push(tool);
                }
                Err(error) => {
                    missing.insert(tool.to_string(), format!("{error:#}"));
                }
            }
        }
        let outcomes = plan.run(&tools)?;
        let rows = outcomes.iter().map(Row::new).collect::<Vec<_>>();
        Ok(Self {
            machine: Machine::read()?,
            rounds: plan.rounds,
            writes: plan.writes,
            versions,
            comparisons: aim::compare(&rows),
            rows,
            enough: ring::enough(plan, &outcomes)?,
            missing,
            failures: outcomes.into_iter().flat_map(|one| one.failures).collect(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, medians of {} rounds\n", self.machine, self.rounds)?;
        table::write(self, f)?;
        if let Some(Enough { bytes, floods }) = self.enough {
            writeln!(
                f,
                "\nprobe loses nothing with -B {bytes}: {floods} floods of {floods} were whole"
            )?;
        }
        for (tool, reason) in &self.missing {
            writeln!(f, "not measured: {tool}: {reason}")?;
        }
        for failure in &self.failures {
            writeln!(f, "failed: {failure}")?;
        }
        Ok(())
    }
}
