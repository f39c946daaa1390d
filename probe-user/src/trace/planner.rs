//! What each probe reads: where the types of its fields come from.

use super::btf::{Btf, NoPrototype};
use super::error::TraceError;
use super::filter::Filter;
use super::kernel_types::KernelTypes;
use super::probe::Probe;
use super::resolve::{
    CountedScope, FunctionScope, Plan, PlannedField, RawTracepointScope, Scope, SyscallScope,
    TracepointScope, UntypedScope, fields_of, plan,
};
use super::spec::{FieldSpec, ProbeSpec, Provider};
use super::symbols::NO_MODULE;
use super::syscall;
use super::tracefs::Tracefs;
use crate::perf::Event;
use probe_common::fetch::FetchTable;
use std::sync::Arc;

/// Which fields events have, beside those that specs ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    /// Those of specs are none, not even those that are told if a spec gives none.
    pub(super) no_own: bool,
    /// What every event has.
    pub(super) also: Vec<FieldSpec>,
    /// What is counted in every call.
    pub(super) counters: Vec<Event>,
}

/// Plans probes, and keeps what it has looked up for that.
#[derive(Debug, Default)]
pub(super) struct Planner {
    /// Whether functions are planned as calls.
    calls: bool,
    fields: Fields,
    types: KernelTypes,
    tracefs: Option<Tracefs>,
}

impl Planner {
    /// One that plans functions as calls, or as what their provider is.
    pub(super) fn new(calls: bool, fields: Fields) -> Self {
        Self { calls, fields, ..Self::default() }
    }

    /// The probe of a spec that was planned.
    pub(super) fn probe(&self, spec: ProbeSpec, fields: Vec<PlannedField>) -> Probe {
        if self.calls { Probe::call(spec, fields) } else { Probe::new(spec, fields) }
    }

    /// What a probe reads, and which of its hits are told: where its own predicate holds, and `filter`.
    pub(super) fn plan(&mut self, spec: &ProbeSpec, filter: &Filter) -> Result<Plan, TraceError> {
        let Fields { no_own, mut also, counters } = self.fields.clone();
        also.extend(fields_of(&counters));
        let own = match no_own {
            true => refuse_fields(spec, "stacks are counted").map(|()| Some(&[][..]))?,
            false => spec.fields(),
        };
        self.plan_fields(spec, own, &also, filter)
    }

    /// The same of a probe whose hits are counted only.
    pub(super) fn plan_count(
        &mut self,
        spec: &ProbeSpec,
        filter: &Filter,
    ) -> Result<Plan, TraceError> {
        refuse_fields(spec, "hits are counted")?;
        if filter.and(spec.predicate()).is_none() {
            // Whatever is there to be read.
            return Ok(Plan { table: FetchTable::EMPTY, fields: Vec::new() });
        }
        self.plan_fields(spec, Some(&[]), &[], filter)
    }

    fn plan_fields(
        &mut self,
        spec: &ProbeSpec,
        fields: Option<&[FieldSpec]>,
        also: &[FieldSpec],
        filter: &Filter,
    ) -> Result<Plan, TraceError> {
        let mut scope = self.scope(spec)?;
        if !self.fields.counters.is_empty() {
            scope = Box::new(CountedScope::new(scope, &self.fields.counters));
        }
        let predicate = filter.and(spec.predicate());
        plan(&*scope, fields, also, predicate.as_ref())
            .map_err(|error| TraceError::Field(spec.error(error.at, error.what)))
    }

    /// Prepares for a look at many functions.
    pub(super) fn expect_many(&mut self) {
        self.types.expect_many();
    }

    /// Tracefs, if it was needed, or to be used; and the kernel's types.
    pub(super) fn parts_mut(&mut self) -> (&mut Option<Tracefs>, &mut KernelTypes) {
        (&mut self.tracefs, &mut self.types)
    }

    /// Tracefs, if it was needed, and the kernel's types.
    pub(super) fn into_parts(self) -> (Option<Tracefs>, KernelTypes) {
        (self.tracefs, self.types)
    }

