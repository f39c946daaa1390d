//! What can be read at every hook.

use super::reach::Reach;
use super::value::{Sort, take};
use super::{Reading, ResolveError};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, FieldBase, FieldPath, FieldType};
use probe_common::fetch::base;
use probe_common::trace::COMM_LEN;

/// Their names.
pub(crate) const NAMES: [&str; 5] = ["pid", "tid", "uid", "cpu", "comm"];

/// One of [`NAMES`], if it is one.
pub(super) fn builtin(path: &FieldPath, ty: Option<FieldType>, ty_at: At) -> Option<Reading> {
    let FieldBase::Name(name) = &path.base else { return None };
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
