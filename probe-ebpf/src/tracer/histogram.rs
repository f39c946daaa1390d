//! Adding up how long calls took, in place of telling of each.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use probe_common::histogram::{BUCKETS, Histogram};
use probe_ebpf::atomic;

/// By probe: user space says how many there are.
#[map]
static HISTOGRAMS: PerCpuArray<Histogram> = PerCpuArray::with_max_entries(1, 0);

/// Counts a call that took so long.
#[inline(always)]
pub(crate) fn add(probe: u32, nanoseconds: u64) {
    let Some(histogram) = HISTOGRAMS.get_ptr_mut(probe) else { return };
    // The compiler knows that there are no more, and the verifier wants to see it.
    let bucket = core::hint::black_box(Histogram::bucket_of(nanoseconds)) & (BUCKETS - 1);
    // SAFETY: the histogram is this CPU's.
    let calls = unsafe { &raw mut (*histogram).buckets }.cast::<u64>().wrapping_add(bucket);
    // SAFETY: it is one of the histogram's, and a map value is 8-aligned.
    unsafe { atomic::add(calls, 1) };
    // SAFETY: the histogram is this CPU's.
    let total = unsafe { &raw mut (*histogram).total };
    // SAFETY: as above.
    unsafe { atomic::add(total, nanoseconds) };
}
