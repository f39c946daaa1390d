//! What can be read at a function of the kernel, by its prototype.

use super::arguments::{self, Argument};
use super::call;
use super::reach::Reach;
use super::way::Way;
use super::{Reading, ResolveError, Scope, signature};
use crate::trace::btf::{Btf, NoPrototype, Type, TypeId};
use crate::trace::info::{Member, Signature};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, FieldBase, FieldPath, FieldType};
use probe_common::fetch::{FetchField, TRAMPOLINE_WORDS, base};
use std::sync::Arc;

/// A function of the kernel that is entered, or that returns, or both in one.
pub(crate) struct FunctionScope {
    btf: Arc<Btf>,
    name: String,
    arguments: Vec<Argument>,
    returns: TypeId,
    moment: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Entry,
    Return,
    Call,
    /// Where it returns, the arguments that it was entered with still known; what it returns is in the word
    /// of this number.
    Exit {
        result: u8,
    },
}

impl FunctionScope {
    /// Where it is entered.
    pub(crate) fn entry(btf: Arc<Btf>, function: &str) -> Result<Self, NoPrototype> {
        Self::new(btf, function, Moment::Entry)
    }

    /// Where it returns. Its arguments are not there any more.
    pub(crate) fn returning(btf: Arc<Btf>, function: &str) -> Result<Self, NoPrototype> {
        Self::new(btf, function, Moment::Return)
    }

    /// A call of it: its arguments are those that it was entered with.
    pub(crate) fn call(btf: Arc<Btf>, function: &str) -> Result<Self, NoPrototype> {
        let mut this = Self::new(btf, function, Moment::Call)?;
        // What a call has goes by these names; an argument that has one, too, by its number.
        arguments::rename(&mut this.arguments, &[call::RETVAL, call::LATENCY]);
        Ok(this)
    }

    /// Where it returns, by a trampoline, which keeps its arguments.
    pub(crate) fn exit(btf: Arc<Btf>, function: &str) -> Result<Self, NoPrototype> {
        let mut this = Self::new(btf, function, Moment::Entry)?;
        let size = |argument: &Argument| this.btf.size_of(argument.ty).unwrap_or(0).div_ceil(8);
        let words = this.arguments.iter().map(size).sum::<u32>();
        this.moment = Moment::Exit { result: words.min(base::RETVAL.into()) as u8 };
        arguments::rename(&mut this.arguments, &[call::RETVAL]);
        Ok(this)
    }

    fn new(btf: Arc<Btf>, function: &str, moment: Moment) -> Result<Self, NoPrototype> {
        let id = btf.function(function)?;
        let Some(Type::Prototype(prototype)) = btf.at(id) else {
            return Err(NoPrototype::Unknown);
        };
        let arguments = arguments::of_function(&btf, function, prototype);
        let (name, returns) = (function.to_owned(), prototype.returns);
        Ok(Self { btf, name, arguments, returns, moment })
    }

    /// What it returns, if it does.
    fn result(&self, at: At) -> Option<Way<'_>> {
        let resolved = self.btf.resolve(self.returns)?;
        let register = match self.moment {
            Moment::Entry => return None,
            Moment::Return | Moment::Call => base::RETVAL,
            Moment::Exit { result } if usize::from(result) < TRAMPOLINE_WORDS => result,
            Moment::Exit { .. } => return None,
        };
        let reach = Reach::register(register);
        (!matches!(resolved.ty, Type::Void))
            .then(|| Way::new(&self.btf, reach, self.returns, call::RETVAL, at))
    }

    fn default_result(&self) -> Option<(String, FetchField, Shape)> {
        let (field, shape) = self.result(At(0))?.take(None, At(0), true).ok()?;
        Some((call::RETVAL.to_owned(), field, shape))
    }
}

impl Scope for FunctionScope {
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        let error = |what| Err(ResolveError::new(path.at, what));
        let argument = arguments::find(&self.arguments, &path.base);
        Some(match (self.moment, &path.base, argument) {
            (Moment::Entry, FieldBase::Return, _) => error(format!(
                "{} has not returned yet: there is no retval; --ret tells of calls when they return",
                self.name
            )),
            (_, FieldBase::Return, _) => match self.result(path.at) {
                Some(way) => way.follow(path, ty, ty_at, true),
                None => error(format!("{} returns nothing", self.name)),
            },
            (Moment::Entry | Moment::Call | Moment::Exit { .. }, _, Some(argument)) => {
                argument.follow(&self.btf, path, ty, ty_at)
            }
            (Moment::Return, _, Some(argument)) => error(format!(
                "{0} is not there any more when {1} returns, only retval is; --ret with kprobe:{1} \
                 tells both",
                argument.name, self.name
            )),
            (moment, FieldBase::Name(name), None) if name == call::LATENCY => match moment {
                Moment::Call => call::latency(path, ty, ty_at),
                _ => error(call::needs_ret(&self.name)),
            },
            (_, _, None) => return None,
        })
    }

    fn unknown(&self, path: &FieldPath) -> ResolveError {
        arguments::unknown(&self.arguments, path, &self.name)
    }

    fn defaults(&self) -> Vec<(String, FetchField, Shape)> {
        match self.moment {
            Moment::Entry => {
                self.arguments.iter().filter_map(|one| one.default(&self.btf)).collect()
            }
            Moment::Return => self.default_result().into_iter().collect(),
            Moment::Exit { .. } => {
                let arguments = self.arguments.iter().filter_map(|one| one.default(&self.btf));
                arguments.chain(self.default_result()).collect()
            }
            Moment::Call => {
                let arguments = self.arguments.iter().filter_map(|one| one.default(&self.btf));
                arguments.chain(self.default_result()).chain([call::default_latency()]).collect()
            }
        }
    }

    fn signature(&self) -> Option<Signature> {
        Some(signature::of_arguments(&self.btf, &self.arguments, Some(self.returns)))
    }

    fn look(&self, path: &FieldPath) -> Option<(String, Vec<Member>)> {
        let ty = match (self.moment, &path.base) {
            (_, FieldBase::Return) => self.result(path.at)?.end(path)?,
            (Moment::Entry | Moment::Call | Moment::Exit { .. }, base) => {
                arguments::find(&self.arguments, base)?.leads_to(&self.btf, path)?
            }
            (Moment::Return, _) => return None,
        };
        Some((self.btf.type_name(ty), signature::members(&self.btf, ty, &path.to_string())))
    }

    fn is_late(&self, field: &FetchField) -> bool {
        self.moment == Moment::Call && call::is_late(field)
    }

    fn enumerator(&self, name: &str) -> Option<i128> {
        self.btf.enumerator(name)
    }
}
