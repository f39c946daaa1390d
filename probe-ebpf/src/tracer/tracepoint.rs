//! Tracepoints.

use super::hit;
use aya_ebpf::{
    EbpfContext, helpers::bpf_get_attach_cookie, macros::tracepoint, programs::TracePointContext,
};
use aya_log_ebpf::trace;
use core::ffi::c_void;
use seq_macro::seq;

/// One program for all tracepoints: which of them was hit, the attach cookie tells (5.15+).
#[tracepoint]
pub(crate) fn tracepoint_by_cookie(ctx: TracePointContext) -> u32 {
    // SAFETY: the context is the one that the kernel gave this program.
    let probe = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    traced(ctx.as_ptr(), probe)
}

// One program for each tracepoint, for kernels without cookies.
seq!(N in 0..32 {
    #[tracepoint]
    pub(crate) fn tracepoint_slot_~N(ctx: TracePointContext) -> u32 {
        traced(ctx.as_ptr(), N)
    }
});

/// One function for all programs above, so that the object holds it once.
#[inline(never)]
fn traced(ctx: *mut c_void, probe: u32) -> u32 {
    let ctx = &TracePointContext::new(ctx);
    trace!(ctx, "tracepoint {} hit", probe);
    // Its fields are in the context.
    hit::report(ctx, probe, |_| {})
}
