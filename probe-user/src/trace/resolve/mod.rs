//! From fields as they are written to what a program reads: names and types are resolved here, so that
//! programs need to know of neither.
//!
//! A [`Scope`] knows what can be read at a sort of hook, [`plan`] puts together what a probe reads.

mod arguments;
mod builtin;
mod call;
mod counter;
mod function;
#[cfg(test)]
mod interpreter;
mod predicate;
mod raw_tracepoint;
mod reach;
mod registers;
mod signature;
mod slots;
mod syscall;
#[cfg(test)]
mod tests;
mod tracepoint;
mod untyped;
mod user_memory;
mod value;
mod way;

pub(crate) use builtin::{KERNEL_STACK, USER_STACK};
pub(crate) use call::LATENCY;
pub(crate) use counter::{CountedScope, fields_of};
pub(crate) use function::FunctionScope;
pub(crate) use raw_tracepoint::RawTracepointScope;
pub(crate) use syscall::SyscallScope;
pub(crate) use tracepoint::TracepointScope;
pub(crate) use untyped::UntypedScope;

use super::info::{Member, Signature};
use super::shape::{Field, Shape};
use super::spec::{At, FieldPath, FieldSpec, FieldType, Predicate};
use crate::trace::symbols::nearest;
use builtin::builtin;
use probe_common::fetch::{FetchField, FetchTable};
use slots::Slots;
use std::collections::HashSet;

/// How a value is read, and what it is.
pub(crate) type Reading = Result<(FetchField, Shape), ResolveError>;

/// What can be read at a hook.
pub(crate) trait Scope {
    /// The way to a value of the hook's own, and what the value is. `None` if the path does not begin at
    /// such a one.
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading>;

    /// Why a path that begins at nothing is none.
    fn unknown(&self, path: &FieldPath) -> ResolveError;

    /// The way to a value, and what the value is: the hook's own, or what can be read at every hook.
    fn field(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Reading {
        self.own(path, ty, ty_at)
            .or_else(|| builtin(path, ty, ty_at))
            .unwrap_or_else(|| Err(self.unknown(path)))
    }

    /// What is read where no fields are given, with names.
    fn defaults(&self) -> Vec<(String, FetchField, Shape)>;

    /// What the hook gives, if that is known.
    fn signature(&self) -> Option<Signature> {
        None
    }

    /// The type of what a path leads to, and the members of that, where it has some.
    fn look(&self, _path: &FieldPath) -> Option<(String, Vec<Member>)> {
        None
    }

    /// Whether a field is not there yet where the hook is hit, only when the call returns.
    fn is_late(&self, _field: &FetchField) -> bool {
        false
    }

    /// The value of an enumerator, of whatever enumeration.
    fn enumerator(&self, _name: &str) -> Option<i128> {
        None
    }
}

/// Why something that was written cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolveError {
    /// Where it stands in the spec, in bytes from its start.
    pub(crate) at: usize,
    /// What is wrong.
    pub(crate) what: String,
}

impl ResolveError {
    fn new(at: At, what: impl Into<String>) -> Self {
        Self { at: at.0, what: what.into() }
    }
}

/// What the program of a probe reads, and what it means.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) table: FetchTable,
    /// In the order in which they were given.
    pub(crate) fields: Vec<PlannedField>,
}

/// A field of a probe's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedField {
    pub(crate) field: Field,
    /// Where its word is in a hit, and its [`FetchField`] in the table.
    pub(crate) slot: u8,
}

/// Resolves the fields and the predicate of a probe; `also`: fields that it has beside its own, unless it
/// has them, by whatever name.
pub(crate) fn plan(
    scope: &dyn Scope,
    fields: Option<&[FieldSpec]>,
    also: &[FieldSpec],
    predicate: Option<&Predicate>,
) -> Result<Plan, ResolveError> {
    let mut slots = Slots::default();
    let mut named = Vec::new();
    let mut names = HashSet::new();
    match fields {
        Some(fields) => {
            for spec in fields {
                let (fetch, shape) = scope.field(&spec.path, spec.ty, spec.ty_at)?;
                let name = spec.shown_name();
                if !names.insert(name.clone()) {
                    return Err(two_fields(&name, spec.path.at));
                }
                named.push((Field { name, shape }, slots.add(fetch, spec.path.at)?));
            }
        }
        None => {
            for (name, fetch, shape) in scope.defaults() {
                names.insert(name.clone());
                named.push((Field { name, shape }, slots.add(fetch, At(0))?));
            }
        }
    }
    for spec in also {
        let (fetch, shape) = scope.field(&spec.path, spec.ty, spec.ty_at)?;
        let (name, slot) = (spec.shown_name(), slots.add(fetch, spec.path.at)?);
        if named.iter().any(|(_, known)| *known == slot) {
            continue;
        }
        if !names.insert(name.clone()) {
            return Err(two_fields(&name, spec.path.at));
        }
        named.push((Field { name, shape }, slot));
    }
    let mut table = FetchTable::EMPTY;
    if let Some(predicate) = predicate {
        predicate::compile(scope, predicate, &mut slots, &mut table)?;
    }
    let places = slots.write(&mut table, |field| scope.is_late(field));
    registers::use_them(&mut table);
    let planned = named.into_iter().map(|(field, n)| PlannedField { field, slot: places[n] });
    Ok(Plan { table, fields: planned.collect() })
}

fn two_fields(name: &str, at: At) -> ResolveError {
    ResolveError::new(at, format!("two fields are called {name}; NAME=… gives one another"))
}

/// "; there is …", with the names that are like one; else all, if these are few.
fn suggestion<'n>(name: &str, others: impl IntoIterator<Item = &'n str>) -> String {
    const FEW: usize = 8;
    let mut others: Vec<_> = others.into_iter().map(str::to_owned).collect();
    let near = nearest(name, others.clone());
    if !near.is_empty() {
        return format!("; there is {}", near.join(", "));
    }
    if others.is_empty() {
        return String::new();
    }
    if others.len() > FEW {
        others.truncate(FEW);
        others.push("and others".to_owned());
    }
    format!("; there is {}", others.join(", "))
}
