//! The probes of a trace by number, and what each of them reads.

use crate::error::TraceError;
use crate::hook;
use crate::hook::expand::{Choice, Expansion, Reason};
use crate::resolve::Plan;
use crate::resolve::probe::Probe;
use crate::session::planner::Planner;
use crate::spec::ProbeSpec;
use probe_tracer_common::fetch::FetchTable;
use std::ops::Range;

/// The probes of a trace.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    pub(crate) probes: Vec<Probe>,
    pub(crate) tables: Vec<FetchTable>,
    pub(crate) groups: Vec<Group>,
}

/// The probes of one spec.
#[derive(Debug)]
pub(crate) struct Group {
    /// Their numbers.
    pub(crate) numbers: Range<usize>,
    /// Why they are part of the trace.
    pub(crate) reason: Reason,
}

impl Selection {
    /// Expands `specs` to the probes that `choice` allows, and plans each with `plan`.
    pub(crate) fn new(
        specs: &[ProbeSpec],
        choice: &Choice,
        planner: &mut Planner,
        plan: impl Fn(&mut Planner, &ProbeSpec) -> Result<Plan, TraceError>,
    ) -> Result<Self, TraceError> {
        let mut this = Self::default();
        for Expansion { specs, mut reason } in
            choice.expand(specs, planner.calls, &mut planner.host)?
        {
            if specs.len() > 1 {
                planner.host.types.expect_many();
            }
            let first = this.probes.len();
            let mut error = None;
            for spec in specs {
                match (plan(planner, &spec), &mut reason) {
                    (Ok(plan), _) => {
                        let probe = planner.probe(spec, plan.fields);
                        this.probes.push(probe.leaving_out(plan.left_out));
                        this.tables.push(plan.table);
                    }
                    // Other matches may have these fields.
                    (Err(why @ TraceError::Field(_)), Reason::Matched(left_out)) => {
                        left_out.unresolved += 1;
                        error.get_or_insert(why);
                    }
                    (Err(why @ TraceError::Field(_)), Reason::Beside) => {
                        log::warn!("{spec} is not traced: {why}");
                    }
                    (Err(why), _) => {
                        // A hook that does not exist has no fields.
                        if matches!(why, TraceError::Field(_)) {
                            hook::of(spec.provider()).check(&spec, &mut planner.host)?;
                        }
                        return Err(why);
                    }
                }
            }
            let numbers = first..this.probes.len();
            match error {
                Some(error) if numbers.is_empty() => return Err(error),
                _ => this.groups.push(Group { numbers, reason }),
            }
        }
        Ok(this)
    }
}
