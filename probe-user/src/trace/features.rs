//! What this process may do and this kernel can, as far as it decides how to attach.

use super::capabilities::Capabilities;
use super::error::TraceError;
use crate::perf::kind_of;
use crate::sys::bpf;
use crate::sys::bpf::load::Purpose;
use std::io;
use std::os::fd::AsFd;
use std::sync::LazyLock;

/// Checks, before anything is done, that programs can be loaded at all: the kernel's own `EPERM`
/// would not say what is missing.
pub(super) fn check_capabilities() -> Result<(), TraceError> {
    let Ok(effective) = Capabilities::effective() else { return Ok(()) };
    match effective.missing_to_trace() {
        Capabilities::NONE => Ok(()),
        missing => Err(TraceError::Capability { missing }),
    }
}

/// The type of the kprobe PMU, if this kernel has kprobes.
pub(super) fn kprobe_pmu() -> Option<u32> {
    kind_of("kprobe").ok()
}

/// The type of the uprobe PMU, if this kernel has uprobes.
pub(super) fn uprobe_pmu() -> Option<u32> {
    kind_of("uprobe").ok()
}

/// Whether programs can be attached with a cookie (5.15+).
pub(super) fn has_cookies() -> bool {
    aya::features().bpf_cookie()
}

/// Whether one program can be attached to many functions at once (5.18+, with CONFIG_FPROBE).
pub(super) fn has_kprobe_multi() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(bpf::multi::has_kprobe_multi);
    *HAS
}

/// Whether the kernel keeps programs of trampolines from running inside themselves (5.12+): since then, it
/// counts how often it did.
pub(super) fn guards_trampolines() -> bool {
    static GUARDS: LazyLock<bool> = LazyLock::new(|| {
        let program = bpf::load::load_empty(Purpose::Function);
        program.is_ok_and(|program| matches!(bpf::recursion_misses(program.as_fd()), Ok(Some(_))))
    });
    *GUARDS
}

/// Whether a call failed for want of a privilege.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
