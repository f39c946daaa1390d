//! System calls: probed at the kernel function that implements one, with the arguments of its
//! tracepoint.

use super::attach::{Attacher, Link, Part};
use super::expand::{Choice, Expansion};
use super::kprobe::{self, Kprobe};
use super::{Fields, Hook, Host, compat};
use crate::error::{Result, TraceError};
use crate::object::Side;
use crate::resolve::SyscallFields;
use crate::spec::{ProbeSpec, Provider};
use crate::tracefs::{Format, Tracefs};
use probe_perf::nearest::nearest;
use probe_perf::pattern::Glob;

/// The prefix of these functions, which depends on the architecture
/// (`arch/*/include/asm/syscall_wrapper.h`).
#[cfg(target_arch = "aarch64")]
const FUNCTION: &str = "__arm64_sys_";
#[cfg(not(target_arch = "aarch64"))]
const FUNCTION: &str = "__x64_sys_";

/// The category of these tracepoints, the prefix of their names, and both.
const CATEGORY: &str = "syscalls";
const SIDE: &str = "sys_enter_";
const TRACEPOINT: &str = "syscalls:sys_enter_";

/// The entry of a system call.
pub(super) struct Ksyscall;

impl Hook for Ksyscall {
    fn reads_registers(&self) -> bool {
        true
    }

    fn may_be_skipped(&self) -> bool {
        true
    }

    fn list(&self, spec: &ProbeSpec, host: &mut Host) -> Result<Vec<String>> {
        kprobe::pmu(spec)?;
        let tracefs = host.tracefs()?;
        if spec.is_glob() {
            return names(tracefs, spec.name());
        }
        format(spec, tracefs).map(|_| vec![spec.name().to_owned()])
    }

    fn expand(&self, pattern: &ProbeSpec, choice: &Choice, host: &mut Host) -> Result<Expansion> {
        choice.names(pattern, names(host.tracefs()?, pattern.name())?)
    }

    fn fields(&self, spec: &ProbeSpec, as_call: bool, host: &mut Host) -> Fields {
        let format = format(spec, host.tracefs()?)?;
        Ok(Box::new(SyscallFields::new(spec.name(), format, as_call)))
    }

    fn note(&self, _spec: &ProbeSpec, host: &mut Host) -> Option<String> {
        compat::note(host)
    }

    /// Probes the function that implements the system call.
    fn attach(
        &self,
        attacher: &mut Attacher<'_>,
        spec: &ProbeSpec,
        part: Part,
        number: u32,
    ) -> Result<Link> {
        let tracepoint = format!("{SIDE}{}", spec.name());
        let own = attacher.host.tracefs()?.own_name(CATEGORY, &tracepoint);
        let own = own.strip_prefix(SIDE).unwrap_or(&own);
        let function = spec.named_as(Provider::Kprobe, &format!("{FUNCTION}{own}"));
        Kprobe { returns: false }.attach(attacher, &function, part, number)
    }

    fn calls(&self) -> Option<Side> {
        Some(Side::Kernel)
    }
}

/// The arguments of a system call, taken from its tracepoint.
fn format(spec: &ProbeSpec, tracefs: &Tracefs) -> Result<Format> {
    let tracepoint = format!("{TRACEPOINT}{}", spec.name());
    match tracefs.format(&spec.named_as(Provider::Tracepoint, &tracepoint)) {
        Err(TraceError::UnknownTracepoint { .. }) => {
            let near = nearest(spec.name(), names(tracefs, "*")?);
            Err(TraceError::UnknownSyscall { spec: spec.clone(), near })
        }
        format => format,
    }
}

/// The system calls that match a pattern, in order.
fn names(tracefs: &Tracefs, pattern: &str) -> Result<Vec<String>> {
    let glob = Glob::new(&format!("{TRACEPOINT}{pattern}"))?;
    let own = |name: String| name.strip_prefix(TRACEPOINT).map(str::to_owned);
    Ok(tracefs.matching(&glob).into_iter().filter_map(own).collect())
}
