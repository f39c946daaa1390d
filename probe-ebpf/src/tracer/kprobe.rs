//! Functions, of the kernel and of programs: where they are entered, where they return, and both in one event.
//! Programs that are for functions of programs, too, can be preempted there.

use super::hit::Registers;
use super::{call, hit, number};
use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    helpers::bpf_get_attach_cookie,
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use aya_log_ebpf::trace;
use core::ffi::c_void;
use probe_common::fetch::base;
use probe_ebpf::unshared_stack;

/// One program for all functions: which of them was hit, the attach cookie tells (5.15+).
#[kprobe]
pub(crate) fn kprobe_by_cookie(ctx: ProbeContext) -> u32 {
    unshared_stack();
    // SAFETY: the context is the one that the kernel gave this program.
    let probe = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    hit(ctx.as_ptr(), probe)
}

/// The same for kernels without cookies: loaded for each function.
#[kprobe]
pub(crate) fn kprobe_by_number(ctx: ProbeContext) -> u32 {
    unshared_stack();
    hit(ctx.as_ptr(), number::of_program())
}

/// Where functions return, as above.
#[kretprobe]
pub(crate) fn kretprobe_by_cookie(ctx: RetProbeContext) -> u32 {
    unshared_stack();
    // SAFETY: the context is the one that the kernel gave this program.
    let probe = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    returned(ctx.as_ptr(), probe)
}

/// The same for kernels without cookies.
#[kretprobe]
pub(crate) fn kretprobe_by_number(ctx: RetProbeContext) -> u32 {
    unshared_stack();
    returned(ctx.as_ptr(), number::of_program())
}

/// Calls, where they are entered, as above.
#[kprobe]
pub(crate) fn call_entry_by_cookie(ctx: ProbeContext) -> u32 {
    unshared_stack();
    // SAFETY: the context is the one that the kernel gave this program.
    let probe = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    call_entered(ctx.as_ptr(), probe)
}

/// The same for kernels without cookies.
#[kprobe]
pub(crate) fn call_entry_by_number(ctx: ProbeContext) -> u32 {
    unshared_stack();
    call_entered(ctx.as_ptr(), number::of_program())
}

/// Calls, where they return, as above.
#[kretprobe]
pub(crate) fn call_return_by_cookie(ctx: RetProbeContext) -> u32 {
    unshared_stack();
    // SAFETY: the context is the one that the kernel gave this program.
    let probe = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    call_returned(ctx.as_ptr(), probe)
}

/// The same for kernels without cookies.
#[kretprobe]
pub(crate) fn call_return_by_number(ctx: RetProbeContext) -> u32 {
    unshared_stack();
    call_returned(ctx.as_ptr(), number::of_program())
}

/// One function for all programs of returns, so that the object holds it once.
#[inline(never)]
fn returned(ctx: *mut c_void, probe: u32) -> u32 {
    let ctx = &RetProbeContext::new(ctx);
    trace!(ctx, "kretprobe {} hit", probe);
    hit::report(ctx, probe, |registers, _| registers[base::RETVAL as usize] = ctx.ret())
}

/// One function for all programs of entries, so that the object holds it once.
#[inline(never)]
fn hit(ctx: *mut c_void, probe: u32) -> u32 {
    let ctx = &ProbeContext::new(ctx);
    trace!(ctx, "kprobe {} hit", probe);
    hit::report(ctx, probe, |registers, _| arguments(ctx, registers))
}

/// One function for all programs of calls' entries, so that the object holds it once.
#[inline(never)]
fn call_entered(ctx: *mut c_void, probe: u32) -> u32 {
    let ctx = &ProbeContext::new(ctx);
    trace!(ctx, "call of {} entered", probe);
    call::entered(ctx, probe, stack_pointer(ctx.regs), |registers, _| arguments(ctx, registers))
}

/// One function for all programs of calls' returns, so that the object holds it once.
#[inline(never)]
fn call_returned(ctx: *mut c_void, probe: u32) -> u32 {
    let ctx = &RetProbeContext::new(ctx);
    trace!(ctx, "call of {} returned", probe);
    let stack = stack_pointer(ctx.regs).wrapping_sub(RETURN_ADDRESS);
    call::returned(ctx, probe, stack, ctx.ret())
}

/// The arguments that are in registers.
#[inline(always)]
fn arguments(ctx: &ProbeContext, registers: &mut Registers) {
    // One by one: the verifier wants to see which of the context's words is read.
    registers[0] = ctx.arg(0).unwrap_or(0);
    registers[1] = ctx.arg(1).unwrap_or(0);
    registers[2] = ctx.arg(2).unwrap_or(0);
    registers[3] = ctx.arg(3).unwrap_or(0);
    registers[4] = ctx.arg(4).unwrap_or(0);
    registers[5] = ctx.arg(5).unwrap_or(0);
}

/// How much a return takes off the stack: on x86-64 the address that it returns to, on arm64 nothing.
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
