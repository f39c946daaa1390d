//! The fields of a kernel function or a raw tracepoint, by its prototype.

use super::access::Access;
use super::arguments::{self, Argument};
use super::buffers::{self, Extent};
use super::call::{self, Moment};
use super::call_number::CallNumber;
use super::names::{self, ValueNames};
use super::shape::Shape;
use super::signature::{self, Member, NotShown, Signature};
use super::{FieldSource, Reading, ResolveError};
use crate::kernel::btf::{Btf, NoPrototype, Prototype, Type, TypeId};
use crate::spec::{At, FieldBase, FieldPath, FieldType};
use probe_tracer_common::fetch::{FetchField, TRAMPOLINE_WORDS, base};
use std::sync::Arc;

/// The fields of a kernel function or a raw tracepoint.
pub(crate) struct FunctionFields {
    btf: Arc<Btf>,
    name: String,
    arguments: Vec<Argument>,
    /// `None` for a raw tracepoint.
    returns: Option<TypeId>,
    /// The register of the return value, where that is available.
    result: Option<u8>,
    moment: Moment,
    /// What the numbers of system calls mean, if an argument has them.
    call_number: Option<CallNumber>,
}

impl FunctionFields {
    /// The fields of a function.
    pub(crate) fn new(btf: Arc<Btf>, function: &str, moment: Moment) -> Result<Self, NoPrototype> {
        Self::with(btf, function, moment, arguments::of_function)
    }

    /// The fields of a function that a trampoline is for.
    pub(crate) fn trampoline(
        btf: Arc<Btf>,
        function: &str,
        moment: Moment,
    ) -> Result<Self, NoPrototype> {
        Self::with(btf, function, moment, arguments::of_trampoline)
    }

    fn with(
        btf: Arc<Btf>,
        function: &str,
        moment: Moment,
        locate: fn(&Btf, &str, Prototype<'_>) -> Vec<Argument>,
    ) -> Result<Self, NoPrototype> {
        let id = btf.function(function)?;
        let Some(Type::Prototype(prototype)) = btf.at(id) else {
            return Err(NoPrototype::Unknown);
        };
        let (name, returns) = (function.to_owned(), Some(prototype.returns));
        let mut arguments = locate(&btf, function, prototype);
        let result = match moment {
            Moment::Entry => None,
            Moment::Return | Moment::Call => Some(base::RETVAL),
            // The word after those of the arguments.
            Moment::Exit => {
                let size = |argument: &Argument| btf.size_of(argument.ty).unwrap_or(0).div_ceil(8);
                let words = u8::try_from(arguments.iter().map(size).sum::<u32>()).ok();
                words.filter(|&word| usize::from(word) < TRAMPOLINE_WORDS)
            }
        };
        // These names are the call's own. An argument of the same name is available by number only.
        let own: &[&str] = match moment {
            Moment::Entry | Moment::Return => &[],
            Moment::Exit => &[call::RETVAL],
            Moment::Call => &[call::RETVAL, call::LATENCY],
        };
        arguments::rename(&mut arguments, own);
        Ok(Self { btf, name, arguments, returns, result, moment, call_number: None })
    }

    /// The fields of a raw tracepoint, by the prototype of its callbacks. Its arguments have names if a kernel function
    /// with the same arguments is found.
    pub(crate) fn raw_tracepoint(btf: Arc<Btf>, name: &str) -> Result<Self, NoPrototype> {
        let id = btf.raw_tracepoint(name)?;
        let Some(Type::Prototype(prototype)) = btf.at(id) else {
            return Err(NoPrototype::Unknown);
        };
        let (arguments, name) = (arguments::of_raw_tracepoint(prototype), name.to_owned());
        let call_number = if name == "sys_enter" { CallNumber::of(&btf) } else { None };
        let (returns, result, moment) = (None, None, Moment::Entry);
        Ok(Self { btf, name, arguments, returns, result, moment, call_number })
    }

    /// What the value at a path means, if it is the number of a system call: the argument behind the registers.
    fn call_number(&self, path: &FieldPath) -> Option<&CallNumber> {
        let argument = arguments::find(&self.arguments, &path.base)?.ok()?;
        let is_number = path.steps.is_empty() && argument.location == Ok(1);
        self.call_number.as_ref().filter(|_| is_number)
    }

    /// The shape of an argument, which may be the result of a system call: the one behind the registers.
    fn as_result(&self, argument: &Argument, shape: Shape) -> Shape {
        let is_exit = self.returns.is_none() && self.name == "sys_exit";
        match shape {
            Shape::Signed if is_exit && argument.location == Ok(1) => Shape::Result,
            shape => shape,
        }
    }

    /// The return value, if the function has one and it is available.
    fn result(&self, at: At) -> Option<Access<'_>> {
        let (register, returns) = (self.result?, self.returns?);
        let is_void = matches!(self.btf.resolve(returns)?.ty, Type::Void);
        let ty = (returns, false);
        let is_there = !is_void && self.in_memory().is_none();
        is_there.then(|| Access::new(&self.btf, register, ty, call::RETVAL, at))
    }

