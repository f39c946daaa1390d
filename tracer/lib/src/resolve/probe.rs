//! The probes of a trace and the fields of their events.

use super::PlannedField;
use super::shape::Field;
use super::signature::NotShown;
use crate::spec::ProbeSpec;

/// A probe of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    spec: ProbeSpec,
    fields: Vec<PlannedField>,
    is_call: bool,
    left_out: Vec<NotShown>,
}

impl Probe {
    pub(crate) fn new(spec: ProbeSpec, fields: Vec<PlannedField>) -> Self {
        Self { spec, fields, is_call: false, left_out: Vec::new() }
    }

    /// A probe whose events are calls.
    pub(crate) fn call(spec: ProbeSpec, fields: Vec<PlannedField>) -> Self {
        Self { is_call: true, ..Self::new(spec, fields) }
    }

    /// Adds what the default fields leave out.
    pub(crate) fn leaving_out(self, left_out: Vec<NotShown>) -> Self {
        Self { left_out, ..self }
    }

    /// What the probe's events leave out of its arguments or fields, if the spec does not name fields. Empty for a probe of
    /// a recording.
    pub fn left_out(&self) -> &[NotShown] {
        &self.left_out
    }

    /// Whether the probe's events are calls: one event for the entry and the return of a function.
    pub fn is_call(&self) -> bool {
        self.is_call
    }

    /// The kind of the probe's events in JSON: `call`, or the provider.
    pub(crate) fn kind(&self) -> &'static str {
        if self.is_call { "call" } else { self.spec.provider().name() }
    }

    /// The spec of the probe.
    pub fn spec(&self) -> &ProbeSpec {
        &self.spec
    }

    /// The fields of the probe's events, in order.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = &Field> {
        self.fields.iter().map(|field| &field.field)
    }

    /// The probe with numbers in its events instead of names of constants, errors, functions, devices and
    /// addresses.
    #[must_use]
    pub fn with_raw_values(mut self) -> Self {
        let raw = |PlannedField { field, slot, .. }| PlannedField::new(field.raw(), slot);
        self.fields = self.fields.into_iter().map(raw).collect();
        self
    }

    pub(crate) fn slots(&self) -> &[PlannedField] {
        &self.fields
    }
}
