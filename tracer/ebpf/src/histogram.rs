//! Adding up the durations of calls instead of reporting each call.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use probe_ebpf::atomic;
use probe_tracer_common::histogram::{BUCKETS, Histogram};

/// Indexed by probe; user space sets the number of entries.
#[map]
static HISTOGRAMS: PerCpuArray<Histogram> = PerCpuArray::with_max_entries(1, 0);

/// Counts a call of this duration.
#[inline(always)]
pub(crate) fn add(probe: u32, nanoseconds: u64) {
    let Some(histogram) = HISTOGRAMS.get_ptr_mut(probe) else { return };
    // The compiler knows that the index is in bounds, but the verifier needs to see it.
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