    /// Why the return value cannot be read, if it is written to memory.
    fn in_memory(&self) -> Option<String> {
        let returns = self.returns.filter(|_| self.moment.has_result())?;
        arguments::is_returned_in_memory(&self.btf, returns).then(|| {
            format!(
                "is returned in memory, not in a register: it is `{}`",
                self.btf.type_name(returns)
            )
        })
    }

    /// The type at the end of a path.
    fn type_of(&self, path: &FieldPath) -> Option<TypeId> {
        match &path.base {
            base if self.moment.has_result() && base.to_string() == call::RETVAL => {
                self.result(path.at)?.end(path)
            }
            _ if !self.moment.has_arguments() => None,
            base => arguments::find(&self.arguments, base)?.ok()?.leads_to(&self.btf, path),
        }
    }

    fn default_result(&self) -> Option<(String, FetchField, Shape)> {
        let (field, shape) = self.result(At(0))?.take(None, At(0), true).ok()?;
        Some((call::RETVAL.to_owned(), field, shape))
    }
}

impl FieldSource for FunctionFields {
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        let error = |what| Some(Err(ResolveError::new(path.at, what)));
        let is_function = self.returns.is_some();
        let found = match arguments::find(&self.arguments, &path.base).transpose() {
            Ok(found) => found,
            Err(what) => return error(what),
        };
        match (&path.base, found) {
            // At the entry, an argument may have this name.
            (FieldBase::Return, found)
                if is_function && (found.is_none() || self.moment.has_result()) =>
            {
                match self.result(path.at) {
                    Some(access) => Some(access.follow(path, ty, ty_at, true)),
                    None if !self.moment.has_result() => {
                        Some(Err(call::not_returned(&self.name, path)))
                    }
                    None => error(match self.in_memory() {
                        Some(why) => format!("{} {why}", call::RETVAL),
                        None => format!("{} returns nothing", self.name),
                    }),
                }
            }
            (_, Some(argument)) if self.moment.has_arguments() => {
                let shown = |(field, shape)| match ty {
                    None => (field, self.as_result(argument, shape)),
                    Some(_) => (field, shape),
                };
                Some(argument.follow(&self.btf, path, ty, ty_at).map(shown))
            }
            (_, Some(argument)) => error(format!(
                "{0} is no longer available when {1} returns, only retval is; use --ret with \
                 kprobe:{1} for both",
                argument.name, self.name
            )),
            _ if is_function => {
                call::latency_of(&self.name, self.moment == Moment::Call, path, ty, ty_at)
            }
            _ => None,
        }
    }

    fn unknown(&self, path: &FieldPath) -> ResolveError {
        arguments::unknown(&self.arguments, path, &self.name)
    }

    fn defaults(&self) -> Vec<(String, FetchField, Shape)> {
        let arguments = self.arguments.iter().filter(|_| self.moment.has_arguments());
        let arguments = arguments.filter_map(|one| {
            let (name, field, shape) = one.default(&self.btf)?;
            Some((name, field, self.as_result(one, shape)))
        });
        let latency = (self.moment == Moment::Call).then(call::default_latency);
        arguments.chain(self.default_result()).chain(latency).collect()
    }

    fn signature(&self) -> Option<Signature> {
        Some(signature::of_arguments(&self.btf, &self.arguments, self.returns))
    }

    fn look(&self, path: &FieldPath) -> Option<(String, Vec<Member>)> {
        let ty = self.type_of(path)?;
        Some((self.btf.type_name(ty), signature::members(&self.btf, ty, &path.to_string())))
    }

    fn left_out(&self) -> Vec<NotShown> {
        let arguments = self.arguments.iter().filter(|_| self.moment.has_arguments());
        let why = |argument: &Argument| argument.not_shown(&self.btf);
        let result = self.in_memory().map(|why| NotShown { name: call::RETVAL.to_owned(), why });
        arguments
            .filter_map(|one| Some(NotShown { name: one.name.clone(), why: why(one)? }))
            .chain(result)
            .collect()
    }

    fn extent(&self, argument: &str) -> Option<Extent> {
        buffers::of_function(&self.name, argument).filter(|_| self.moment.has_arguments())
    }

    fn is_late(&self, field: &FetchField) -> bool {
        self.moment == Moment::Call && call::is_late(field)
    }

    fn names(&self, path: &FieldPath) -> Option<Arc<ValueNames>> {
        if let Some(number) = self.call_number(path) {
            return Some(number.names.clone());
        }
        names::of_type(&self.btf.type_name(self.type_of(path)?)).map(Arc::new)
    }

    fn nameless(&self, path: &FieldPath) -> Option<FetchField> {
        Some(self.call_number(path)?.is_32_bit)
    }

    fn enumerator(&self, name: &str) -> Option<i128> {
        self.btf.enumerator(name)
    }
}
