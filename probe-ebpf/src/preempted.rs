//! Programs that other runs of themselves can preempt or interrupt.

/// Makes the kernel give each run of a program its own stack. Call this in the program itself, or in a function
/// that is inlined into it. It costs nothing.
///
/// From 6.13 on, a program that uses 64 bytes of its stack can have one stack for each CPU
/// (`bpf_prog_aux.priv_stack_ptr`). This is safe if, on each CPU, no run of the program begins before another one has
/// ended. The kernel ensures that for `fentry`, `fexit`, kprobes and attached raw tracepoints. It does not for these:
///
/// - uprobes: with full preemption, one run can preempt another;
/// - tracepoints: on 7.3, an interrupt that hits the tracepoint can come in the middle of a run;
/// - programs that `BPF_PROG_TEST_RUN` runs: another CPU's request is an interrupt, too. `pipe_flush` is one, and has its
///   own stack.
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
