//! Tracepoints.

use super::hit::Registers;
use super::{hit, number};
use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_get_attach_cookie, generated::bpf_probe_read_kernel},
    macros::tracepoint,
    programs::TracePointContext,
};
use aya_log_ebpf::trace;
use core::ffi::c_void;
use probe_common::fetch::CONTEXT_WORDS;

/// As many bits as it takes to count them.
const CONTEXT_MASK: u8 = (2 * CONTEXT_WORDS - 1) as u8;

const _: () = assert!(
    CONTEXT_WORDS.is_power_of_two() && (CONTEXT_MASK as usize) < size_of::<Registers>() / 8
);

/// One program for all tracepoints: which of them was hit, the attach cookie tells (5.15+).
#[tracepoint]
pub(crate) fn tracepoint_by_cookie(ctx: TracePointContext) -> u32 {
    // SAFETY: the context is the one that the kernel gave this program.
    let probe = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    traced(ctx.as_ptr(), probe)
}

/// The same for kernels without cookies: loaded for each tracepoint.
#[tracepoint]
pub(crate) fn tracepoint_by_number(ctx: TracePointContext) -> u32 {
    traced(ctx.as_ptr(), number::of_program())
}

/// One function for both programs, so that the object holds it once.
#[inline(never)]
fn traced(ctx: *mut c_void, probe: u32) -> u32 {
    let ctx = &TracePointContext::new(ctx);
    trace!(ctx, "tracepoint {} hit", probe);
    hit::report(ctx, probe, |registers, table| {
        // The bound is the verifier's.
        let size = u32::from(table.context_words & CONTEXT_MASK) * 8;
        if size != 0 {
            // SAFETY: there are as many registers; the helper checks the address that is read.
            unsafe {
                bpf_probe_read_kernel(registers.as_mut_ptr().cast(), size, ctx.as_ptr().cast())
            };
        }
    })
}
