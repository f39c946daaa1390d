//! Counting hits instead of reporting them.

use aya_ebpf::{Global, macros::map, maps::PerCpuArray};
use probe_ebpf::atomic;
use probe_tracer_common::count::Count;

/// Whether to count hits, or to add up the durations of calls, instead of reporting them. User space sets this before it loads the programs, so
/// that the verifier removes the branches that are not taken.
#[unsafe(no_mangle)]
static COUNT_ONLY: Global<u32> = Global::new(0);

/// Indexed by probe; user space sets the number of entries.
#[map]
static COUNTS: PerCpuArray<Count> = PerCpuArray::with_max_entries(1, 0);

/// Whether hits are counted.
#[inline(always)]
pub(crate) fn is_wanted() -> bool {
    COUNT_ONLY.load() != 0
}

/// Counts a hit.
#[inline(always)]
pub(crate) fn hit(probe: u32) {
    add(probe, |count| &raw mut count.hits);
}

/// Counts a hit whose predicate could not be evaluated.
#[inline(always)]
pub(crate) fn unjudged(probe: u32) {
    add(probe, |count| &raw mut count.unjudged);
}

#[inline(always)]
fn add(probe: u32, which: impl FnOnce(&mut Count) -> *mut u64) {
    let Some(count) = COUNTS.get_ptr_mut(probe) else { return };
    // SAFETY: the counts are this CPU's.
    let counter = which(unsafe { &mut *count });
    // SAFETY: as above; a map value is 8-aligned.
    unsafe { atomic::add(counter, 1) };
}
