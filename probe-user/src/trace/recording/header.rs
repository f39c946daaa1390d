//! What is traced, as a recording tells it.

use crate::escape::Escaped;
use crate::trace::origin::Origin;
use crate::trace::probe::Probe;
use crate::trace::resolve::PlannedField;
use crate::trace::shape::{Enumeration, Field, Shape};
use crate::trace::spec::{ProbeSpec, Provider, SpecError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The first section.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) origin: Origin,
    probes: Vec<ProbeHeader>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ProbeHeader {
    /// As it is written, but for the name, which not every function has that can be written.
    spec: String,
    name: String,
    is_call: bool,
    fields: Vec<FieldHeader>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FieldHeader {
    name: String,
    slot: u8,
    shape: Shape,
}

impl Header {
    pub(super) fn new(origin: Origin, probes: &[Probe]) -> Self {
        Self { origin, probes: probes.iter().map(ProbeHeader::of).collect() }
    }

    pub(super) fn probes(self) -> Result<Vec<Probe>, SpecError> {
        self.probes.into_iter().map(ProbeHeader::probe).collect()
    }
}

impl ProbeHeader {
    fn of(probe: &Probe) -> Self {
        let placeholder = if probe.spec().provider() == Provider::Tracepoint { "_:_" } else { "_" };
        let field = |field: &PlannedField| FieldHeader {
            name: field.field.name.clone(),
            slot: field.slot,
            shape: field.field.shape.clone(),
        };
        Self {
            spec: probe.spec().named(placeholder).to_string(),
            name: probe.spec().name().to_owned(),
            is_call: probe.is_call(),
            fields: probe.slots().iter().map(field).collect(),
        }
    }

    /// Names are shown as they are: whoever made the file has to be kept from the terminal here.
    fn probe(self) -> Result<Probe, SpecError> {
        let spec = self.spec.parse().map(|spec: ProbeSpec| spec.named(&harmless(&self.name)))?;
        let field = |FieldHeader { name, slot, shape }| PlannedField {
            field: Field { name: harmless(&name), shape: with_harmless_names(shape) },
            slot,
        };
        let fields = self.fields.into_iter().map(field).collect();
        Ok(if self.is_call { Probe::call(spec, fields) } else { Probe::new(spec, fields) })
    }
}

fn harmless(name: &str) -> String {
    Escaped(name.as_bytes()).to_string()
}

fn with_harmless_names(shape: Shape) -> Shape {
    match shape {
        Shape::Enum(enumeration) => {
            let Enumeration { is_signed, names } = &*enumeration;
            let mut names: Vec<_> =
                names.iter().map(|(value, name)| (*value, harmless(name))).collect();
            // They are searched.
            names.sort_by_key(|(value, _)| *value);
            Shape::Enum(Arc::new(Enumeration { is_signed: *is_signed, names }))
        }
        shape => shape,
    }
}
