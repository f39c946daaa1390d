//! The header section, which describes what is traced.

use crate::output::Origin;
use crate::resolve::PlannedField;
use crate::resolve::names::{LONGEST, ValueNames};
use crate::resolve::probe::Probe;
use crate::resolve::shape::{Field, Shape};
use crate::spec::{ProbeSpec, SpecError};
use probe_sys::escape::Escaped;
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
    /// The spec with a placeholder for the name, because not all names of functions can be parsed.
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
    /// Absent from recordings of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    names: Option<ValueNames>,
    /// The slot of the word that is not 0 in events in which values have none of these names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nameless: Option<u8>,
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
        let placeholder = if probe.spec().provider().has_category() { "_:_" } else { "_" };
        let field = |field: &PlannedField| FieldHeader {
            name: field.field.name.clone(),
            slot: field.slot,
            shape: field.field.shape.clone(),
            names: field.field.names.as_deref().cloned(),
            nameless: field.otherwise.as_ref().map(|otherwise| otherwise.slot),
        };
        Self {
            spec: probe.spec().named(placeholder).to_string(),
            name: probe.spec().name().to_owned(),
            is_call: probe.is_call(),
            fields: probe.slots().iter().map(field).collect(),
        }
    }

    /// Names are escaped here, because the file is untrusted and they reach the terminal.
    fn probe(self) -> Result<Probe, SpecError> {
        let spec = self.spec.parse().map(|spec: ProbeSpec| spec.named(&harmless(&self.name)))?;
        let field = |FieldHeader { name, slot, shape, mut names, nameless }| {
            names.iter_mut().for_each(|names| names.map(harmless));
            let (name, shape) = (harmless(&name), with_harmless_names(shape));
            let field = Field { name, shape, names: names.map(Arc::new) };
            PlannedField::new(field, slot).unless(nameless)
        };
        let fields = self.fields.into_iter().map(field).collect();
        Ok(if self.is_call { Probe::call(spec, fields) } else { Probe::new(spec, fields) })
    }
}

/// Every event has names of the header in its output, so no more is used than any true name has.
fn harmless(name: &str) -> String {
    let bytes = name.as_bytes();
    Escaped(&bytes[..bytes.len().min(LONGEST)]).to_string()
}

fn with_harmless_names(mut shape: Shape) -> Shape {
    if let Shape::List { of, .. } = &mut shape {
        **of = with_harmless_names(std::mem::replace(of, Shape::Unsigned));
    }
    if let Shape::Enum(enumeration) = &mut shape {
        let names = &mut Arc::make_mut(enumeration).names;
        names.iter_mut().for_each(|(_, name)| *name = harmless(name));
        // Lookups use a binary search.
        names.sort_by_key(|(value, _)| *value);
    }
    shape
}
