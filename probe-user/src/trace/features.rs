//! What this process may do and this kernel can, as far as it decides how to attach.

use super::capabilities::Capabilities;
use super::error::TraceError;
use std::fs;

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
    let text = fs::read_to_string("/sys/bus/event_source/devices/kprobe/type").ok()?;
    text.trim().parse().ok()
}

/// Whether programs can be attached with a cookie (5.15+).
pub(super) fn has_cookies() -> bool {
    aya::features().bpf_cookie()
}
