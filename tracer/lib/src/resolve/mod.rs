//! Compiles the fields and predicates of specs to tables for the programs, and decodes records back to values. Names
//! and types are resolved here; the programs know neither.
//!
//! A [`FieldSource`] resolves the fields of one kind of hook. [`plan`] compiles the table of a probe, and [`event`]
//! decodes its records.

mod access;
mod arguments;
mod bare;
mod buffers;
mod builtin;
mod call;
mod call_number;
mod counter;
mod domain;
pub(crate) mod event;
mod function;
mod int_arguments;
#[cfg(test)]
mod interpreter;
pub(crate) mod names;
mod predicate;
pub(crate) mod probe;
mod reach;
mod registers;
pub(crate) mod shape;
pub(crate) mod signature;
mod slots;
mod syscall;
#[cfg(test)]
mod tests;
mod tracepoint;
mod untyped;
mod user_memory;
mod value;

pub(crate) use bare::BareFields;
pub(crate) use call::{LATENCY, Moment};
pub(crate) use counter::{CountedFields, fields_of};
pub(crate) use function::FunctionFields;
pub(crate) use syscall::SyscallFields;
pub(crate) use tracepoint::TracepointFields;
pub(crate) use untyped::UntypedFields;

use crate::spec::{At, FieldPath, FieldSpec, FieldType, Predicate, foreign};
use buffers::Extent;
use builtin::builtin;
use names::ValueNames;
use probe_perf::nearest::{nearest, suggestion as did_you_mean};
use probe_tracer_common::fetch::{FetchField, FetchTable};
use shape::{Field, Shape};
use signature::{Member, NotShown, Signature};
use slots::Slots;
use std::sync::Arc;

/// How to read a value, and its shape.
pub(crate) type Reading = Result<(FetchField, Shape), ResolveError>;

/// The fields of a hook.
pub(crate) trait FieldSource {
    /// Resolves a path that starts at one of the hook's own fields. `None` if it starts elsewhere.
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading>;

    /// The error for a path whose base is unknown.
    fn unknown(&self, path: &FieldPath) -> ResolveError;

    /// Resolves a path that starts at one of the hook's own fields or at a built-in one.
    fn field(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Reading {
        if let Some(path) = self.without_args(path) {
            return self.own(&path, ty, ty_at).unwrap_or_else(|| Err(self.unknown(&path)));
        }
        self.own(path, ty, ty_at).or_else(|| builtin(path, ty, ty_at)).unwrap_or_else(|| {
            let mut error = self.unknown(path);
            error.what += foreign::variable(&path.base.to_string());
            Err(error)
        })
    }

    /// The path without bpftrace's `args.`, unless the hook has a field of that name.
    fn without_args(&self, path: &FieldPath) -> Option<FieldPath> {
        path.after_args().filter(|_| self.own(path, None, At(0)).is_none())
    }

    /// The path that the hook's own fields have.
    fn plain(&self, path: &FieldPath) -> FieldPath {
        self.without_args(path).unwrap_or_else(|| path.clone())
    }

    /// The fields read by default, with their names.
    fn defaults(&self) -> Vec<(String, FetchField, Shape)>;

    /// The arguments and fields that are not read by default although they have information.
    fn left_out(&self) -> Vec<NotShown> {
        Vec::new()
    }

    /// How long a well-known buffer is, the argument of this name.
    fn extent(&self, _argument: &str) -> Option<Extent> {
        None
    }

    /// The hook's signature, if it is known.
    fn signature(&self) -> Option<Signature> {
        None
    }

    /// The type at the end of a path, and its members.
    fn look(&self, _path: &FieldPath) -> Option<(String, Vec<Member>)> {
        None
    }

    /// What the numbers at the end of a path mean, if that is known beyond their type.
    fn names(&self, _path: &FieldPath) -> Option<Arc<ValueNames>> {
        None
    }

    /// The word that is not 0 in events in which the value at the end of a path has none of these names.
    fn nameless(&self, _path: &FieldPath) -> Option<FetchField> {
        None
    }

    /// Whether a field is available only when the call returns.
    fn is_late(&self, _field: &FetchField) -> bool {
        false
    }

    /// The value of an enumerator, looked up in all enumerations.
    fn enumerator(&self, _name: &str) -> Option<i128> {
        None
    }
}

/// Why a part of a spec cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolveError {
    /// The position in the spec, in bytes from its start.
    pub(crate) at: usize,
    /// The message.
    pub(crate) what: String,
}

impl ResolveError {
    fn new(at: At, what: impl Into<String>) -> Self {
        Self { at: at.0, what: what.into() }
    }
}

/// The table for a probe's program, and the fields that it produces.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) table: FetchTable,
    /// In the order in which they were given.
    pub(crate) fields: Vec<PlannedField>,
    /// What the default fields leave out.
    pub(crate) left_out: Vec<NotShown>,
}

