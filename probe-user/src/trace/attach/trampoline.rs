//! Functions by trampolines: a program for each, loaded for it.

use super::super::error::TraceError;
use super::super::spec::{ProbeSpec, Provider};
use super::{Attacher, Link};
use crate::sys::bpf;
use std::os::fd::AsFd;

impl Attacher<'_> {
    pub(super) fn trampoline(&mut self, spec: &ProbeSpec, number: u32) -> Result<Link, TraceError> {
        let attach = |source| TraceError::Attach { spec: spec.clone(), source };
        let function = match &self.types {
            Some(types) => types.function_itself(spec.name()),
            None => None,
        };
        let Some(function) = function else {
            return Err(TraceError::NoTrampoline { spec: spec.clone() });
        };
        let returns = spec.provider() == Provider::Fexit;
        let name = format!("{}_slot_{number}", spec.provider().name());
        let program = self.object.trampoline(&name, function.0, returns)?;
        let link = bpf::open_trampoline(program.as_fd()).map_err(attach)?;
        Ok(Link::Program { _link: link, program })
    }
}
