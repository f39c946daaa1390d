//! What is known of a call when it returns, beside what it was entered with.

use super::ResolveError;
use super::reach::Reach;
use super::value::{Sort, take};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, FieldPath, FieldType};
use probe_common::fetch::{FetchField, base};

/// The name of what it returned.
pub(super) const RETVAL: &str = "retval";

/// The name of how long it took, in nanoseconds.
pub(crate) const LATENCY: &str = "latency";

/// Takes the latency.
pub(super) fn latency(
    path: &FieldPath,
    ty: Option<FieldType>,
    ty_at: At,
) -> Result<(FetchField, Shape), ResolveError> {
    if let Some((_, at)) = path.steps.first() {
        return Err(ResolveError::new(*at, format!("{LATENCY} has no members")));
    }
    let sort = Sort::Integer { size: 8, is_signed: false, shape: Shape::Duration };
    take(Reach::register(base::LATENCY), &sort, ty, LATENCY, (path.at, ty_at))
}

/// The latency, as one reads it if nobody says how.
pub(super) fn default_latency() -> (String, FetchField, Shape) {
    let field = FetchField { base: base::LATENCY, ..FetchField::default() };
    (LATENCY.to_owned(), field, Shape::Duration)
}

/// Why there is no latency where a function is only entered, or only returns.
pub(super) fn needs_ret(function: &str) -> String {
    format!("how long {function} took is not known here: --ret with kprobe:{function} tells it")
}

/// Whether a field is of those that are known when a call returns.
pub(super) fn is_late(field: &FetchField) -> bool {
    let is_counted = (base::COUNTER..base::COUNTERS_END).contains(&field.base);
    is_counted || matches!(field.base, base::RETVAL | base::LATENCY)
}
