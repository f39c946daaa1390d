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
                let why = match plan(planner, &spec) {
                    Ok(plan) => {
                        let probe = planner.probe(spec, plan.fields);
                        this.probes.push(probe.leaving_out(plan.left_out));
                        this.tables.push(plan.table);
                        continue;
                    }
                    Err(why) => why,
                };
                match &mut reason {
                    Reason::Matched(left_out) => match left_out.count_of(&why) {
                        Some(count) => {
                            *count += 1;
                            error.get_or_insert(why);
                        }
                        None => return Err(why),
                    },
                    Reason::Beside if matches!(why, TraceError::Field(_)) => {
                        log::warn!("{spec} is not traced: {why}");
                    }
                    Reason::Named | Reason::Beside => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::Host;
    use crate::session::planner::Filter;
    use crate::tracefs::Tracefs;
    use std::fs;

    /// Selects a spec among the tracepoints `a` and `b`, of which `b` vanishes before it is planned.
    fn selected(spec: &str) -> Result<Selection, TraceError> {
        let root = tempfile::tempdir().unwrap();
        let event = |name: &str| root.path().join("events/module").join(name);
        for name in ["a", "b"] {
            fs::create_dir_all(event(name)).unwrap();
            fs::write(event(name).join("format"), "").unwrap();
        }
        let host = Host::with_tracefs(Tracefs::at(root.path().to_owned()));
        let mut planner = Planner { host, ..Planner::default() };
        let specs = [spec.parse().unwrap()];
        Selection::new(&specs, &Choice::default(), &mut planner, |planner, spec| {
            let _ = fs::remove_dir_all(event("b"));
            planner.plan(spec, &Filter::default())
        })
    }

    #[test]
    fn a_tracepoint_that_vanishes_is_left_out_of_a_pattern() {
        let Selection { probes, groups, .. } = selected("tracepoint:module:*").unwrap();
        assert_eq!(probes.len(), 1);
        let Reason::Matched(left_out) = &groups[0].reason else { panic!("{groups:?}") };
        let expected = "tracepoint:module:*: 1 tracepoint is left out: 1 could not be probed";
        assert_eq!(left_out.to_string(), expected);
        for spec in ["tracepoint:module:b", "tracepoint:module:[b]"] {
            let error = selected(spec).unwrap_err();
            assert!(matches!(error, TraceError::UnknownTracepoint { .. }), "{error}");
        }
    }
}
