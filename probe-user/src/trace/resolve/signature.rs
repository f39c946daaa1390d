//! What a hook gives, in the words of C: for people who look for a field.

use super::arguments::Argument;
use crate::trace::btf::{Btf, TypeId};
use crate::trace::info::{Member, Parameter, Signature};

/// The signature of a function, or a raw tracepoint, which returns nothing.
pub(super) fn of_arguments(
    btf: &Btf,
    arguments: &[Argument],
    returns: Option<TypeId>,
) -> Signature {
    let parameter = |argument: &Argument| Parameter {
        name: argument.name.clone(),
        ty: btf.type_name(argument.ty),
        is_user: argument.points_to_user || is_tagged(btf, argument.ty),
        unreadable: argument.place.as_ref().err().cloned(),
    };
    Signature {
        parameters: arguments.iter().map(parameter).collect(),
        returns: returns.map(|ty| btf.type_name(ty)),
    }
}

/// Whether BTF itself says that a pointer is a process's.
fn is_tagged(btf: &Btf, ty: TypeId) -> bool {
    let target = btf.target_of(ty).and_then(|target| btf.resolve(target));
    target.is_some_and(|target| target.is_user)
}

/// The members of a structure or union, or of what a pointer to one leads to. `path`: how one gets to it.
pub(super) fn members(btf: &Btf, ty: TypeId, path: &str) -> Vec<Member> {
    let (of, joint) = match btf.target_of(ty) {
        Some(target) => (target, "->"),
        None => (ty, "."),
    };
    let member =
        |(name, ty)| Member { path: format!("{path}{joint}{name}"), ty: btf.type_name(ty) };
    btf.members(of).into_iter().map(member).collect()
}
