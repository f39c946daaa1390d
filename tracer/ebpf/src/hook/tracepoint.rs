//! Tracepoints.

use super::number;
use crate::hit::{self, Hook, Registers};
use aya_ebpf::{helpers::generated::bpf_probe_read_kernel, programs::TracePointContext};
use aya_log_ebpf::trace;
use core::ffi::c_void;
use probe_ebpf::unshared_stack;
use probe_tracer_common::fetch::{CONTEXT_WORDS, FetchTable};

/// A mask with enough bits for the number of context words.
const CONTEXT_MASK: u8 = (2 * CONTEXT_WORDS - 1) as u8;

const _: () = assert!(
    CONTEXT_WORDS.is_power_of_two() && (CONTEXT_MASK as usize) < size_of::<Registers>() / 8
);

/// One program for all tracepoints: the attach cookie tells which one was hit (5.15+).
///
/// It does not use aya's macro, whose programs return 0 whatever the function returns.
///
/// An interrupt in the middle of a run may hit another tracepoint, and on 7.3, the program then runs once more on that CPU:
/// hence a stack for each run.
#[unsafe(no_mangle)]
#[unsafe(link_section = "tracepoint")]
extern "C" fn tracepoint_by_cookie(ctx: *mut c_void) -> u32 {
    unshared_stack();
    traced(ctx, number::of_hook(ctx))
}

/// The same for kernels without cookies, loaded once for each tracepoint.
#[unsafe(no_mangle)]
#[unsafe(link_section = "tracepoint")]
extern "C" fn tracepoint_by_number(ctx: *mut c_void) -> u32 {
    unshared_stack();
    traced(ctx, number::of_program())
}

/// The return value of these programs. With it, the kernel passes the hit on to all other perf events of the same tracepoint. After
/// a 0, it would drop the hit for all of them (`perf_trace_run_bpf_submit` in `kernel/events/core.c`).
pub(super) const PASS_ON: u32 = 1;

/// One function for both programs, so that the object has this code once.
#[inline(never)]
fn traced(ctx: *mut c_void, probe: u32) -> u32 {
    let ctx = &TracePointContext::new(ctx);
    trace!(ctx, "tracepoint {} hit", probe);
    hit::report::<Tracepoint, _>(ctx, probe);
    PASS_ON
}

pub(super) struct Tracepoint;

impl Hook for Tracepoint {
    #[inline(always)]
    fn fill_in(ctx: *mut c_void, registers: &mut Registers, table: &FetchTable) {
        // The mask is for the verifier.
        let size = u32::from(table.context_words & CONTEXT_MASK) * 8;
        if size != 0 {
            // SAFETY: there are that many registers; the helper checks the address that it reads from.
            unsafe { bpf_probe_read_kernel(registers.as_mut_ptr().cast(), size, ctx.cast()) };
        }
    }
}
