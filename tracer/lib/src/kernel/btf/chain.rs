//! Resolving types through typedefs and modifiers.

use super::types::{Composite, Int};
use super::{Btf, Type, TypeId};

/// The longest chain of typedefs, modifiers, tags and arrays to follow. The kernel's have about 7.
const LONGEST: usize = 64;

/// Size of a pointer in bytes.
pub(crate) const POINTER: u32 = 8;

/// A type without the typedefs and modifiers before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved<'b> {
    pub(crate) id: TypeId,
    pub(crate) ty: Type<'b>,
    /// Whether the type is tagged `user`, which means that the value is in user memory.
    pub(crate) is_user: bool,
    /// Whether it is tagged `percpu`: each CPU has a value of its own, and what leads there is no address.
    pub(crate) is_per_cpu: bool,
}

impl Btf {
    /// Skips typedefs, modifiers and tags. `None` if there is no such type, or the chain is too long.
    pub(crate) fn resolve(&self, mut id: TypeId) -> Option<Resolved<'_>> {
        let (mut is_user, mut is_per_cpu) = (false, false);
        for _ in 0..LONGEST {
            let ty = self.at(id)?;
            id = match ty {
                Type::Typedef { of, .. } | Type::Modifier { of } => of,
                Type::Tag { name, of } => {
                    is_user |= name == "user";
                    is_per_cpu |= name == "percpu";
                    of
                }
                _ => return Some(Resolved { id, ty, is_user, is_per_cpu }),
            };
        }
        None
    }

    /// The type that a pointer points to. `None` if the type is not a pointer.
    pub(crate) fn target_of(&self, id: TypeId) -> Option<TypeId> {
        match self.resolve(id)?.ty {
            Type::Pointer { to } => Some(to),
            _ => None,
        }
    }

    /// The size of a type in bytes. `None` if it has no size, or the size does not fit in 32 bits.
    pub(crate) fn size_of(&self, mut id: TypeId) -> Option<u32> {
        let mut count: u32 = 1;
        for _ in 0..LONGEST {
            let size = match self.resolve(id)?.ty {
                Type::Array { of, count: elements, .. } => {
                    count = count.checked_mul(elements)?;
                    id = of;
                    continue;
                }
                Type::Int(int) => int.size,
                Type::Composite(composite) => composite.size,
                Type::Enum(values) => values.size,
                Type::Float { size, .. } => size,
                Type::Pointer { .. } => POINTER,
                _ => return None,
            };
            return size.checked_mul(count);
        }
        None
    }

    /// The name of a type, roughly as in C.
    pub(crate) fn type_name(&self, mut id: TypeId) -> String {
        let mut suffix = String::new();
        for _ in 0..LONGEST {
            let (keyword, name) = match self.at(id) {
                Some(Type::Pointer { to }) => {
                    suffix.insert(0, '*');
                    id = to;
                    continue;
                }
                Some(Type::Array { of, count }) => {
                    suffix.push_str(&format!("[{count}]"));
                    id = of;
                    continue;
                }
                Some(Type::Modifier { of } | Type::Tag { of, .. }) => {
                    id = of;
                    continue;
                }
                Some(
                    Type::Composite(Composite { name, is_union, .. })
                    | Type::Forward { name, is_union },
                ) => (if is_union { "union " } else { "struct " }, or_anonymous(name)),
                Some(Type::Enum(values)) => ("enum ", or_anonymous(values.name)),
                Some(Type::Void) => ("", "void"),
                Some(Type::Int(Int { name, .. })) => ("", name),
                Some(
                    Type::Typedef { name, .. }
                    | Type::Float { name, .. }
                    | Type::Function { name, .. },
                ) => ("", name),
                Some(Type::Prototype(_)) => ("", "function"),
                Some(Type::Other) | None => ("", "?"),
            };
            let space = if suffix.is_empty() { "" } else { " " };
            return format!("{keyword}{name}{space}{suffix}");
        }
        "?".to_owned()
    }
}

fn or_anonymous(name: &str) -> &str {
    if name.is_empty() { "{…}" } else { name }
}
