//! Functions in the kernel and in programs: their entries, their returns, and both in one event.
//! The programs that also serve functions in user space can be preempted there.

use super::number;
use crate::hit::{Hook, Registers};
use crate::{call, hit};
use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use aya_log_ebpf::trace;
use core::ffi::c_void;
use probe_ebpf::unshared_stack;
use probe_tracer_common::fetch::{FetchTable, base};

/// One program for all functions: the attach cookie tells which one was hit (5.15+).
#[kprobe]
pub(crate) fn kprobe_by_cookie(ctx: ProbeContext) -> u32 {
    unshared_stack();
    hit(ctx.as_ptr(), number::of_hook(ctx.as_ptr()))
}

/// The same for kernels without cookies, loaded once for each function.
#[kprobe]
pub(crate) fn kprobe_by_number(ctx: ProbeContext) -> u32 {
    unshared_stack();
    hit(ctx.as_ptr(), number::of_program())
}

/// Returns of functions, by cookie.
#[kretprobe]
pub(crate) fn kretprobe_by_cookie(ctx: RetProbeContext) -> u32 {
    unshared_stack();
    returned(ctx.as_ptr(), number::of_hook(ctx.as_ptr()))
}

/// The same for kernels without cookies.
#[kretprobe]
pub(crate) fn kretprobe_by_number(ctx: RetProbeContext) -> u32 {
    unshared_stack();
    returned(ctx.as_ptr(), number::of_program())
}

/// Entries of calls, by cookie.
#[kprobe]
pub(crate) fn call_entry_by_cookie(ctx: ProbeContext) -> u32 {
    unshared_stack();
    call_entered(ctx.as_ptr(), number::of_hook(ctx.as_ptr()))
}

/// The same for kernels without cookies.
#[kprobe]
pub(crate) fn call_entry_by_number(ctx: ProbeContext) -> u32 {
    unshared_stack();
    call_entered(ctx.as_ptr(), number::of_program())
}

/// Returns of calls, by cookie.
#[kretprobe]
pub(crate) fn call_return_by_cookie(ctx: RetProbeContext) -> u32 {
    unshared_stack();
    call_returned(ctx.as_ptr(), number::of_hook(ctx.as_ptr()))
}

/// The same for kernels without cookies.
#[kretprobe]
pub(crate) fn call_return_by_number(ctx: RetProbeContext) -> u32 {
    unshared_stack();
    call_returned(ctx.as_ptr(), number::of_program())
}

/// One function for all programs on returns, so that the object has this code once.
#[inline(never)]
fn returned(ctx: *mut c_void, probe: u32) -> u32 {
    let ctx = &RetProbeContext::new(ctx);
    trace!(ctx, "kretprobe {} hit", probe);
    hit::report::<Return, _>(ctx, probe)
}

/// One function for all programs on entries, so that the object has this code once.
#[inline(never)]
fn hit(ctx: *mut c_void, probe: u32) -> u32 {
    let ctx = &ProbeContext::new(ctx);
    trace!(ctx, "kprobe {} hit", probe);
    hit::report::<Entry, _>(ctx, probe)
}

/// One function for all programs on entries of calls, so that the object has this code once.
#[inline(never)]
fn call_entered(ctx: *mut c_void, probe: u32) -> u32 {
    let ctx = &ProbeContext::new(ctx);
    trace!(ctx, "call of {} entered", probe);
    call::entered::<Entry, _>(ctx, probe, stack_pointer(ctx.regs), true)
}

#[inline(always)]
fn call_returned(ctx: *mut c_void, probe: u32) -> u32 {
    let found = RetProbeContext::new(ctx);
    let stack = stack_pointer(found.regs).wrapping_sub(RETURN_ADDRESS);
    call::returned(ctx, probe, stack, found.ret())
}

/// The entry of a function: the arguments that are in registers.
struct Entry;

impl Hook for Entry {
    #[inline(always)]
    fn fill_in(ctx: *mut c_void, registers: &mut Registers, _: &FetchTable) {
        let ctx = ProbeContext::new(ctx);
        // One by one, because the verifier must see which word of the context is read.
        registers[0] = ctx.arg(0).unwrap_or(0);
        registers[1] = ctx.arg(1).unwrap_or(0);
        registers[2] = ctx.arg(2).unwrap_or(0);
        registers[3] = ctx.arg(3).unwrap_or(0);
        registers[4] = ctx.arg(4).unwrap_or(0);
        registers[5] = ctx.arg(5).unwrap_or(0);
    }

    #[inline(always)]
    fn address_and_link(ctx: *mut c_void) -> (u64, u64) {
        address_and_link(ProbeContext::new(ctx).regs)
    }
}

/// The return of a function.
struct Return;

impl Hook for Return {
    #[inline(always)]
    fn fill_in(ctx: *mut c_void, registers: &mut Registers, _: &FetchTable) {
        registers[base::RETVAL as usize] = RetProbeContext::new(ctx).ret();
    }
}

/// How many bytes a return pops off the stack: on x86-64 the return address, on arm64 nothing.
const RETURN_ADDRESS: u64 = if cfg!(bpf_target_arch = "aarch64") { 0 } else { 8 };

#[inline(always)]
fn stack_pointer(regs: *mut pt_regs) -> u64 {
    #[cfg(bpf_target_arch = "aarch64")]
    // SAFETY: the context is the one that the kernel gave this program.
    return unsafe { (*regs).sp };
    #[cfg(not(bpf_target_arch = "aarch64"))]
    // SAFETY: as above.
    return unsafe { (*regs).rsp };
}

/// What [`Hook::address_and_link`] returns at an entry. The link of 32-bit programs, whose addresses are shorter, is not known.
#[inline(always)]
fn address_and_link(regs: *mut pt_regs) -> (u64, u64) {
    // SAFETY: the context is the one that the kernel gave this program.
    let registers = unsafe { &*regs };
    #[cfg(bpf_target_arch = "aarch64")]
    {
        /// The mode of 32-bit programs (`PSR_MODE32_BIT` in `arch/arm64/include/asm/ptrace.h`).
        const IS_32_BIT: u64 = 0x10;
        let is_long = registers.pstate & IS_32_BIT == 0;
        (registers.pc, if is_long { registers.regs[30] } else { 0 })
    }
    #[cfg(not(bpf_target_arch = "aarch64"))]
    {
        /// The code segment of 32-bit programs (`__USER32_CS` in `arch/x86/include/asm/segment.h`).
        const OF_32_BITS: u64 = 0x23;
        let is_long = registers.cs != OF_32_BITS;
        (registers.rip, if is_long { registers.rsp } else { 0 })
    }
}
