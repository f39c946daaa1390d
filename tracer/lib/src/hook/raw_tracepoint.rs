//! Raw tracepoints: a program for each, without a perf event.

use super::attach::{Attacher, Link, Part, c_name, raw_tracepoint};
use super::{Bulk, Fields, Hook, Host};
use crate::error::{Result, TraceError};
use crate::kernel::btf::{Btf, Kind, Type};
use crate::object::Side;
use crate::resolve::{FunctionFields, UntypedFields};
use crate::spec::ProbeSpec;
use probe_perf::pattern::Glob;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// A tracepoint whose fields the kernel does not format.
pub(super) struct RawTracepoint;

impl Hook for RawTracepoint {
    fn default_prefix(&self) -> Option<&'static str> {
        Some("rawtp:")
    }

    fn list(&self, spec: &ProbeSpec, host: &mut Host) -> Result<Vec<String>> {
        let glob = Glob::new(spec.name())?;
        let mut names = BTreeSet::new();
        let kernel = host.types.kernel();
        if let Some(kernel) = &kernel {
            names.extend(in_btf(kernel, &glob));
        }
        // Modules may have no types: none have before 5.11, and none that were built without those of the kernel. The kernel's
        // own types are there for everyone, but not tracefs.
        match host.tracefs() {
            Ok(tracefs) => {
                names.extend(tracefs.raw_names().into_iter().filter(|name| glob.matches(name)));
            }
            Err(error) if kernel.is_none() => return Err(error),
            Err(_) => {}
        }
        if names.is_empty() && !spec.is_glob() {
            return Err(unknown(spec, host));
        }
        Ok(names.into_iter().collect())
    }

    fn bulk(&self) -> Bulk {
        Bulk::OwnPrograms
    }

    fn fields(&self, spec: &ProbeSpec, _as_call: bool, host: &mut Host) -> Fields {
        let typed = |types: Arc<Btf>| FunctionFields::raw_tracepoint(types, spec.name()).ok();
        let of_kernel = host.types.kernel().and_then(typed);
        let mut modules = host.types.modules(None);
        let source = of_kernel.or_else(|| modules.find_map(|(_, types)| typed(types.clone())));
        Ok(match source {
            Some(source) => Box::new(source),
            None => Box::new(UntypedFields::RawTracepoint),
        })
    }

    /// Without types, only an attempt to attach shows which raw tracepoints exist.
    fn check(&self, spec: &ProbeSpec, host: &mut Host) -> Result<()> {
        match host.types.kernel() {
            Some(_) => self.list(spec, host).map(drop),
            None => Ok(()),
        }
    }

    fn attach(
        &self,
        attacher: &mut Attacher<'_>,
        spec: &ProbeSpec,
        _part: Part,
        number: u32,
    ) -> Result<Link> {
        let program =
            attacher.object.program_of(Side::Kernel, "raw_tracepoint_by_number", number)?;
        match raw_tracepoint(&c_name(spec)?, program) {
            Ok(link) => Ok(link),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                Err(unknown(spec, &mut attacher.host))
            }
            Err(source) => {
                // The program reads an argument that the tracepoint does not have (`bpf_probe_register()` in
                // `kernel/trace/bpf_trace.c`). Without types, only the kernel knows that.
                let too_many = source.raw_os_error() == Some(libc::EINVAL);
                let what =
                    "the tracepoint has fewer arguments than the last one that the spec names";
                let source = if too_many { io::Error::other(what) } else { source };
                Err(TraceError::Attach { spec: spec.clone(), source })
            }
        }
    }
}

/// There is no such tracepoint. Without tracefs, no similar ones are known.
fn unknown(spec: &ProbeSpec, host: &mut Host) -> TraceError {
    let near = host.tracefs().map(|tracefs| tracefs.near_raw(spec.name()));
    TraceError::UnknownTracepoint { spec: spec.clone(), near: near.unwrap_or_default() }
}

/// Lists the raw tracepoints by their types, in the kernel and its modules.
fn in_btf(kernel: &Arc<Btf>, glob: &Glob) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut add = |btf: &Btf| {
        let types = btf.own_all(Kind::Typedef).filter_map(|(_, ty)| match ty {
            Type::Typedef { name, .. } => name.strip_prefix("btf_trace_"),
            _ => None,
        });
        names.extend(types.filter(|name| glob.matches(name)).map(str::to_owned));
    };
    add(kernel);
    for module in Btf::modules() {
        if let Ok(module) = Btf::module(&module, kernel.clone()) {
            add(&module);
        }
    }
    names
}
