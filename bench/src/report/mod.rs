//! The results of a run: rows of medians, shown as a table, JSON or a chart.

pub(crate) mod chart;
mod ratios;
mod row;
pub(crate) mod table;

use crate::contender::Contender;
use crate::machine::Machine;
use crate::plan::{Outcomes, Plan};
use row::Row;
use serde::Serialize;
use std::fmt;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(crate) machine: Machine,
    pub(crate) rounds: u32,
    pub(crate) rows: Vec<Row>,
    /// Contenders that are not compiled in.
    pub(crate) missing: Vec<String>,
    /// Measurements that failed, with the error.
    pub(crate) failures: Vec<String>,
}

impl Report {
    pub(crate) fn new(machine: Machine, plan: &Plan, outcomes: Outcomes) -> Self {
        let mut failures = Vec::new();
        let rows = row::rows(outcomes, machine.cpus, &mut failures);
        let missing = plan.missing.iter().map(Contender::to_string).collect();
        Self { machine, rounds: plan.rounds, rows, missing, failures }
    }

    pub(crate) fn row(&self, contender: Contender, producers: usize) -> Option<&Row> {
        self.rows.iter().find(|row| {
            row.is_of(contender)
                && row.producers == producers
                && row.payload == crate::plan::PAYLOAD
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, medians of {} rounds\n", self.machine, self.rounds)?;
        table::write(self, f)?;
        ratios::write(self, f)?;
        if !self.missing.is_empty() {
            writeln!(f, "\nnot measured, built without libbpf: {}", self.missing.join(", "))?;
        }
        for failure in &self.failures {
            writeln!(f, "failed: {failure}")?;
        }
        Ok(())
    }
}
