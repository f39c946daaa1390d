//! Which probes a trace has, by number, and what each of them reads.

use super::error::TraceError;
use super::expand::{Choice, Expansion, LeftOut};
use super::planner::Planner;
use super::probe::Probe;
use super::resolve::Plan;
use super::spec::ProbeSpec;
use probe_common::fetch::FetchTable;
use std::ops::Range;

/// The probes of a trace.
#[derive(Debug, Default)]
pub(super) struct Selection {
    pub(super) probes: Vec<Probe>,
    pub(super) tables: Vec<FetchTable>,
    pub(super) groups: Vec<Group>,
}

/// Probes that one spec asked for.
#[derive(Debug)]
pub(super) struct Group {
    /// Their numbers.
    pub(super) numbers: Range<usize>,
    /// What is left out, if they are what a pattern stands for.
    pub(super) left_out: Option<LeftOut>,
}

impl Selection {
    /// What `specs` stand for, of which `choice` makes a choice; each as `plan` has it.
    pub(super) fn new(
        specs: &[ProbeSpec],
        choice: &Choice,
        planner: &mut Planner,
        plan: impl Fn(&mut Planner, &ProbeSpec) -> Result<Plan, TraceError>,
    ) -> Result<Self, TraceError> {
        let mut this = Self::default();
        let (tracefs, types) = planner.parts_mut();
        for expansion in choice.expand(specs, tracefs, types)? {
            if expansion.specs.len() > 1 {
                planner.expect_many();
            }
            this.add(expansion, planner, &plan)?;
        }
        Ok(this)
    }

    fn add(
        &mut self,
        expansion: Expansion,
        planner: &mut Planner,
        plan: impl Fn(&mut Planner, &ProbeSpec) -> Result<Plan, TraceError>,
    ) -> Result<(), TraceError> {
        let Expansion { specs, mut left_out } = expansion;
        let first = self.probes.len();
        let mut error = None;
        for spec in specs {
            match (plan(planner, &spec), &mut left_out) {
                (Ok(plan), _) => {
                    self.probes.push(planner.probe(spec, plan.fields));
                    self.tables.push(plan.table);
                }
                // Others may have these fields.
                (Err(why @ TraceError::Field(_)), Some(left_out)) => {
                    left_out.unresolved += 1;
                    error.get_or_insert(why);
                }
                (Err(why), _) => return Err(why),
            }
        }
        let numbers = first..self.probes.len();
        match error {
            Some(error) if numbers.is_empty() => Err(error),
            _ => {
                self.groups.push(Group { numbers, left_out });
                Ok(())
            }
        }
    }

    /// The probes, and what patterns leave out.
    pub(super) fn into_parts(self) -> (Vec<Probe>, Vec<LeftOut>) {
        let left_out = self.groups.into_iter().filter_map(|group| group.left_out).collect();
        (self.probes, left_out)
    }
}
