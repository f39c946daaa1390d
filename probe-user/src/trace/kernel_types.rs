//! The types of the kernel and of its modules, read when they are asked for.

use super::btf::{Btf, NoPrototype, TypeId};
use super::error::TraceError;
use super::spec::ProbeSpec;
use super::symbols::{self, NO_MODULE};
use std::sync::Arc;

/// The types that the kernel tells.
#[derive(Debug, Default)]
pub(super) struct KernelTypes {
    /// The kernel's own, once they were asked for; `None` in it if it does not tell.
    kernel: Option<Option<Arc<Btf>>>,
    /// Those of its modules, once they were asked for, by name.
    modules: Option<Vec<(String, Arc<Btf>)>>,
    /// Whether functions are looked up in an index.
    expects_many: bool,
}

/// A function that the kernel can make a trampoline for.
#[derive(Debug)]
pub(super) struct TypedFunction {
    /// The types that have it.
    pub(super) types: Arc<Btf>,
    pub(super) id: TypeId,
    /// The module that these are of, if they are not the kernel's own.
    pub(super) module: Option<String>,
}

impl KernelTypes {
    /// Prepares for a look at many functions.
    pub(super) fn expect_many(&mut self) {
        self.expects_many = true;
        if let Some(kernel) = self.kernel() {
            kernel.index_functions();
        }
        for (_, module) in self.modules.iter().flatten() {
            module.index_functions();
        }
    }

    /// The kernel's own, if it tells them.
    pub(super) fn kernel(&mut self) -> Option<Arc<Btf>> {
        let read = || match Btf::kernel() {
            Ok(btf) => Some(Arc::new(btf)),
            Err(error) => {
                log::debug!("arguments have no names: {error}");
                None
            }
        };
        self.kernel.get_or_insert_with(read).clone()
    }

    /// Those of the modules that are loaded and tell them, or of one of them.
    pub(super) fn modules(
        &mut self,
        only: Option<&str>,
    ) -> impl Iterator<Item = &(String, Arc<Btf>)> {
        let is_indexed = self.expects_many;
        let kernel = self.kernel();
        let open = |name: String| {
            let module = Btf::module(&name, kernel.clone()?).ok()?;
            if is_indexed {
                module.index_functions();
            }
            Some((name, Arc::new(module)))
        };
        let all = self
            .modules
            .get_or_insert_with(|| Btf::modules().into_iter().filter_map(open).collect());
        all.iter().filter(move |(name, _)| only.is_none_or(|only| only == name))
    }

    /// A function, of the module that is named ([`NO_MODULE`]: of none), if there is one of this name only.
    pub(super) fn function(
        &mut self,
        name: &str,
        module: Option<&str>,
    ) -> Result<TypedFunction, NoPrototype> {
        if module.is_none_or(|module| module == NO_MODULE)
            && let Some(types) = self.kernel()
        {
            match types.own_function(name) {
                Err(NoPrototype::Unknown) => {}
                found => return found.map(|id| TypedFunction { types, id, module: None }),
            }
        }
        if module == Some(NO_MODULE) {
            return Err(NoPrototype::Unknown);
        }
        let mut found = Err(NoPrototype::Unknown);
        for (module, types) in self.modules(module) {
            found = match (types.own_function(name), found) {
                (Err(NoPrototype::Unknown), found) => found,
                (Ok(id), Err(NoPrototype::Unknown)) => {
                    Ok(TypedFunction { types: types.clone(), id, module: Some(module.clone()) })
                }
                _ => return Err(NoPrototype::Ambiguous),
            };
        }
        found
    }

    /// The function that a trampoline is for.
    pub(super) fn trampoline(&mut self, spec: &ProbeSpec) -> Result<TypedFunction, TraceError> {
        self.check_module(spec)?;
        self.function(spec.name(), spec.module())
            .map_err(|_| TraceError::NoTrampoline { spec: spec.clone() })
    }

    /// Checks that the types of the module are known that a trampoline's function is said to be of.
    pub(super) fn check_module(&mut self, spec: &ProbeSpec) -> Result<(), TraceError> {
        let Some(name) = spec.module().filter(|name| *name != NO_MODULE) else { return Ok(()) };
        if self.modules(Some(name)).next().is_some() {
            return Ok(());
        }
        let (spec, module) = (spec.clone(), name.to_owned());
        Err(match symbols::is_loaded(name) {
            true => TraceError::NoModuleTypes { spec, module },
            false => TraceError::UnknownModule { spec, module },
        })
    }
}
