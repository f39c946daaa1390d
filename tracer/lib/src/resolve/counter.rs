//! The fields of a call's counters, for traces that have counters.

use super::buffers::Extent;
use super::call;
use super::names::ValueNames;
use super::shape::Shape;
use super::signature::{Member, NotShown, Signature};
use super::value::{ValueKind, take_register};
use super::{FieldSource, Reading, ResolveError};
use crate::spec::{At, FieldBase, FieldPath, FieldSpec, FieldType};
use probe_perf::{Event, Software, Source};
use probe_tracer_common::fetch::{FetchField, base};
use std::sync::Arc;

/// The name of the `n`th counter in specs, counted from 0, whatever its event is.
fn name_of(n: usize) -> String {
    match n {
        0 => "counter".to_owned(),
        _ => format!("counter{}", n + 1),
    }
}

/// The counter fields of every call, each named after its event.
pub(crate) fn fields_of(events: &[Event]) -> impl Iterator<Item = FieldSpec> {
    let field = |(n, event): (usize, &Event)| FieldSpec {
        name: Some(event.to_string()),
        ..FieldSpec::named(&name_of(n))
    };
    events.iter().enumerate().map(field)
}

/// The fields of a call and its counters. Arguments with the name of a counter are available by number only.
pub(crate) struct CountedFields {
    call: Box<dyn FieldSource>,
    /// The shape of each counter.
    shapes: Vec<Shape>,
}

impl CountedFields {
    /// Adds the counters of these events to a call. There must not be more events than registers for counters.
    pub(crate) fn new(call: Box<dyn FieldSource>, events: &[Event]) -> Self {
        Self { call, shapes: events.iter().map(shape_of).collect() }
    }
}

fn shape_of(event: &Event) -> Shape {
    match event.source() {
        Source::Software(Software::CpuClock | Software::TaskClock) => Shape::Duration,
        _ => Shape::Unsigned,
    }
}

impl FieldSource for CountedFields {
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        let FieldBase::Name(name) = &path.base else { return self.call.own(path, ty, ty_at) };
        let mut counters = (base::COUNTER..).zip(&self.shapes).enumerate();
        let Some((_, (register, shape))) = counters.find(|(n, _)| name_of(*n) == *name) else {
            return self.call.own(path, ty, ty_at);
        };
        let kind = ValueKind::Integer { size: 8, is_signed: false, shape: shape.clone() };
        Some(take_register(register, &kind, name, path, (ty, ty_at)))
    }

    fn unknown(&self, path: &FieldPath) -> ResolveError {
        self.call.unknown(path)
    }

    fn defaults(&self) -> Vec<(String, FetchField, Shape)> {
        self.call.defaults()
    }

    fn left_out(&self) -> Vec<NotShown> {
        self.call.left_out()
    }

    fn extent(&self, argument: &str) -> Option<Extent> {
        self.call.extent(argument)
    }

    fn signature(&self) -> Option<Signature> {
        self.call.signature()
    }

    fn look(&self, path: &FieldPath) -> Option<(String, Vec<Member>)> {
        self.call.look(path)
    }

    fn is_late(&self, field: &FetchField) -> bool {
        call::is_late(field)
    }

    fn names(&self, path: &FieldPath) -> Option<Arc<ValueNames>> {
        self.call.names(path)
    }

    fn enumerator(&self, name: &str) -> Option<i128> {
        self.call.enumerator(name)
    }
}
