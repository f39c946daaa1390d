//! What this process may do and this kernel can, as far as it decides how to attach.

use super::error::TraceError;
use std::fs;

/// Checks, before anything is done, that programs can be loaded at all: the kernel's own `EPERM`
/// would not say what is missing.
pub(super) fn check_capabilities() -> Result<(), TraceError> {
    // include/uapi/linux/capability.h
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const CAP_PERFMON: u64 = 1 << 38;
    const CAP_BPF: u64 = 1 << 39;
    let Some(effective) = effective_capabilities() else { return Ok(()) };
    let missing = match (effective & CAP_BPF != 0, effective & CAP_PERFMON != 0) {
        _ if effective & CAP_SYS_ADMIN != 0 => return Ok(()),
        (true, true) => return Ok(()),
        (true, false) => "CAP_PERFMON",
        (false, true) => "CAP_BPF",
        (false, false) => "a privilege",
    };
    Err(TraceError::Capability { missing })
}

fn effective_capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
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
