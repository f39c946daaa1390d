//! The probes of a trace, and what their events have.

use super::resolve::PlannedField;
use super::shape::Field;
use super::spec::ProbeSpec;

/// A probe of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    spec: ProbeSpec,
    fields: Vec<PlannedField>,
    is_call: bool,
}

impl Probe {
    pub(crate) fn new(spec: ProbeSpec, fields: Vec<PlannedField>) -> Self {
        Self { spec, fields, is_call: false }
    }

    /// One whose events are calls.
    pub(crate) fn call(spec: ProbeSpec, fields: Vec<PlannedField>) -> Self {
        Self { spec, fields, is_call: true }
    }

    /// Whether its events are calls: where the function was entered, and where it returned, in one.
    pub fn is_call(&self) -> bool {
        self.is_call
    }

    /// What its events are called in JSON: `call`, or the provider.
    pub(crate) fn kind(&self) -> &'static str {
        if self.is_call { "call" } else { self.spec.provider().name() }
    }

    /// What was asked for.
    pub fn spec(&self) -> &ProbeSpec {
        &self.spec
    }

    /// What its events have, in order.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = &Field> {
        self.fields.iter().map(|field| &field.field)
    }

    pub(crate) fn slots(&self) -> &[PlannedField] {
        &self.fields
    }
}
