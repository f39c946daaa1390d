//! What can be read at a raw tracepoint, by the prototype of its callbacks.

use super::arguments::{self, Argument};
use super::{Reading, ResolveError, Scope, signature};
use crate::trace::btf::{Btf, NoPrototype, Type};
use crate::trace::info::{Member, Signature};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, FieldPath, FieldType};
use probe_common::fetch::FetchField;
use std::sync::Arc;

/// A raw tracepoint. Its arguments have names where a function of the kernel tells them.
pub(crate) struct RawTracepointScope {
    btf: Arc<Btf>,
    name: String,
    arguments: Vec<Argument>,
}

impl RawTracepointScope {
    /// The tracepoint of this name.
    pub(crate) fn new(btf: Arc<Btf>, name: &str) -> Result<Self, NoPrototype> {
        let id = btf.raw_tracepoint(name)?;
        let Some(Type::Prototype(prototype)) = btf.at(id) else {
            return Err(NoPrototype::Unknown);
        };
        let arguments = arguments::of_raw_tracepoint(prototype);
        Ok(Self { btf, name: name.to_owned(), arguments })
    }
}

impl Scope for RawTracepointScope {
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        let argument = arguments::find(&self.arguments, &path.base)?;
        Some(argument.follow(&self.btf, path, ty, ty_at))
    }

    fn unknown(&self, path: &FieldPath) -> ResolveError {
        arguments::unknown(&self.arguments, path, &self.name)
    }

    fn defaults(&self) -> Vec<(String, FetchField, Shape)> {
        self.arguments.iter().filter_map(|one| one.default(&self.btf)).collect()
    }

    fn signature(&self) -> Option<Signature> {
        Some(signature::of_arguments(&self.btf, &self.arguments, None))
    }

    fn look(&self, path: &FieldPath) -> Option<(String, Vec<Member>)> {
        let ty = arguments::find(&self.arguments, &path.base)?.leads_to(&self.btf, path)?;
        Some((self.btf.type_name(ty), signature::members(&self.btf, ty, &path.to_string())))
    }

    fn enumerator(&self, name: &str) -> Option<i128> {
        self.btf.enumerator(name)
    }
}
