//! Finding members of structures, including those of anonymous members, and enumerators.

use super::{Btf, Kind, Member, Type, TypeId};
use std::collections::HashSet;

/// How deeply anonymous structures may nest. The kernel's nest about 4 deep.
const DEEPEST: usize = 16;

/// A member and its location in the structure that was searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) ty: TypeId,
    pub(crate) bit_offset: u64,
    /// In bits, for a bit field; 0 for all others.
    pub(crate) bit_size: u32,
}

impl Btf {
    /// Finds a member of a structure or union, or of its anonymous members.
    pub(crate) fn member(&self, of: TypeId, name: &str) -> Option<Found> {
        let (start, member) =
            self.members(of).into_iter().find(|(_, member)| member.name == name)?;
        let Member { ty, bit_offset, mut bit_size, .. } = member;
        let mut bit_offset = start + u64::from(bit_offset);
        // In older BTF, a bit field's size is in an integer type of its own, not in the member's offset.
        if bit_size == 0
            && let Some(Type::Int(int)) = self.resolve(ty).map(|resolved| resolved.ty)
            && (int.bit_offset != 0 || int.size.checked_mul(8) != Some(int.bits))
        {
            bit_offset += u64::from(int.bit_offset);
            bit_size = int.bits;
        }
        Some(Found { ty, bit_offset, bit_size })
    }

    /// The names of all members, including those of anonymous members.
    pub(crate) fn member_names(&self, of: TypeId) -> Vec<&str> {
        self.members(of).into_iter().map(|(_, member)| member.name).collect()
    }

    /// All members, including those of anonymous members, but not these themselves. Each comes with the offset, in
    /// bits, of the structure that has it.
    pub(crate) fn members(&self, of: TypeId) -> Vec<(u64, Member<'_>)> {
        let mut found = Vec::new();
        // In C, an anonymous structure is a member of only one other, so no type is visited twice.
        self.add_members(of, 0, DEEPEST, &mut HashSet::new(), &mut found);
        found
    }

    fn add_members<'b>(
        &'b self,
        of: TypeId,
        start: u64,
        depth: usize,
        seen: &mut HashSet<TypeId>,
        found: &mut Vec<(u64, Member<'b>)>,
    ) {
        let Some(resolved) = self.resolve(of) else { return };
        let Type::Composite(composite) = resolved.ty else { return };
        if depth == 0 || !seen.insert(resolved.id) {
            return;
        }
        for member in composite.members() {
            if member.name.is_empty() {
                let start = start + u64::from(member.bit_offset);
                self.add_members(member.ty, start, depth - 1, seen, found);
            } else {
                found.push((start, member));
            }
        }
    }

    /// The value of an enumerator, unless enumerations disagree about it.
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
