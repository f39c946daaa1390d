//! System calls at their tracepoints: the entry and the exit in one event.

use super::number;
use super::tracepoint::{PASS_ON, Tracepoint};
use crate::call;
use aya_ebpf::programs::TracePointContext;
use aya_log_ebpf::trace;
use core::ffi::c_void;
use probe_ebpf::unshared_stack;

/// Entries of system calls, by cookie (5.15+).
#[unsafe(no_mangle)]
#[unsafe(link_section = "tracepoint")]
extern "C" fn syscall_enter_by_cookie(ctx: *mut c_void) -> u32 {
    unshared_stack();
    entered(ctx, number::of_hook(ctx), true)
}

/// The same for kernels without cookies.
#[unsafe(no_mangle)]
#[unsafe(link_section = "tracepoint")]
extern "C" fn syscall_enter_by_number(ctx: *mut c_void) -> u32 {
    unshared_stack();
    entered(ctx, number::of_program(), true)
}

/// Entries of system calls that never return, by cookie.
#[unsafe(no_mangle)]
#[unsafe(link_section = "tracepoint")]
extern "C" fn syscall_end_by_cookie(ctx: *mut c_void) -> u32 {
    unshared_stack();
    entered(ctx, number::of_hook(ctx), false)
}

/// The same for kernels without cookies.
#[unsafe(no_mangle)]
#[unsafe(link_section = "tracepoint")]
extern "C" fn syscall_end_by_number(ctx: *mut c_void) -> u32 {
    unshared_stack();
    entered(ctx, number::of_program(), false)
}

/// Exits of system calls, by cookie.
#[unsafe(no_mangle)]
#[unsafe(link_section = "tracepoint")]
extern "C" fn syscall_exit_by_cookie(ctx: *mut c_void) -> u32 {
    unshared_stack();
    exited(ctx, number::of_hook(ctx))
}

/// The same for kernels without cookies.
#[unsafe(no_mangle)]
#[unsafe(link_section = "tracepoint")]
extern "C" fn syscall_exit_by_number(ctx: *mut c_void) -> u32 {
    unshared_stack();
    exited(ctx, number::of_program())
}

/// A thread is in one system call at a time, so the stack pointer need not tell its calls apart.
const NO_STACK: u64 = 0;

/// One function for all programs on entries, so that the object has this code once.
#[inline(never)]
fn entered(ctx: *mut c_void, probe: u32, returns: bool) -> u32 {
    let ctx = &TracePointContext::new(ctx);
    trace!(ctx, "system call of {} entered", probe);
    call::entered::<Tracepoint, _>(ctx, probe, NO_STACK, returns);
    PASS_ON
}

#[inline(always)]
fn exited(ctx: *mut c_void, probe: u32) -> u32 {
    /// The index of the result in the context (`struct syscall_tp_t` in `kernel/trace/trace_syscalls.c`).
    const RESULT: usize = 2;
    // SAFETY: the context is that of the exit of a system call, which has so many words.
    let result = unsafe { ctx.cast::<u64>().wrapping_add(RESULT).read_volatile() };
    call::returned(ctx, probe, NO_STACK, result);
    PASS_ON
}
