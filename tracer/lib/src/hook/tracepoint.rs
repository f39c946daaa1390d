//! Tracepoints: a perf event for each.

use super::attach::{Attacher, Link, Part};
use super::syscall_notes::{never_returns, notes};
use super::{Fields, Hook, Host, compat};
use crate::error::{Result, TraceError};
use crate::object::Side;
use crate::resolve::TracepointFields;
use crate::spec::{Predicate, ProbeSpec};
use crate::tracefs::syscall;
use probe_perf::pattern::Glob;
use probe_sys::perf_event::PerfEvent;

/// A tracepoint, by its category and name.
pub(super) struct Tracepoint;

impl Hook for Tracepoint {
    fn may_be_skipped(&self) -> bool {
        true
    }

    fn default_prefix(&self) -> Option<&'static str> {
        Some("tracepoint:*:")
    }

    fn list(&self, spec: &ProbeSpec, host: &mut Host) -> Result<Vec<String>> {
        let tracefs = host.tracefs()?;
        let found = tracefs.matching(&Glob::new(spec.name())?);
        if found.is_empty() && !spec.is_glob() {
            // The error suggests similar names.
            tracefs.id(spec)?;
        }
        Ok(found)
    }

    fn fields(&self, spec: &ProbeSpec, as_call: bool, host: &mut Host) -> Fields {
        let (category, name) = spec.tracepoint().ok_or(TraceError::NoProbe)?;
        let format = host.tracefs()?.format(spec)?;
        let fields = TracepointFields::new(category, name, format, as_call);
        let fields = fields.with_names(&mut || host.types.kernel());
        Ok(Box::new(match spec.predicate().is_some_and(Predicate::has_names) {
            true => fields.with_types(host.types.kernel()),
            false => fields,
        }))
    }

    fn notes(&self, spec: &ProbeSpec, as_call: bool, host: &mut Host) -> Vec<String> {
        let notes = |call| notes(call, spec.predicate(), as_call);
        match spec.tracepoint() {
            Some(("syscalls", name)) => {
                let others = notes(call_of(spec).unwrap_or(name));
                compat::note(host).into_iter().chain(others).collect()
            }
            Some(("raw_syscalls", name)) => notes(name),
            _ => Vec::new(),
        }
    }

    fn attach(
        &self,
        attacher: &mut Attacher<'_>,
        spec: &ProbeSpec,
        part: Part,
        number: u32,
    ) -> Result<Link> {
        let programs = match part {
            Part::Whole => "tracepoint",
            // To keep such a call would only take the room of others.
            Part::CallEntry if call_of(spec).is_some_and(never_returns) => "syscall_end",
            Part::CallEntry => "syscall_enter",
            Part::CallReturn => "syscall_exit",
        };
        let exit = exit_of(spec).filter(|_| part == Part::CallReturn);
        let spec = &exit.unwrap_or_else(|| spec.clone());
        let tracefs = attacher.host.tracefs()?;
        let event = PerfEvent::tracepoint(tracefs.id(spec)?).map_err(|source| {
            // Its module may just have been unloaded.
            let gone = tracefs.id(spec).err();
            gone.unwrap_or_else(|| TraceError::Attach { spec: spec.clone(), source })
        })?;
        attacher.perf_event(spec, event, Side::Kernel, (part, programs), number)
    }

    fn calls(&self, spec: &ProbeSpec) -> Option<Side> {
        exit_of(spec).map(|_| Side::Kernel)
    }
}

/// The system call that a tracepoint is at the entry of.
fn call_of(spec: &ProbeSpec) -> Option<&str> {
    let (category, name) = spec.tracepoint()?;
    syscall::entered(category, name)
}

/// The tracepoint at the exit of the system call that a tracepoint is at the entry of. The spec may be a pattern of such.
fn exit_of(spec: &ProbeSpec) -> Option<ProbeSpec> {
    let (category, name) = spec.tracepoint()?;
    let exit = syscall::exit_of(category, name)?;
    Some(spec.named_as(spec.provider(), &exit))
}
