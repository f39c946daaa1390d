//! Members of structures, also of those that have no name of their own.

use super::{Btf, Member, Type, TypeId};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// So deep can structures without names be nested. The kernel's are 4 or so.
const DEEPEST: usize = 16;

/// A member, and where it is in the structure that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) ty: TypeId,
    pub(crate) bit_offset: u64,
    /// Of a bit field; 0 for all others.
    pub(crate) bit_size: u32,
}

impl Btf {
    /// Finds a member of a structure or union, or of its anonymous members.
    pub(crate) fn member(&self, of: TypeId, name: &str) -> Option<Found> {
        let mut found = None;
        let _ = self.each_member(of, &mut |offset, member| {
            if member.name != name {
                return ControlFlow::Continue(());
            }
            found = Some(self.found(offset, member));
            ControlFlow::Break(())
        });
        found
    }

    /// The names of all these.
    pub(crate) fn member_names(&self, of: TypeId) -> Vec<&str> {
        let mut names = Vec::new();
        let _ = self.each_member(of, &mut |_, member| {
            names.push(member.name);
            ControlFlow::Continue(())
        });
        names
    }

    /// The names and types of all these.
    pub(crate) fn members(&self, of: TypeId) -> Vec<(&str, TypeId)> {
        let mut members = Vec::new();
        let _ = self.each_member(of, &mut |_, member| {
            members.push((member.name, member.ty));
            ControlFlow::Continue(())
        });
        members
    }

    fn each_member<'b>(&'b self, of: TypeId, visit: &mut Visit<'_, 'b>) -> ControlFlow<()> {
        // A structure without a name is a member of one other: nothing is met twice, or it is no C.
        self.each_below(of, 0, DEEPEST, &mut HashSet::new(), visit)
    }

    fn each_below<'b>(
        &'b self,
        of: TypeId,
        offset: u64,
        depth: usize,
        seen: &mut HashSet<TypeId>,
        visit: &mut Visit<'_, 'b>,
    ) -> ControlFlow<()> {
        let Some(resolved) = self.resolve(of) else { return ControlFlow::Continue(()) };
        let Type::Composite(composite) = resolved.ty else { return ControlFlow::Continue(()) };
        if depth == 0 || !seen.insert(resolved.id) {
            return ControlFlow::Continue(());
        }
        for member in composite.members() {
            if member.name.is_empty() {
                let offset = offset + u64::from(member.bit_offset);
                self.each_below(member.ty, offset, depth - 1, seen, visit)?;
            } else {
                visit(offset, member)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn found(&self, offset: u64, member: Member<'_>) -> Found {
        let Member { ty, bit_offset, mut bit_size, .. } = member;
        let mut bit_offset = offset + u64::from(bit_offset);
        // Before there were sizes in offsets, bit fields had integers of their own.
        if bit_size == 0
            && let Some(Type::Int(int)) = self.resolve(ty).map(|resolved| resolved.ty)
            && (int.bit_offset != 0 || int.size.checked_mul(8) != Some(int.bits))
        {
            bit_offset += u64::from(int.bit_offset);
            bit_size = int.bits;
        }
        Found { ty, bit_offset, bit_size }
    }
}

/// Called with where the structure of a member is, in bits, and the member.
type Visit<'v, 'b> = dyn FnMut(u64, Member<'b>) -> ControlFlow<()> + 'v;
