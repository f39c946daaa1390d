//! Patterns of functions that trampolines are made for.

use super::btf::NoPrototype;
use super::error::TraceError;
use super::glob::{Functions, Glob};
use super::kernel_types::KernelTypes;
use super::spec::ProbeSpec;
use super::tracefs::Tracefs;

/// Functions that match a pattern.
#[derive(Debug)]
pub(super) struct Trampolines {
    /// Those that a trampoline can be made for, in order.
    pub(super) names: Vec<String>,
    /// How many share their name with others.
    pub(super) ambiguous: usize,
    /// How many must not be probed.
    pub(super) denied: usize,
    /// How many the kernel does not tell the types of.
    pub(super) untyped: usize,
}

impl Trampolines {
    /// Functions that match `spec`, and none of `exclude`.
    pub(super) fn find(
        spec: &ProbeSpec,
        exclude: &[Glob],
        tracefs: Option<&Tracefs>,
        types: &mut KernelTypes,
    ) -> Result<Self, TraceError> {
        types.check_module(spec)?;
        let found = Functions::find(&Glob::new(spec.name())?, exclude, spec.module(), tracefs)
            .map_err(|source| TraceError::Symbols { source })?;
        types.expect_many();
        let (ambiguous, denied) = (found.ambiguous.len(), found.denied);
        let mut this = Self { names: Vec::new(), ambiguous, denied, untyped: 0 };
        for name in found.names {
            match types.function(&name, spec.module()) {
                Ok(_) => this.names.push(name),
                Err(NoPrototype::Unknown) => this.untyped += 1,
                Err(NoPrototype::Ambiguous) => this.ambiguous += 1,
            }
        }
        Ok(this)
    }
}
