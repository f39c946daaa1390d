//! Prefetching.

/// Prefetches the cache line `ahead` bytes after the start of `bytes`. The address may lie outside of `bytes`: where
/// nothing is mapped, this has no effect.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn read_soon(bytes: &[u8], ahead: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch has no visible effect and does not fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(ahead).cast()) };
}

/// See above. On other architectures, this does nothing.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn read_soon(_bytes: &[u8], _ahead: usize) {}
