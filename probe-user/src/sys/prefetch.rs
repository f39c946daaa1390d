//! A hint to the processor.

/// `bytes` from `ahead` on are to be read soon, wherever that is: nothing comes of it but time, and of an address
/// where nothing is mapped, nothing at all.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn read_soon(bytes: &[u8], ahead: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: it reads nothing that the program could see, and does not fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(ahead).cast()) };
}

/// See above: elsewhere, the processor goes by its own guesses.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn read_soon(_bytes: &[u8], _ahead: usize) {}
