//! What a hook sees of a function's call, and the fields that are known only when the call returns.

use super::shape::Shape;
use super::value::{ValueKind, take_register};
use super::{Reading, ResolveError};
use crate::spec::{At, FieldBase, FieldPath, FieldType};
use probe_tracer_common::fetch::{FetchField, base, flag};

/// The part of a function's call that a hook sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The entry, with the arguments.
    Entry,
    /// The return. The arguments are no longer available.
    Return,
    /// The whole call, with the arguments of the entry.
    Call,
    /// The return through a trampoline, which preserves the arguments.
    Exit,
}

impl Moment {
    /// The moment of a hook at a function's return or entry. A hook at the entry can see the whole call.
    pub(crate) fn of(returns: bool, as_call: bool) -> Self {
        match (returns, as_call) {
            (true, _) => Self::Return,
            (false, true) => Self::Call,
            (false, false) => Self::Entry,
        }
    }

    pub(super) fn has_arguments(self) -> bool {
        self != Self::Return
    }

    pub(super) fn has_result(self) -> bool {
        self != Self::Entry
    }
}

/// The name of the return value.
pub(super) const RETVAL: &str = "retval";

/// The name of the call's latency, in nanoseconds.
pub(crate) const LATENCY: &str = "latency";

pub(super) fn is_latency(path: &FieldPath) -> bool {
    matches!(&path.base, FieldBase::Name(name) if name == LATENCY)
}

/// Reads the latency of a call.
pub(super) fn latency(path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Reading {
    let kind = ValueKind::Integer { size: 8, is_signed: false, shape: Shape::Duration };
    take_register(base::LATENCY, &kind, LATENCY, path, (ty, ty_at))
}

/// Reads the latency, if the path starts with it. It is an error if the hook does not see whole calls of `function`.
pub(super) fn latency_of(
    function: &str,
    is_call: bool,
    path: &FieldPath,
    ty: Option<FieldType>,
    ty_at: At,
) -> Option<Reading> {
    let what =
        || format!("the latency of {function} is not known here; use --ret with kprobe:{function}");
    is_latency(path).then(|| match is_call {
        true => latency(path, ty, ty_at),
        false => Err(ResolveError::new(path.at, what())),
    })
}

/// The latency as it is read by default.
pub(super) fn default_latency() -> (String, FetchField, Shape) {
    let field = FetchField { base: base::LATENCY, ..FetchField::default() };
    (LATENCY.to_owned(), field, Shape::Duration)
}

/// The result of a system call as it is read by default.
pub(super) fn default_result(shape: Shape) -> (String, FetchField, Shape) {
    let field = FetchField { base: base::RETVAL, flags: flag::SIGNED, ..FetchField::default() };
    (RETVAL.to_owned(), field, shape)
}

/// The error for the return value or the latency at the entry of a function.
pub(super) fn not_returned(function: &str, path: &FieldPath) -> ResolveError {
    let missing = if is_latency(path) { LATENCY } else { RETVAL };
    let what = format!(
        "{function} has not returned yet, so there is no {missing}; --ret reports calls when they return"
    );
    ResolveError::new(path.at, what)
}

/// Whether a field is known only when a call returns.
pub(super) fn is_late(field: &FetchField) -> bool {
    let is_counted = (base::COUNTER..base::COUNTERS_END).contains(&field.base);
    is_counted || matches!(field.base, base::RETVAL | base::LATENCY)
}
