//! What can be read at a function whose prototype nobody knows.

use super::call;
use super::reach::Reach;
use super::value::{Sort, take};
use super::{Reading, ResolveError, Scope};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, FieldBase, FieldPath, FieldType};
use probe_common::fetch::ARGUMENTS;
use probe_common::fetch::{FetchField, base};

/// A function that is entered, with `arg0` to `arg5`, or that returns, with `retval`, or a call, with all of
/// them; or a raw tracepoint, whose arguments nobody has counted. Of a function of a program or library, all
/// addresses are of the process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UntypedScope {
    Entry,
    Return,
    Call,
    RawTracepoint,
    UserEntry,
    UserReturn,
    UserCall,
}

impl UntypedScope {
    fn is_user(self) -> bool {
        matches!(self, Self::UserEntry | Self::UserReturn | Self::UserCall)
    }

    fn is_call(self) -> bool {
        matches!(self, Self::Call | Self::UserCall)
    }

    /// The register that a path begins with, and what to call it.
    fn register(self, base: &FieldBase) -> Option<(u8, String)> {
        let number = match (self, base) {
            (Self::Return | Self::UserReturn | Self::Call | Self::UserCall, FieldBase::Return) => {
                return Some((base::RETVAL, call::RETVAL.to_owned()));
            }
            (Self::Return | Self::UserReturn, _) => return None,
            (_, FieldBase::Argument(n)) => *n,
            (_, FieldBase::Name(name)) => name.strip_prefix("arg")?.parse().ok()?,
            (_, FieldBase::Return) => return None,
        };
        (usize::from(number) < ARGUMENTS).then(|| (number, format!("arg{number}")))
    }
}

impl Scope for UntypedScope {
    fn own(&self, path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
        if self.is_call() && is_latency(path) {
            return Some(call::latency(path, ty, ty_at));
        }
        let (register, name) = self.register(&path.base)?;
        if let Some((_, at)) = path.steps.first() {
            let what = format!("the types of its arguments are not known: {name} has no members");
            return Some(Err(ResolveError::new(*at, what)));
        }
        let (sort, ty) = match self.is_user() {
            true => {
                let pointer = Sort::Pointer { is_text: false, is_user: true, shape: Shape::Hex };
                let is_text = ty == Some(FieldType::Str);
                (pointer, if is_text { Some(FieldType::Ustr) } else { ty })
            }
            false => (Sort::Integer { size: 8, is_signed: false, shape: Shape::Hex }, ty),
        };
        Some(take(Reach::register(register), &sort, ty, &name, (path.at, ty_at)))
    }

    fn unknown(&self, path: &FieldPath) -> ResolveError {
        let there = match self {
            Self::Entry | Self::RawTracepoint | Self::UserEntry => "arg0 to arg5",
            Self::Return | Self::UserReturn => "retval",
            Self::Call | Self::UserCall => "arg0 to arg5, retval and latency",
        };
        let hint = match Self::Call.register(&path.base).is_some() || is_latency(path) {
            true if *self != Self::RawTracepoint => "; --ret tells arguments, retval and latency",
            _ => "",
        };
        let what =
            format!("the types of its arguments are not known: only {there} can be read{hint}");
        ResolveError::new(path.at, what)
    }

    fn defaults(&self) -> Vec<(String, FetchField, Shape)> {
        let hex = |(base, name)| {
            let field = Reach::register(base).integer(64, false).ok()?;
            Some((name, field, Shape::Hex))
        };
        let arguments = || (0..ARGUMENTS as u8).filter_map(|n| hex((n, format!("arg{n}"))));
        let result = || hex((base::RETVAL, call::RETVAL.to_owned()));
        match self {
            Self::Entry | Self::UserEntry => arguments().collect(),
            Self::RawTracepoint => Vec::new(),
            Self::Return | Self::UserReturn => result().into_iter().collect(),
            Self::Call | Self::UserCall => {
                arguments().chain(result()).chain([call::default_latency()]).collect()
            }
        }
    }

    fn is_late(&self, field: &FetchField) -> bool {
        self.is_call() && call::is_late(field)
    }
}

fn is_latency(path: &FieldPath) -> bool {
    matches!(&path.base, FieldBase::Name(name) if name == call::LATENCY)
}
