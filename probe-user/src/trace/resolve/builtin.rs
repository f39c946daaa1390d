//! What can be read at every hook.

use super::reach::Reach;
use super::value::{Sort, take};
use super::{Reading, ResolveError};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, FieldBase, FieldPath, FieldType};
use probe_common::fetch::{FetchField, base, kind};
use probe_common::trace::COMM_LEN;

/// Their names.
pub(crate) const NAMES: [&str; 7] = ["pid", "tid", "uid", "cpu", "comm", KERNEL_STACK, USER_STACK];

/// The functions of the kernel that led there.
pub(crate) const KERNEL_STACK: &str = "kstack";

/// The functions of the process that led there.
pub(crate) const USER_STACK: &str = "ustack";

/// One of [`NAMES`], if it is one.
pub(super) fn builtin(path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
    let FieldBase::Name(name) = &path.base else { return None };
    if let Some((field, shape)) = stack(name) {
        return Some(match (path.steps.first(), ty) {
            (Some((_, at)), _) => Err(ResolveError::new(*at, format!("{name} has no members"))),
            (_, Some(_)) => Err(ResolveError::new(ty_at, format!("{name} is a stack"))),
            (None, None) => Ok((field, shape)),
        });
    }
    let base = match name.as_str() {
        "pid" => base::PID,
        "tid" => base::TID,
        "uid" => base::UID,
        "cpu" => base::CPU,
        "comm" => base::COMM,
        _ => return None,
    };
    if let Some((_, at)) = path.steps.first() {
        return Some(Err(ResolveError::new(*at, format!("{name} has no members"))));
    }
    if base == base::COMM {
        return Some(match ty {
            None | Some(FieldType::Str) => {
                Ok((Reach::memory(base, 0).string(COMM_LEN as u16), Shape::Text))
            }
            Some(_) => Err(ResolveError::new(ty_at, "comm is a string".to_owned())),
        });
    }
    let sort = Sort::Integer { size: 4, is_signed: false, shape: Shape::Unsigned };
    Some(take(Reach::register(base), &sort, ty, name, (path.at, ty_at)))
}

/// A stack of this name.
pub(crate) fn stack(name: &str) -> Option<(FetchField, Shape)> {
    let (kind, shape) = match name {
        KERNEL_STACK => (kind::KERNEL_STACK, Shape::KernelStack),
        USER_STACK => (kind::USER_STACK, Shape::UserStack),
        _ => return None,
    };
    Some((FetchField { kind, ..FetchField::default() }, shape))
}
