//! The one atomic operation that every kernel's verifier knows.

/// Adds `n` to `*counter`, atomically: not even an interrupt comes between the load and the store.
///
/// It is `BPF_XADD`, which returns nothing; the eBPF target of the Rust compiler has no
/// `AtomicU64::fetch_add`, since fetching needs kernel 5.12.
///
/// # Safety
///
/// `counter` must be valid for reads and writes, 8-aligned, and accessed in no other way that is
/// not atomic.
#[inline(always)]
pub unsafe fn add(counter: *mut u64, n: u64) {
    #[cfg(target_arch = "bpf")]
    // SAFETY: the caller's promise; the verifier checks the address once more.
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
