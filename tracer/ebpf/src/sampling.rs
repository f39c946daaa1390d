//! Which of a probe's hits are reported when not all are: one in a given number, or at most so many a second.

use aya_ebpf::{
    Global,
    bindings::BPF_NOEXIST,
    helpers::bpf_ktime_get_ns,
    macros::map,
    maps::{Array, HashMap, PerCpuArray},
};
use probe_ebpf::atomic;
use probe_tracer_common::sampling::{Latest, Sampled, Second};

/// Report one in this many hits of each probe, on each CPU; 0 or 1 for all. User space sets these globals before
/// it loads the programs, so that the verifier removes the branches that are not taken.
#[unsafe(no_mangle)]
static SAMPLE: Global<u32> = Global::new(0);

/// Report at most this many hits of each probe in a second; 0 for all.
#[unsafe(no_mangle)]
static RATE: Global<u32> = Global::new(0);

/// User space sets the number of entries of these maps.
#[map]
static SAMPLED: PerCpuArray<Sampled> = PerCpuArray::with_max_entries(1, 0);

/// How many hits were reported in a second, or would have been if there had been room.
#[map]
static SECONDS: HashMap<Second, u64> = HashMap::with_max_entries(1, 0);

#[map]
static LATEST: Array<Latest> = Array::with_max_entries(1, 0);

const NANOSECONDS: u64 = 1_000_000_000;

/// Whether to report a hit for which the predicate holds. Hits that are sampled out are counted.
#[inline(always)]
pub(crate) fn is_reported(probe: u32) -> bool {
    let (sample, rate) = (SAMPLE.load(), RATE.load());
    if sample <= 1 && rate == 0 {
        return true;
    }
    let Some(sampled) = SAMPLED.get_ptr_mut(probe) else { return true };
    // SAFETY: the counts are this CPU's.
    let seen = unsafe { &raw mut (*sampled).seen };
    // SAFETY: as above.
    let sampled_out = unsafe { &raw mut (*sampled).sampled_out };
    // SAFETY: a map value is 8-aligned. A program that interrupts this one has counted completely, or not yet.
    let number = unsafe { seen.read_volatile() };
    // SAFETY: as above.
    unsafe { atomic::add(seen, 1) };
    let is_reported = (sample <= 1 || number % u64::from(sample) == 0)
        && (rate == 0 || is_within(probe, rate.into()));
    if !is_reported {
        // SAFETY: as above.
        unsafe { atomic::add(sampled_out, 1) };
    }
    is_reported
}

/// Whether at most `rate` hits of a probe were reported in this second, including this one.
#[inline(always)]
fn is_within(probe: u32, rate: u64) -> bool {
    // SAFETY: the helper has no preconditions.
    let second = unsafe { bpf_ktime_get_ns() } / NANOSECONDS;
    let key = Second { second, probe: probe.into() };
    let reported = match SECONDS.get_ptr_mut(key) {
        Some(reported) => reported,
        None => {
            // Only one CPU succeeds in this.
            if SECONDS.insert(key, 0, BPF_NOEXIST.into()).is_ok() {
                forget(probe, second);
            }
            let Some(reported) = SECONDS.get_ptr_mut(key) else { return false };
            reported
        }
    };
    // Kernels before 5.12 do not return the previous value. Two CPUs that add at the same time may each see the
    // other's addition, so fewer hits than allowed may be reported, but never more.
    // SAFETY: a map value is 8-aligned.
    unsafe { atomic::add(reported, 1) };
    // SAFETY: as above.
    unsafe { reported.read_volatile() <= rate }
}

/// Removes the second before the last, in which no program can be any more, when a new second begins.
#[inline(always)]
fn forget(probe: u32, second: u64) {
    let Some(latest) = LATEST.get_ptr_mut(probe) else { return };
    // SAFETY: the entry is the probe's, and only the program that begins a second gets here.
    let Latest { last, before } = unsafe { latest.read_volatile() };
    if second < last {
        // A program that was interrupted for long begins a second after others have begun a later one.
        if second.wrapping_add(1) < last {
            let _ = SECONDS.remove(Second { second, probe: probe.into() });
        }
        return;
    }
    // If two CPUs begin two seconds at the same time, only one of them notes its second here: the one before `last` or the one
    // after it is not noted.
    for old in [before, last.wrapping_sub(1), last.wrapping_add(1)] {
        // A program may still be in the second that has just ended. The entry may not exist.
        if old.wrapping_add(1) < second {
            let _ = SECONDS.remove(Second { second: old, probe: probe.into() });
        }
    }
    // SAFETY: as above.
    unsafe { latest.write_volatile(Latest { last: second, before: last }) };
}
