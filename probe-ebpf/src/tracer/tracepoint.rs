//! Tracepoints.

use super::{hit, number};
use aya_ebpf::{
    EbpfContext, helpers::bpf_get_attach_cookie, macros::tracepoint, programs::TracePointContext,
};
use aya_log_ebpf::trace;
use core::ffi::c_void;

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
    // Its fields are in the context.
    hit::report(ctx, probe, |_| {})
}
