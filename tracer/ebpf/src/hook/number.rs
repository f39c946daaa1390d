//! Which probe was hit: the attach cookie tells that (5.15+), or, without cookies, the program, which serves one probe only.

use aya_ebpf::{Global, helpers::bpf_get_attach_cookie};
use core::ffi::c_void;

/// The number of the probe. User space loads the program once for each probe, with a map of one number in place
/// of this section, which therefore must hold nothing else.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.probe")]
static PROBE: Global<u32> = Global::new(u32::MAX);

/// The number of the probe whose hook has this context.
#[inline(always)]
pub(crate) fn of_hook(ctx: *mut c_void) -> u32 {
    // SAFETY: the context is the one that the kernel gave this program.
    unsafe { bpf_get_attach_cookie(ctx) as u32 }
}

/// The number of the probe that this program was loaded for.
#[inline(always)]
pub(crate) fn of_program() -> u32 {
    PROBE.load()
}
