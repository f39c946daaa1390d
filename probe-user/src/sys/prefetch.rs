//! A hint to the processor.

/// `bytes` from `ahead` on are to be read soon, wherever that is: nothing comes of it but time, and of an address
/// where nothing is mapped, nothing at all. x86-64 only; elsewhere, the processor goes by its own guesses.
#[inline(always)]
pub(crate) fn read_soon(bytes: &[u8], ahead: usize) {
    let there = bytes.as_ptr().wrapping_add(ahead);
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it reads nothing that the program could see, and does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(there.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = there;
}
