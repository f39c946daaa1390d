//! Programs that can be preempted by other runs of themselves.

/// Makes the kernel give each run of a program its own stack. Call this in the program itself, or in a function
/// that is inlined into it. It costs nothing.
///
/// From 6.13 on, a program that uses 64 bytes of its stack can have one stack for each CPU
/// (`bpf_prog_aux.priv_stack_ptr`). This is safe if no run of the program begins before another one has ended. The
/// kernel ensures that for all programs except those of uprobes: with full preemption, one run of such a program
/// can overwrite the stack of another.
///
/// A program with a tail call never has such a stack (`check_max_stack_depth()` in the kernel's
/// `kernel/bpf/verifier.c`). This is such a call: it never runs, and the verifier removes it.
#[inline(always)]
pub fn unshared_stack() {
    // SAFETY: the jump always skips the helper's call. All registers that the call would clobber are declared.
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
