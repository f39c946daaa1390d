//! The fields of a function whose prototype is unknown.

use super::call::{self, Moment};
use super::reach::Reach;
use super::shape::Shape;
use super::value::{ValueKind, take};
use super::{FieldSource, Reading, ResolveError};
use crate::spec::{At, FieldBase, FieldPath, FieldType};
use probe_tracer_common::fetch::{ARGUMENTS, FetchField, base};

/// An entry has `arg0` to `arg5`, a return has `retval`, and a call has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UntypedFields {
    Kernel(Moment),
    /// A function of a program or library: all addresses are in user memory.
    User(Moment),
    /// The number of arguments is unknown.
    RawTracepoint,
}

impl UntypedFields {
    fn moment(self) -> Moment {
        match self {
            Self::Kernel(moment) | Self::User(moment) => moment,
            Self::RawTracepoint => Moment::Entry,
        }
    }

    fn is_call(self) -> bool {
        self.moment() == Moment::Call
    }

    /// The register that a path starts with, and its name.
    fn register(self, base: &FieldBase) -> Option<(u8, String)> {
        let number = match base {
            FieldBase::Return if self.moment().has_result() => {
                return Some((base::RETVAL, call::RETVAL.to_owned()));
            }
            FieldBase::Return => return None,
            _ if !self.moment().has_arguments() => return None,
            FieldBase::Argument(n) | FieldBase::Position(n) => *n,
            FieldBase::Name(name) => name.strip_prefix("arg")?.parse().ok()?,
            FieldBase::Builtin(_) => return None,
        };
        (usize::from(number) < ARGUMENTS).then(|| (number, format!("arg{number}")))
    }
}

impl FieldSource for UntypedFields {
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        if self.is_call() && call::is_latency(path) {
            return Some(call::latency(path, ty, ty_at));
        }
        let (register, name) = self.register(&path.base)?;
        if let Some((_, at)) = path.steps.first() {
            let what = format!("the types of its arguments are not known: {name} has no members");
            return Some(Err(ResolveError::new(*at, what)));
        }
        let (kind, ty) = match (self, ty) {
            (Self::User(_), ty) => {
                let ty = ty.map(|ty| if ty == FieldType::Str { FieldType::Ustr } else { ty });
                (ValueKind::Pointer { is_text: false, is_user: true, shape: Shape::Hex }, ty)
            }
            _ => (ValueKind::Integer { size: 8, is_signed: false, shape: Shape::Hex }, ty),
        };
        Some(take(Reach::register(register), &kind, ty, &name, (path.at, ty_at)))
    }

    fn unknown(&self, path: &FieldPath) -> ResolveError {
        let there = match self.moment() {
            Moment::Entry => "arg0 to arg5",
            Moment::Return => "retval",
            Moment::Call | Moment::Exit => "arg0 to arg5, retval and latency",
        };
        let call = Self::Kernel(Moment::Call);
        let is_of_call = call.register(&path.base).is_some() || call::is_latency(path);
        let hint = match is_of_call && *self != Self::RawTracepoint {
            true => "; --ret reports arguments, retval and latency",
            false => "",
        };
        let what =
            format!("the types of its arguments are not known: only {there} can be read{hint}");
        ResolveError::new(path.at, what)
    }

    fn defaults(&self) -> Vec<(String, FetchField, Shape)> {
        if *self == Self::RawTracepoint {
            return Vec::new();
        }
        let arguments = (0..ARGUMENTS as u8).map(FieldBase::Argument);
        let registers =
            arguments.chain([FieldBase::Return]).filter_map(|base| self.register(&base));
        let latency = self.is_call().then(call::default_latency);
        let hex = |(register, name)| {
            Some((name, Reach::register(register).integer(64, false).ok()?, Shape::Hex))
        };
        registers.filter_map(hex).chain(latency).collect()
    }

    fn is_late(&self, field: &FetchField) -> bool {
        self.is_call() && call::is_late(field)
    }
}
