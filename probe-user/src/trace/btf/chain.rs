//! Types behind names and modifiers.

use super::{Btf, Type, TypeId};

/// Longest chain of typedefs, modifiers, tags and arrays that is followed. The kernel's have 7 or so.
const LONGEST: usize = 64;

/// Bytes of a pointer.
pub(crate) const POINTER: u32 = 8;

/// A type without the names and modifiers before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved<'b> {
    pub(crate) id: TypeId,
    pub(crate) ty: Type<'b>,
    /// Whether it is tagged `user`: then it is in the memory of a process.
    pub(crate) is_user: bool,
}

impl Btf {
    /// Skips typedefs, modifiers and tags. None if there is no such type, or no end to them.
    pub(crate) fn resolve(&self, mut id: TypeId) -> Option<Resolved<'_>> {
        let mut is_user = false;
        for _ in 0..LONGEST {
            let ty = self.at(id)?;
            id = match ty {
                Type::Typedef { of, .. }
                | Type::Const { of }
                | Type::Volatile { of }
                | Type::Restrict { of } => of,
                Type::Tag { name, of } => {
                    is_user |= name == "user";
                    of
                }
                _ => return Some(Resolved { id, ty, is_user }),
            };
        }
        None
    }

    /// What a pointer points to, if it is one.
    pub(crate) fn target_of(&self, id: TypeId) -> Option<TypeId> {
        match self.resolve(id)?.ty {
            Type::Pointer { to } => Some(to),
            _ => None,
        }
    }

    /// How many bytes a type has. None if it has no size, or too many.
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

    /// A type as C would write it, more or less.
    pub(crate) fn type_name(&self, mut id: TypeId) -> String {
        let mut behind = String::new();
        for _ in 0..LONGEST {
            let name = match self.at(id) {
                Some(Type::Pointer { to }) => {
                    behind.insert(0, '*');
                    id = to;
                    continue;
                }
                Some(Type::Array { of, count, .. }) => {
                    behind.push_str(&format!("[{count}]"));
                    id = of;
                    continue;
                }
                Some(
                    Type::Const { of }
                    | Type::Volatile { of }
                    | Type::Restrict { of }
                    | Type::Tag { of, .. },
                ) => {
                    id = of;
                    continue;
                }
                Some(Type::Composite(composite)) => {
                    let name = or_anonymous(composite.name);
                    format!("{} {name}", if composite.is_union { "union" } else { "struct" })
                }
                Some(Type::Forward { name, is_union }) => {
                    format!("{} {name}", if is_union { "union" } else { "struct" })
                }
                Some(Type::Enum(values)) => format!("enum {}", or_anonymous(values.name)),
                Some(Type::Void) => "void".to_owned(),
                Some(Type::Int(int)) => int.name.to_owned(),
                Some(Type::Typedef { name, .. } | Type::Float { name, .. }) => name.to_owned(),
                Some(Type::Prototype(_) | Type::Function { .. }) => "function".to_owned(),
                _ => "?".to_owned(),
            };
            let space = if behind.is_empty() { "" } else { " " };
            return format!("{name}{space}{behind}");
        }
        "?".to_owned()
    }
}

fn or_anonymous(name: &str) -> &str {
    if name.is_empty() { "{…}" } else { name }
}
