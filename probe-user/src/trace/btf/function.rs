//! What functions of the kernel take and return.

use super::{Btf, Kind, Prototype, Type, TypeId};

/// Why it is not known what a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoPrototype {
    /// The kernel does not tell.
    #[error("the kernel's BTF does not have this function")]
    Unknown,
    /// There are several of this name.
    #[error(
        "the name is ambiguous: the kernel has several functions of this name, with different arguments"
    )]
    Ambiguous,
}

impl Btf {
    /// What a function takes and returns.
    pub(crate) fn function(&self, name: &str) -> Result<TypeId, NoPrototype> {
        let mut first: Option<(TypeId, Prototype<'_>)> = None;
        for id in self.named(Kind::Function, name) {
            let Some((id, prototype)) = self.prototype_of(id) else { continue };
            match first {
                None => first = Some((id, prototype)),
                Some((known, _)) if known == id => {}
                Some((_, known)) if known.is_like(prototype) => {}
                Some(_) => return Err(NoPrototype::Ambiguous),
            }
        }
        first.map(|(id, _)| id).ok_or(NoPrototype::Unknown)
    }

    /// The function of this name, if there is one only; of a module's, not of those of the kernel.
    pub(crate) fn own_function(&self, name: &str) -> Result<TypeId, NoPrototype> {
        let mut ids = self.own_named(Kind::Function, name.as_bytes());
        match (ids.next(), ids.next()) {
            (None, _) => Err(NoPrototype::Unknown),
            (Some(id), None) => Ok(id),
            (Some(_), Some(_)) => Err(NoPrototype::Ambiguous),
        }
    }

    /// What a raw tracepoint gives, its first argument included, which is not for it. Names are those of
    /// a function that has the same arguments, where there is one.
    pub(crate) fn raw_tracepoint(&self, name: &str) -> Result<TypeId, NoPrototype> {
        let typedef = self.named(Kind::Typedef, &format!("btf_trace_{name}"));
        let [typedef, ..] = typedef[..] else { return Err(NoPrototype::Unknown) };
        let (id, prototype) = self.prototype_of(typedef).ok_or(NoPrototype::Unknown)?;
        for prefix in ["__traceiter_", "__probestub_", "__bpf_trace_"] {
            if let Ok(named) = self.function(&format!("{prefix}{name}"))
                && let Some((_, function)) = self.prototype_of(named)
                && function.takes_like(prototype)
            {
                return Ok(named);
            }
        }
        Ok(id)
    }

    /// The prototype of a function, of a pointer to one, or of what is called so.
    fn prototype_of(&self, id: TypeId) -> Option<(TypeId, Prototype<'_>)> {
        let mut id = id;
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
    /// Whether two are alike in all that they say.
    fn is_like(self, other: Prototype<'_>) -> bool {
        self.returns == other.returns && self.parameters().eq(other.parameters())
    }

    /// Whether they take the same types.
    fn takes_like(self, other: Prototype<'_>) -> bool {
        self.parameters().map(|one| one.ty).eq(other.parameters().map(|one| one.ty))
    }
}
