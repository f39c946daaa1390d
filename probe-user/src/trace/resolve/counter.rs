//! What the CPU counted in a call, for traces that have a counter.

use super::call;
use super::reach::Reach;
use super::value::{Sort, take};
use super::{Reading, ResolveError, Scope};
use crate::perf::{Event, Software, Source};
use crate::trace::info::{Member, Signature};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, FieldBase, FieldPath, FieldSpec, FieldType};
use probe_common::fetch::{FetchField, base};

/// What it is called in specs, whatever the event is.
const COUNTER: &str = "counter";

/// The field that every call has, called as its event.
pub(crate) fn field_of(event: &Event) -> FieldSpec {
    FieldSpec { name: Some(event.to_string()), ..FieldSpec::named(COUNTER) }
}

/// What can be read of a call, and what was counted in it. An argument of the same name goes by its number.
pub(crate) struct CountedScope {
    call: Box<dyn Scope>,
    shape: Shape,
}

impl CountedScope {
    pub(crate) fn new(call: Box<dyn Scope>, event: &Event) -> Self {
        let is_clock =
            matches!(event.source(), Source::Software(Software::CpuClock | Software::TaskClock));
        Self { call, shape: if is_clock { Shape::Duration } else { Shape::Unsigned } }
    }
}

impl Scope for CountedScope {
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        if !matches!(&path.base, FieldBase::Name(name) if name == COUNTER) {
            return self.call.own(path, ty, ty_at);
        }
        if let Some((_, at)) = path.steps.first() {
            return Some(Err(ResolveError::new(*at, format!("{COUNTER} has no members"))));
        }
        let sort = Sort::Integer { size: 8, is_signed: false, shape: self.shape.clone() };
        Some(take(Reach::register(base::COUNTER), &sort, ty, COUNTER, (path.at, ty_at)))
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
