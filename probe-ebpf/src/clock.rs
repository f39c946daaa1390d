//! What gives records their time.

use aya_ebpf::{
    Global,
    helpers::{bpf_ktime_get_coarse_ns, bpf_ktime_get_ns},
};
use probe_common::control::Clock;

/// Which [`Clock`] gives records their time. The loader sets it, and the verifier removes what is
/// not used.
#[unsafe(no_mangle)]
static PIPE_CLOCK: Global<u32> = Global::new(Clock::PerRecord as u32);

pub(crate) const PER_BLOCK: u32 = Clock::PerBlock as u32;
const COARSE: u32 = Clock::Coarse as u32;

/// The [`Clock`] that the loader has chosen.
#[inline(always)]
pub(crate) fn chosen() -> u32 {
    PIPE_CLOCK.load()
}

/// The time, by that clock.
#[inline(always)]
pub(crate) fn now(clock: u32) -> u64 {
    match clock {
        // SAFETY: the helper has no preconditions.
        COARSE => unsafe { bpf_ktime_get_coarse_ns() },
        // SAFETY: as above.
        _ => unsafe { bpf_ktime_get_ns() },
    }
}
