//! Raw tracepoints. They have had cookies only since 6.10, so each has a program of its own on all kernels.

use super::number;
use crate::hit::{self, Hook, Registers};
use aya_ebpf::{
    helpers::generated::bpf_probe_read_kernel, macros::raw_tracepoint,
    programs::RawTracePointContext,
};
use aya_log_ebpf::trace;
use core::ffi::c_void;
use probe_tracer_common::fetch::FetchTable;

/// The most arguments of a raw tracepoint (`MAX_BPF_FUNC_ARGS` in `include/linux/bpf.h`).
const RAW_ARGUMENTS: usize = 12;

#[raw_tracepoint]
pub(crate) fn raw_tracepoint_by_number(ctx: RawTracePointContext) -> u32 {
    let probe = number::of_program();
    trace!(&ctx, "raw tracepoint {} hit", probe);
    hit::report::<RawTracepoint, _>(&ctx, probe)
}

struct RawTracepoint;

impl Hook for RawTracepoint {
    #[inline(always)]
    fn fill_in(ctx: *mut c_void, registers: &mut Registers, _: &FetchTable) {
        // The kernel refuses to attach a program that reads more arguments than the tracepoint has.
        let size = (8 * RAW_ARGUMENTS) as u32;
        // SAFETY: there are as many registers; the helper checks the address that is read.
        unsafe { bpf_probe_read_kernel(registers.as_mut_ptr().cast(), size, ctx.cast()) };
    }
}
