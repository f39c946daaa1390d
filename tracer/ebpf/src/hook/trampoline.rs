//! Kernel functions through trampolines: their entries, and their returns with the arguments still known.
//!
//! Such a program is loaded for one function, so each function has a program of its own.

use super::number;
use crate::hit::{self, Hook, Registers};
use aya_ebpf::{
    EbpfContext,
    helpers::generated::bpf_probe_read_kernel,
    macros::{fentry, fexit},
    programs::{FEntryContext, FExitContext},
};
use aya_log_ebpf::trace;
use core::ffi::c_void;
use probe_tracer_common::fetch::{FetchTable, TRAMPOLINE_WORDS};

#[fentry]
pub(crate) fn fentry_by_number(ctx: FEntryContext) -> u32 {
    reached(ctx.as_ptr(), number::of_program())
}

#[fexit]
pub(crate) fn fexit_by_number(ctx: FExitContext) -> u32 {
    reached(ctx.as_ptr(), number::of_program())
}

/// One function for both programs, so that the object has this code once.
#[inline(never)]
fn reached(ctx: *mut c_void, probe: u32) -> u32 {
    let ctx = &FEntryContext::new(ctx);
    trace!(ctx, "trampoline of {} reached", probe);
    hit::report::<Trampoline, _>(ctx, probe)
}

struct Trampoline;

impl Hook for Trampoline {
    #[inline(always)]
    fn fill_in(ctx: *mut c_void, registers: &mut Registers, _: &FetchTable) {
        // The words of the arguments, followed by the return value for programs on returns. The kernel refuses to
        // load a program that reads more of them than the function has.
        let size = (8 * TRAMPOLINE_WORDS) as u32;
        // SAFETY: there are as many registers; the helper checks the address that is read.
        unsafe { bpf_probe_read_kernel(registers.as_mut_ptr().cast(), size, ctx.cast()) };
    }
}
