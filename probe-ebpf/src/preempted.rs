//! Programs that other runs of themselves preempt.

/// Has the kernel give each run of a program a stack of its own. To be called in the program itself, not in a
/// function that is not inlined; it costs nothing.
///
/// From 6.13 on, a program's stack can be one for each CPU (`bpf_prog_aux.priv_stack_ptr`), if the program
/// uses 64 bytes of it. That is safe where no run of the program comes before another has ended. The kernel
/// sees to that for all programs but those of uprobes: with full preemption, what one of them has on its
/// stack, another may overwrite.
///
/// A program with a tail call never has such a stack (`check_max_stack_depth()` in the kernel's
/// `kernel/bpf/verifier.c`). So this is one: it is never done, and the verifier takes it out.
#[inline(always)]
pub fn unshared_stack() {
    // SAFETY: it jumps over the helper's call, always. What the call would clobber is told.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!(
            "r0 = 0",
            "if r0 == 0 goto +1",
            // BPF_FUNC_tail_call
            "call 12",
            out("r0") _,
            out("r1") _,
            out("r2") _,
            out("r3") _,
            out("r4") _,
            out("r5") _,
            options(nostack, nomem),
        );
    }
}
