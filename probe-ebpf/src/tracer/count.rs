//! Counting hits, in place of telling of each.

use aya_ebpf::{Global, macros::map, maps::PerCpuArray};
use probe_common::count::Count;
use probe_ebpf::atomic;

/// Count hits, or add up how long calls took, and tell of none. User space sets it before it loads the programs, so that the verifier
/// drops what is not done.
#[unsafe(no_mangle)]
static COUNT_ONLY: Global<u32> = Global::new(0);

/// By probe: user space says how many there are.
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

/// Counts a hit of which it is not known whether the predicate holds.
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
