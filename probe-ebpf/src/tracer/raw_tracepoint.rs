//! Raw tracepoints. They got cookies late (6.10), so each has a program of its own on all kernels.

use super::tracepoint::hit;
use aya_ebpf::{EbpfContext, macros::raw_tracepoint, programs::RawTracePointContext};
use core::ffi::c_void;
use seq_macro::seq;

seq!(N in 0..32 {
    #[raw_tracepoint]
    pub(crate) fn raw_tracepoint_slot_~N(ctx: RawTracePointContext) -> u32 {
        traced(ctx.as_ptr(), N)
    }
});

/// One function for all programs above, so that the object holds it once.
#[inline(never)]
fn traced(ctx: *mut c_void, probe: u32) -> u32 {
    hit(&RawTracePointContext::new(ctx), probe)
}
