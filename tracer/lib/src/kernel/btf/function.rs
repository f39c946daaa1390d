//! The prototypes of kernel functions.

use super::{Btf, Kind, Prototype, Type, TypeId};

/// Why a function's prototype is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoPrototype {
    /// The function is not in the BTF.
    #[error("the kernel's BTF does not have this function")]
    Unknown,
    /// Several functions share this name and have different prototypes.
    #[error(
        "the name is ambiguous: the kernel has several functions of this name, with different arguments"
    )]
    Ambiguous,
}

impl Btf {
    /// The prototype of the function of this name. All functions of this name must have the same one.
    pub(crate) fn function(&self, name: &str) -> Result<TypeId, NoPrototype> {
        let mut first: Option<(TypeId, Prototype<'_>)> = None;
        for id in self.named(Kind::Func, name) {
            let Some((id, prototype)) = self.prototype_of(id) else { continue };
            match first {
                None => first = Some((id, prototype)),
                Some((known, _)) if known == id => {}
                Some((_, known)) if known.is_same_as(prototype) => {}
                Some(_) => return Err(NoPrototype::Ambiguous),
            }
        }
        first.map(|(id, _)| id).ok_or(NoPrototype::Unknown)
    }

    /// The function of this name, if it is unique. For a module's BTF, the kernel's functions are not considered.
    pub(crate) fn own_function(&self, name: &str) -> Result<TypeId, NoPrototype> {
        match self.own_named(Kind::Func, name)[..] {
            [] => Err(NoPrototype::Unknown),
            [id] => Ok(id),
            _ => Err(NoPrototype::Ambiguous),
        }
    }

    /// The prototype of a raw tracepoint's callbacks, including their first argument, which is the kernel's own. The
    /// arguments have names if a function with the same arguments is found.
    pub(crate) fn raw_tracepoint(&self, name: &str) -> Result<TypeId, NoPrototype> {
        let typedef = self.named(Kind::Typedef, &format!("btf_trace_{name}"));
        let [typedef, ..] = typedef[..] else { return Err(NoPrototype::Unknown) };
        let (id, prototype) = self.prototype_of(typedef).ok_or(NoPrototype::Unknown)?;
        for prefix in ["__traceiter_", "__probestub_", "__bpf_trace_"] {
            if let Ok(named) = self.function(&format!("{prefix}{name}"))
                && let Some((_, function)) = self.prototype_of(named)
                && function.has_parameter_types_of(prototype)
            {
                return Ok(named);
            }
        }
        Ok(id)
    }

    /// The prototype of a function, of a pointer to one, or of a typedef of either.
    fn prototype_of(&self, mut id: TypeId) -> Option<(TypeId, Prototype<'_>)> {
        for _ in 0..4 {
            let resolved = self.resolve(id)?;
            match resolved.ty {
                Type::Function { prototype, .. } => id = prototype,
                Type::Pointer { to } => id = to,
                Type::Prototype(prototype) => return Some((resolved.id, prototype)),
                _ => return None,
            }
        }
        None
    }
}

impl Prototype<'_> {
    /// Whether return type, argument types and argument names are equal.
    fn is_same_as(self, other: Prototype<'_>) -> bool {
        self.returns == other.returns && self.parameters().eq(other.parameters())
    }

    /// Whether the argument types are equal.
    fn has_parameter_types_of(self, other: Prototype<'_>) -> bool {
        self.parameters().map(|one| one.ty).eq(other.parameters().map(|one| one.ty))
    }
}
