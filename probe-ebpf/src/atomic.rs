//! The one atomic operation that the verifier of every kernel accepts, and the order of the others.

/// Adds `n` to `*counter` atomically: not even an interrupt comes between the load and the store.
///
/// This is `BPF_XADD`, which returns nothing. The Rust compiler's eBPF target has no
/// `AtomicU64::fetch_add`, since fetching needs kernel 5.12.
///
/// # Safety
///
/// `counter` must be valid for reads and writes, and 8-aligned. Every other access to it must be
/// atomic, too.
#[inline(always)]
pub unsafe fn add(counter: *mut u64, n: u64) {
    #[cfg(target_arch = "bpf")]
    // SAFETY: the caller's promise; the verifier checks the address again.
    unsafe {
        core::arch::asm!(
            "lock *(u64 *)({counter} + 0) += {n}",
            counter = in(reg) counter,
            n = in(reg) n,
        );
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        // SAFETY: the caller's promise.
        let counter = unsafe { core::sync::atomic::AtomicU64::from_ptr(counter) };
        counter.fetch_add(n, core::sync::atomic::Ordering::Relaxed);
    }
}

/// Keeps the compiler from moving accesses to memory across this point. The programs of one CPU need no more: they
/// see each other's accesses in program order.
#[inline(always)]
pub(crate) fn barrier() {
    #[cfg(target_arch = "bpf")]
    // SAFETY: it is no instruction.
    unsafe {
        core::arch::asm!("", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "bpf"))]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
}
