//! The clock that timestamps records.

use aya_ebpf::{
    Global,
    helpers::{bpf_ktime_get_coarse_ns, bpf_ktime_get_ns},
};
use probe_common::control::Clock;

/// The [`Clock`] that timestamps records. The loader sets it, and the verifier removes the code
/// that it does not use.
#[unsafe(no_mangle)]
static PIPE_CLOCK: Global<u32> = Global::new(Clock::PerRecord as u32);

pub(crate) const PER_BLOCK: u32 = Clock::PerBlock as u32;
const COARSE: u32 = Clock::Coarse as u32;

/// The [`Clock`] that the loader chose.
#[inline(always)]
pub(crate) fn chosen() -> u32 {
    PIPE_CLOCK.load()
}

/// The time according to `clock`.
#[inline(always)]
pub(crate) fn now(clock: u32) -> u64 {
    match clock {
        // SAFETY: the helper has no preconditions.
        COARSE => unsafe { bpf_ktime_get_coarse_ns() },
        // SAFETY: as above.
        _ => unsafe { bpf_ktime_get_ns() },
    }
}
