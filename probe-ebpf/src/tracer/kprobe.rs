//! Kernel functions.

use super::{filter, task};
use aya_ebpf::{
    EbpfContext, helpers::bpf_get_attach_cookie, macros::kprobe, programs::ProbeContext,
};
use aya_log_ebpf::trace;
use core::ffi::c_void;
use probe_common::trace::{ARGS, KprobeHit};
use probe_ebpf::pipe;
use seq_macro::seq;

/// One program for all functions: which of them was hit, the attach cookie tells (5.15+).
#[kprobe]
pub(crate) fn kprobe_by_cookie(ctx: ProbeContext) -> u32 {
    // SAFETY: the context is the one that the kernel gave this program.
    let probe = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    hit(ctx.as_ptr(), probe)
}

// One program for each function, for kernels without cookies.
seq!(N in 0..32 {
    #[kprobe]
    pub(crate) fn kprobe_slot_~N(ctx: ProbeContext) -> u32 {
        hit(ctx.as_ptr(), N)
    }
});

/// One function for all programs above, so that the object holds it once.
#[inline(never)]
fn hit(ctx: *mut c_void, probe: u32) -> u32 {
    let ctx = &ProbeContext::new(ctx);
    if !filter::current_is_traced() {
        return 0;
    }
    trace!(ctx, "kprobe {} hit", probe);
    let Ok(mut record) = pipe::reserve::<KprobeHit>() else { return 0 };
    record.task = task::current();
    record.probe = probe;
    record.arg_count = ARGS as u32;
    record.args = [
        ctx.arg(0).unwrap_or(0),
        ctx.arg(1).unwrap_or(0),
        ctx.arg(2).unwrap_or(0),
        ctx.arg(3).unwrap_or(0),
        ctx.arg(4).unwrap_or(0),
        ctx.arg(5).unwrap_or(0),
    ];
    // A failure is in the tally.
    let _ = record.commit(ctx);
    0
}
