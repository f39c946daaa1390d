//! What the CPU counted in a call, for traces that have counters.

use super::call;
use super::reach::Reach;
use super::value::{Sort, take};
use super::{Reading, ResolveError, Scope};
use crate::perf::{Event, Software, Source};
use crate::trace::info::{Member, Signature};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, FieldBase, FieldPath, FieldSpec, FieldType};
use probe_common::fetch::{FetchField, base};

/// What the `n`th is called in specs, from 0, whatever the event is.
fn name_of(n: usize) -> String {
    match n {
        0 => "counter".to_owned(),
        _ => format!("counter{}", n + 1),
    }
}

/// The fields that every call has, each called as its event.
pub(crate) fn fields_of(events: &[Event]) -> impl Iterator<Item = FieldSpec> {
    let field = |(n, event): (usize, &Event)| FieldSpec {
        name: Some(event.to_string()),
        ..FieldSpec::named(&name_of(n))
    };
    events.iter().enumerate().map(field)
}

/// What can be read of a call, and what was counted in it. An argument of the same name goes by its number.
pub(crate) struct CountedScope {
    call: Box<dyn Scope>,
    /// What each counter is.
    shapes: Vec<Shape>,
}

impl CountedScope {
    /// That of a call with counters of these events, no more than there are registers for.
    pub(crate) fn new(call: Box<dyn Scope>, events: &[Event]) -> Self {
        Self { call, shapes: events.iter().map(shape_of).collect() }
    }
}

fn shape_of(event: &Event) -> Shape {
    match event.source() {
        Source::Software(Software::CpuClock | Software::TaskClock) => Shape::Duration,
        _ => Shape::Unsigned,
    }
}

impl Scope for CountedScope {
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        let FieldBase::Name(name) = &path.base else { return self.call.own(path, ty, ty_at) };
        let counters = (base::COUNTER..).zip(&self.shapes).enumerate();
        let Some((_, (register, shape))) = counters.into_iter().find(|(n, _)| name_of(*n) == *name)
        else {
            return self.call.own(path, ty, ty_at);
        };
        if let Some((_, at)) = path.steps.first() {
            return Some(Err(ResolveError::new(*at, format!("{name} has no members"))));
        }
        let sort = Sort::Integer { size: 8, is_signed: false, shape: shape.clone() };
        Some(take(Reach::register(register), &sort, ty, name, (path.at, ty_at)))
    }

    fn unknown(&self, path: &FieldPath) -> ResolveError {
        self.call.unknown(path)
    }

    fn defaults(&self) -> Vec<(String, FetchField, Shape)> {
        self.call.defaults()
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

    fn enumerator(&self, name: &str) -> Option<i128> {
        self.call.enumerator(name)
    }
}
