//! What a run came to.

use super::aim::{self, Comparison};
use super::ring::{self, Enough};
use super::round::Plan;
use super::row::Row;
use super::tool::Tool;
use crate::machine::Machine;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;

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
