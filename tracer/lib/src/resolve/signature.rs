//! Signatures of hooks in C notation, for users who look for a field.

use super::arguments::Argument;
use crate::kernel::btf::{Btf, TypeId};
use serde::Serialize;
use std::fmt;

/// The signature of a function or a tracepoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Signature {
    /// The arguments or fields.
    pub parameters: Vec<Parameter>,
    /// The return type of a function, which may be `void`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns: Option<String>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Parameter {
    /// The argument's name.
    pub name: String,
    /// The type in C.
    #[serde(rename = "type")]
    pub ty: String,
    /// Whether the value points to user memory.
    #[serde(rename = "user")]
    pub is_user: bool,
    /// Why the argument cannot be read, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Member {
    /// The path to the member, in the syntax of fields.
    pub path: String,
    /// The type in C.
    #[serde(rename = "type")]
    pub ty: String,
}

/// An argument or field that is not shown by default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NotShown {
    /// Its name.
    pub name: String,
    /// Why it is not shown.
    pub why: String,
}

/// `len (is argument 7 of f: only the first 6 are in registers)`
impl fmt::Display for NotShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.why)
    }
}

/// The signature of a function, or of a raw tracepoint, which has no return type.
pub(super) fn of_arguments(
    btf: &Btf,
    arguments: &[Argument],
    returns: Option<TypeId>,
) -> Signature {
    let parameter = |argument: &Argument| Parameter {
        name: argument.name.clone(),
        ty: btf.type_name(argument.ty),
        is_user: argument.points_to_user || is_tagged(btf, argument.ty),
        unreadable: argument.location.as_ref().err().cloned(),
    };
    Signature {
        parameters: arguments.iter().map(parameter).collect(),
        returns: returns.map(|ty| btf.type_name(ty)),
    }
}

/// Whether BTF tags a pointer as one to user memory.
fn is_tagged(btf: &Btf, ty: TypeId) -> bool {
    let target = btf.target_of(ty).and_then(|target| btf.resolve(target));
    target.is_some_and(|target| target.is_user)
}

/// The members of a structure or union, or of the target of a pointer to one. `path` leads to the value.
pub(super) fn members(btf: &Btf, ty: TypeId, path: &str) -> Vec<Member> {
    let (of, joint) = match btf.target_of(ty) {
        Some(target) => (target, "->"),
        None => (ty, "."),
    };
    let members = btf.members(of).into_iter();
    members
        .map(|(_, member)| Member {
            path: format!("{path}{joint}{}", member.name),
            ty: btf.type_name(member.ty),
        })
        .collect()
}

/// `(file: struct file *, buf: char * [user]) -> ssize_t`
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters: Vec<_> = self.parameters.iter().map(Parameter::to_string).collect();
        write!(f, "({})", parameters.join(", "))?;
        self.returns.as_ref().map_or(Ok(()), |returns| write!(f, " -> {returns}"))
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)?;
        if self.is_user {
            f.write_str(" [user]")?;
        }
        if self.unreadable.is_some() {
            f.write_str(" [unreadable]")?;
        }
        Ok(())
    }
}
