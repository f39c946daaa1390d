//! The fields that every hook has.

use super::reach::Reach;
use super::shape::Shape;
use super::value::{ValueKind, no_members, take_register};
use super::{Reading, ResolveError};
use crate::spec::{At, Builtin, FieldBase, FieldPath, FieldType};
use probe_tracer_common::fetch::{FetchField, base, kind};
use probe_tracer_common::trace::COMM_LEN;

/// The names of these fields.
pub(crate) const NAMES: [&str; 7] = {
    let mut names = [""; 7];
    let mut n = 0;
    while n < names.len() {
        names[n] = Builtin::ALL[n].name();
        n += 1;
    }
    names
};

/// Resolves a path that starts with a built-in field. `None` if it does not.
pub(super) fn builtin(path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
    let builtin = match &path.base {
        FieldBase::Builtin(builtin) => *builtin,
        FieldBase::Name(name) => Builtin::named(name)?,
        _ => return None,
    };
    let name = builtin.name();
    if let Some(read) = stack(builtin) {
        return Some(no_members(path, name).and_then(|()| match ty {
            Some(_) => Err(ResolveError::new(ty_at, format!("{name} is a stack"))),
            None => Ok(read),
        }));
    }
    let base = match builtin {
        Builtin::Pid => base::PID,
        Builtin::Tid => base::TID,
        Builtin::Uid => base::UID,
        Builtin::Cpu => base::CPU,
        _ => base::COMM,
    };
    if base == base::COMM {
        return Some(no_members(path, name).and_then(|()| match ty {
            None | Some(FieldType::Str) => {
                Ok((Reach::memory(base, 0).string(COMM_LEN as u16), Shape::Text))
            }
            Some(_) => Err(ResolveError::new(ty_at, "comm is a string")),
        }));
    }
    let kind = ValueKind::Integer { size: 4, is_signed: false, shape: Shape::Unsigned };
    Some(take_register(base, &kind, name, path, (ty, ty_at)))
}

/// How to read a stack.
fn stack(builtin: Builtin) -> Option<(FetchField, Shape)> {
    let (kind, shape) = match builtin {
        Builtin::KernelStack => (kind::KERNEL_STACK, Shape::KernelStack),
        Builtin::UserStack => (kind::USER_STACK, Shape::UserStack),
        _ => return None,
    };
    Some((FetchField { kind, ..FetchField::default() }, shape))
}