/// A field of a probe's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedField {
    pub(crate) field: Field,
    /// The index of the field's word in a record, and of its [`FetchField`] in the table.
    pub(crate) slot: u8,
    /// The field in other events.
    pub(crate) otherwise: Option<Otherwise>,
}

/// A field in events in which its values have none of the names that they have in others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Otherwise {
    /// The index of the word that is not 0 in these events.
    pub(crate) slot: u8,
    /// The field without names.
    pub(crate) field: Field,
}

impl PlannedField {
    pub(crate) fn new(field: Field, slot: u8) -> Self {
        Self { field, slot, otherwise: None }
    }

    /// The field of events in which the word at this index, if there is one, is 0.
    pub(crate) fn unless(self, slot: Option<u8>) -> Self {
        let nameless = || Field { names: None, ..self.field.clone() };
        let otherwise = slot.map(|slot| Otherwise { slot, field: nameless() });
        Self { otherwise, ..self }
    }
}

/// Resolves the fields and the predicate of a probe. `also` are additional fields; those that the probe already has,
/// under any name, are skipped.
pub(crate) fn plan(
    source: &dyn FieldSource,
    fields: Option<&[FieldSpec]>,
    also: &[FieldSpec],
    predicate: Option<&Predicate>,
) -> Result<Plan, ResolveError> {
    let mut slots = Slots::default();
    let mut named: Vec<(Field, usize)> = Vec::new();
    let mut paths: Vec<FieldPath> = Vec::new();
    let (own, defaults, left_out) = match fields {
        Some(fields) => (fields, Vec::new(), Vec::new()),
        None => (&[][..], source.defaults(), source.left_out()),
    };
    // A type in the spec asks for the number itself.
    let names_of =
        |path: &FieldPath, shape: &Shape| source.names(path).filter(|names| names.fits(shape));
    for (name, fetch, shape) in defaults {
        let (fetch, shape) = match source.extent(&name) {
            Some(_) => buffers::field(source, &FieldSpec::named(&name), &mut slots)?,
            None => (fetch, shape),
        };
        let path = FieldSpec::named(&name).path;
        let names = names_of(&path, &shape);
        named.push((Field { name, shape, names }, slots.add(fetch, At(0))?));
        paths.push(path);
    }
    let own = own.iter().map(|spec| (spec, false));
    for (spec, is_additional) in own.chain(also.iter().map(|spec| (spec, true))) {
        let spec = &FieldSpec { path: source.plain(&spec.path), ..spec.clone() };
        let at = spec.path.at;
        let (fetch, shape) = buffers::field(source, spec, &mut slots)?;
        let name = spec.shown_name();
        let slot = slots.add(fetch, at)?;
        if is_additional && named.iter().any(|(_, known)| *known == slot) {
            continue;
        }
        if named.iter().any(|(known, _)| known.name == name) {
            let what = format!("two fields are called {name}; rename one with NAME=PATH");
            return Err(ResolveError::new(at, what));
        }
        let names = names_of(&spec.path, &shape).filter(|_| spec.ty.is_none());
        named.push((Field { name, shape, names }, slot));
        paths.push(spec.path.clone());
    }
    let mut nameless = |((field, _), path): (&(Field, usize), &FieldPath)| {
        let word = field.names.as_ref().and_then(|_| source.nameless(path));
        word.map(|word| slots.add(word, path.at)).transpose()
    };
    let nameless =
        named.iter().zip(&paths).map(&mut nameless).collect::<Result<Vec<_>, ResolveError>>()?;
    let mut table = FetchTable::EMPTY;
    if let Some(predicate) = predicate {
        let predicate = predicate::with_shown(source, fields.unwrap_or_default(), predicate)?;
        predicate::compile(source, &predicate, &mut slots, &mut table)?;
    }
    let indices = slots.write(&mut table, |field| source.is_late(field));
    registers::use_them(&mut table);
    let planned = named.into_iter().zip(nameless).map(|((field, n), nameless)| {
        PlannedField::new(field, indices[n]).unless(nameless.map(|n| indices[n]))
    });
    Ok(Plan { table, fields: planned.collect(), left_out })
}

/// How a field of a spec is read, and its shape. A buffer depends on its length.
pub(crate) fn buffer_or_field(source: &dyn FieldSource, spec: &FieldSpec) -> Reading {
    buffers::field(source, spec, &mut Slots::default())
}

/// Similar names, or otherwise the first few of all names, as the end of a message.
fn suggestion<'n>(name: &str, others: impl IntoIterator<Item = &'n str>) -> String {
    const FEW: usize = 8;
    let others: Vec<_> = others.into_iter().map(str::to_owned).collect();
    match &nearest(name, others.clone())[..] {
        [] if others.is_empty() => String::new(),
        [] if others.len() > FEW => {
            format!("; available: {}, and others", others[..FEW].join(", "))
        }
        [] => format!("; available: {}", others.join(", ")),
        near => did_you_mean(near),
    }
}
