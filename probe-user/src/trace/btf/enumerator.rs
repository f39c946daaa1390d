//! Values of enumerations, by name.

use super::{Btf, Kind, Type};

impl Btf {
    /// The value that a name has in an enumeration, if it has no other one in another.
    pub(crate) fn enumerator(&self, name: &str) -> Option<i128> {
        let mut found = None;
        let kinds = [Kind::Enum, Kind::Enum64];
        for (_, ty) in kinds.into_iter().flat_map(|kind| self.all(kind)) {
            let Type::Enum(values) = ty else { continue };
            for (_, value) in values.values().filter(|(known, _)| *known == name) {
                let value = match values.is_signed {
                    true => i128::from(value.cast_signed()),
                    false => i128::from(value),
                };
                if found.is_some_and(|known| known != value) {
                    return None;
                }
                found = Some(value);
            }
        }
        found
    }
}
