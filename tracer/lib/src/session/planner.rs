//! Plans what each probe reads, and finds the types of its fields.

use crate::error::TraceError;
use crate::hook::{self, Caller, Host};
use crate::resolve::probe::Probe;
use crate::resolve::{CountedFields, Plan, PlannedField, fields_of, plan};
use crate::spec::{At, Comparison, FieldBase, FieldSpec, Operand, Operator, Predicate, ProbeSpec};
use probe_perf::Event;
use probe_tracer_common::fetch::{FetchTable, flag, kind};

/// The fields of events, beside those that specs request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    /// Ignore the fields of specs, including the defaults of a spec without any.
    pub(crate) no_own: bool,
    /// Fields that every event has.
    pub(crate) also: Vec<FieldSpec>,
    /// Counters that every call has.
    pub(crate) counters: Vec<Event>,
}

/// The condition that all probes of a trace share. It becomes part of every probe's predicate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    comparisons: Vec<Comparison>,
    /// Each is true if one of its comparisons is.
    alternatives: Vec<Predicate>,
}

impl Filter {
    /// Accepts only hits for which this comparison is true. Every probe must have this field.
    pub(crate) fn add(&mut self, field: FieldBase, operator: Operator, value: Operand) {
        let path = field.into();
        self.comparisons.push(Comparison { path, ty: None, operator, value, value_at: At(0) });
    }

    /// Accepts only hits for which the field has one of these values. Every probe must have this field.
    pub(crate) fn add_any(&mut self, field: &FieldBase, values: impl IntoIterator<Item = Operand>) {
        let mut any = Self::default();
        values.into_iter().for_each(|value| any.add(field.clone(), Operator::Equal, value));
        let comparisons = any.comparisons.into_iter().map(Predicate::Compare);
        self.alternatives.push(Predicate::Any(comparisons.collect()));
    }

    /// Combines the filter with a probe's own predicate.
    pub(crate) fn and(&self, predicate: Option<&Predicate>) -> Option<Predicate> {
        let own = self.comparisons.iter().cloned().map(Predicate::Compare);
        // Cheap comparisons come first.
        let own = own.chain(self.alternatives.iter().cloned());
        let mut all: Vec<_> = own.chain(predicate.cloned()).collect();
        match all.len() {
            0 => None,
            1 => all.pop(),
            _ => Some(Predicate::All(all)),
        }
    }
}

/// Plans probes, and keeps what it has looked up.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    /// Whether functions are planned as calls, not as their provider defines.
    pub(super) calls: bool,
    pub(super) fields: Fields,
    /// Whether stacks of planned probes lack the caller of the probed function.
    pub(super) lacks_callers: bool,
    /// The lookups of hooks.
    pub(super) host: Host,
}

impl Planner {
    /// The probe of a planned spec.
    pub(crate) fn probe(&self, spec: ProbeSpec, fields: Vec<PlannedField>) -> Probe {
        if self.calls { Probe::call(spec, fields) } else { Probe::new(spec, fields) }
    }

    /// Plans what a probe reads, and which of its hits it emits: those for which both its own
    /// predicate and `filter` hold.
    pub(crate) fn plan(&mut self, spec: &ProbeSpec, filter: &Filter) -> Result<Plan, TraceError> {
        let Fields { no_own, mut also, counters } = self.fields.clone();
        also.extend(fields_of(&counters));
        let own = match no_own {
            true => refuse_fields(spec, "stacks are counted").map(|()| Some(&[][..]))?,
            false => spec.fields(),
        };
        self.plan_fields(spec, own, &also, filter)
    }

    /// Plans a probe whose hits are only counted.
    pub(crate) fn plan_count(
        &mut self,
        spec: &ProbeSpec,
        filter: &Filter,
    ) -> Result<Plan, TraceError> {
        refuse_fields(spec, "hits are counted")?;
        if filter.and(spec.predicate()).is_none() {
            // Without a condition, the probe's fields and types do not matter.
            let (fields, left_out) = (Vec::new(), Vec::new());
            return Ok(Plan { table: FetchTable::EMPTY, fields, left_out });
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
        let mut source = hook::of(spec.provider()).fields(spec, self.calls, &mut self.host)?;
        if !self.fields.counters.is_empty() {
            source = Box::new(CountedFields::new(source, &self.fields.counters));
        }
        let predicate = filter.and(spec.predicate());
        let mut plan = plan(&*source, fields, also, predicate.as_ref())
            .map_err(|error| TraceError::Field(spec.error(error.at, error.what)))?;
        let is_in_process = spec.provider().is_in_program();
        plan.table.is_in_process = is_in_process.into();
        self.find_caller(spec, &mut plan.table);
        Ok(plan)
    }

    /// Has the stacks of the side that is probed, the kernel's or the process's, completed if they lack a caller.
    fn find_caller(&mut self, spec: &ProbeSpec, table: &mut FetchTable) {
        let own = if table.is_in_process == 1 { kind::USER_STACK } else { kind::KERNEL_STACK };
        let fields = table.fields[..table.field_count.into()].iter_mut();
        let mut stacks = fields.filter(|field| field.kind == own).peekable();
        if stacks.peek().is_none() {
            return;
        }
        match hook::of(spec.provider()).caller(spec, &mut self.host) {
            Caller::InStack => {}
            Caller::AtEntry => stacks.for_each(|stack| stack.flags |= flag::CALLER),
            Caller::Lost => self.lacks_callers = true,
        }
    }
}

/// Rejects fields where none are read.
fn refuse_fields(spec: &ProbeSpec, why: &str) -> Result<(), TraceError> {
    if spec.fields().is_none() {
        return Ok(());
    }
    let what = format!("{why}, so fields are not read: only a /CONDITION/ is allowed here");
    Err(TraceError::Field(spec.error_at_fields(what)))
}
