//! System calls: the function of the kernel that one enters, and the tracepoint that knows its arguments.

use super::error::TraceError;
use super::glob::Glob;
use super::spec::{ProbeSpec, Provider};
use super::symbols;
use super::tracefs::{Format, Tracefs};

/// How the names of these functions begin, on one machine or another (`arch/*/include/asm/syscall_wrapper.h`).
#[cfg(target_arch = "aarch64")]
const FUNCTION: &str = "__arm64_sys_";
#[cfg(not(target_arch = "aarch64"))]
const FUNCTION: &str = "__x64_sys_";

/// How the names of these tracepoints begin.
const TRACEPOINT: &str = "syscalls:sys_enter_";

/// The probe of the function that a system call enters.
pub(super) fn function(spec: &ProbeSpec) -> ProbeSpec {
    spec.named_as(Provider::Kprobe, &format!("{FUNCTION}{}", spec.name()))
}

/// The arguments of a system call, as its tracepoint has them.
pub(super) fn format(spec: &ProbeSpec, tracefs: &Tracefs) -> Result<Format, TraceError> {
    let tracepoint = format!("{TRACEPOINT}{}", spec.name());
    match tracefs.format(&spec.named_as(Provider::Tracepoint, &tracepoint)) {
        Err(TraceError::UnknownTracepoint { .. }) => {
            let near = symbols::nearest(spec.name(), names(tracefs, "*")?);
            Err(TraceError::UnknownSyscall { spec: spec.clone(), near })
        }
        format => format,
    }
}

/// The system calls that match a pattern, in order.
pub(super) fn matching(spec: &ProbeSpec, tracefs: &Tracefs) -> Result<Vec<String>, TraceError> {
    names(tracefs, spec.name())
}

fn names(tracefs: &Tracefs, pattern: &str) -> Result<Vec<String>, TraceError> {
    let glob = Glob::new(&format!("{TRACEPOINT}{pattern}"))?;
    let own = |name: String| name.strip_prefix(TRACEPOINT).map(str::to_owned);
    Ok(tracefs.matching(&glob).into_iter().filter_map(own).collect())
}
