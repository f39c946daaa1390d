//! Raw tracepoints. They have had cookies only since 6.10, so each has a program of its own on all kernels.

use super::number;
use crate::hit;
use aya_ebpf::{
    EbpfContext, helpers::generated::bpf_probe_read_kernel, macros::raw_tracepoint,
    programs::RawTracePointContext,
};
use aya_log_ebpf::trace;

/// The most arguments of a raw tracepoint (`MAX_BPF_FUNC_ARGS` in `include/linux/bpf.h`).
const RAW_ARGUMENTS: usize = 12;

#[raw_tracepoint]
pub(crate) fn raw_tracepoint_by_number(ctx: RawTracePointContext) -> u32 {
    let probe = number::of_program();
    trace!(&ctx, "raw tracepoint {} hit", probe);
    hit::report(&ctx, probe, |registers, _| {
        // The kernel refuses to attach a program that reads more arguments than the tracepoint has.
        let size = (8 * RAW_ARGUMENTS) as u32;
        // SAFETY: there are as many registers; the helper checks the address that is read.
        unsafe { bpf_probe_read_kernel(registers.as_mut_ptr().cast(), size, ctx.as_ptr().cast()) };
    })
}