    /// What can be read at a probe.
    pub(super) fn scope(&mut self, spec: &ProbeSpec) -> Result<Box<dyn Scope>, TraceError> {
        Ok(match (spec.provider(), spec.tracepoint()) {
            (Provider::Ksyscall, _) => {
                let format = syscall::format(spec, Tracefs::opened(&mut self.tracefs)?)?;
                Box::new(SyscallScope::new(spec.name(), format, self.calls))
            }
            (Provider::Fentry, _) => self.trampoline(spec, FunctionScope::entry)?,
            (Provider::Fexit, _) => self.trampoline(spec, FunctionScope::exit)?,
            (Provider::RawTracepoint, _) => self.raw_tracepoint(spec.name()),
            (_, Some((category, name))) => {
                let format = Tracefs::opened(&mut self.tracefs)?.format(spec)?;
                Box::new(TracepointScope::new(category, name, format))
            }
            (Provider::Kprobe, _) if self.calls => {
                self.function(spec, FunctionScope::call, UntypedScope::Call)
            }
            (Provider::Kretprobe, _) => {
                self.function(spec, FunctionScope::returning, UntypedScope::Return)
            }
            (Provider::Uprobe, _) if self.calls => Box::new(UntypedScope::UserCall),
            (Provider::Uprobe, _) => Box::new(UntypedScope::UserEntry),
            (Provider::Uretprobe, _) => Box::new(UntypedScope::UserReturn),
            _ => self.function(spec, FunctionScope::entry, UntypedScope::Entry),
        })
    }

    fn function(
        &mut self,
        spec: &ProbeSpec,
        scope: impl Fn(Arc<Btf>, &str) -> Result<FunctionScope, NoPrototype>,
        untyped: UntypedScope,
    ) -> Box<dyn Scope> {
        let name = spec.name();
        let Some(kernel) = self.types.kernel() else { return Box::new(untyped) };
        let in_kernel = spec.module().is_none_or(|module| module == NO_MODULE);
        let mut found = match in_kernel {
            true => scope(kernel.clone(), name),
            false => Err(NoPrototype::Unknown),
        };
        if matches!(found, Err(NoPrototype::Unknown)) && spec.module() != Some(NO_MODULE) {
            let mut modules = self.types.modules(spec.module());
            found = modules
                .find_map(|(_, module)| scope(module.clone(), name).ok())
                .ok_or(NoPrototype::Unknown);
        }
        match found {
            Ok(scope) => Box::new(scope),
            Err(error) => {
                log::debug!("{name} has arguments without names: {error}");
                Box::new(untyped)
            }
        }
    }

    /// A function that the kernel's types have to have.
    fn trampoline(
        &mut self,
        spec: &ProbeSpec,
        scope: impl Fn(Arc<Btf>, &str) -> Result<FunctionScope, NoPrototype>,
    ) -> Result<Box<dyn Scope>, TraceError> {
        let function = self.types.trampoline(spec)?;
        match scope(function.types, spec.name()) {
            Ok(scope) => Ok(Box::new(scope)),
            Err(_) => Err(TraceError::NoTrampoline { spec: spec.clone() }),
        }
    }

    fn raw_tracepoint(&mut self, name: &str) -> Box<dyn Scope> {
        let scope = self.types.kernel().map(|kernel| RawTracepointScope::new(kernel, name));
        match scope {
            Some(Ok(scope)) => Box::new(scope),
            // How many arguments it has is not known.
            Some(Err(_)) | None => Box::new(UntypedScope::RawTracepoint),
        }
    }
}

/// Refuses fields where none are read.
fn refuse_fields(spec: &ProbeSpec, why: &str) -> Result<(), TraceError> {
    if spec.fields().is_none() {
        return Ok(());
    }
    let what = format!("{why}, and fields are not read: only a /CONDITION/ may come here");
    Err(TraceError::Field(spec.error_at_fields(what)))
}
