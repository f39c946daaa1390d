//! Which of a probe's hits are told, where not all are: one in so many, so many a second.

use aya_ebpf::{
    Global,
    bindings::BPF_NOEXIST,
    helpers::bpf_ktime_get_ns,
    macros::map,
    maps::{Array, HashMap, PerCpuArray},
};
use probe_common::sampling::{Latest, Sampled, Second};
use probe_ebpf::atomic;

/// Tell one of so many hits of each probe, on each CPU; 0 or 1 for all. User space sets these globals before
/// it loads the programs, so that the verifier drops what is not done.
#[unsafe(no_mangle)]
static SAMPLE: Global<u32> = Global::new(0);

/// Tell at most so many hits of each probe in a second; 0 for all.
#[unsafe(no_mangle)]
static RATE: Global<u32> = Global::new(0);

/// User space says how many there are, of each of these.
#[map]
static SAMPLED: PerCpuArray<Sampled> = PerCpuArray::with_max_entries(1, 0);

/// How many hits were told in a second, or would have been if there were room.
#[map]
static SECONDS: HashMap<Second, u64> = HashMap::with_max_entries(1, 0);

#[map]
static LATEST: Array<Latest> = Array::with_max_entries(1, 0);

const NANOSECONDS: u64 = 1_000_000_000;

/// Whether a hit is told for which the predicate holds. Those that are not are counted.
#[inline(always)]
pub(crate) fn is_told(probe: u32) -> bool {
    let (sample, rate) = (SAMPLE.load(), RATE.load());
    if sample <= 1 && rate == 0 {
        return true;
    }
    let Some(sampled) = SAMPLED.get_ptr_mut(probe) else { return true };
    // SAFETY: the counts are this CPU's.
    let seen = unsafe { &raw mut (*sampled).seen };
    // SAFETY: as above.
    let withheld = unsafe { &raw mut (*sampled).withheld };
    // SAFETY: a map value is 8-aligned. A program that interrupts this one has counted, too, or not yet.
    let number = unsafe { seen.read_volatile() };
    // SAFETY: as above.
    unsafe { atomic::add(seen, 1) };
    let is_told = (sample <= 1 || number % u64::from(sample) == 0)
        && (rate == 0 || is_within(probe, rate.into()));
    if !is_told {
        // SAFETY: as above.
        unsafe { atomic::add(withheld, 1) };
    }
    is_told
}

/// Whether at most `rate` hits of a probe were told in this second, with this one.
#[inline(always)]
fn is_within(probe: u32, rate: u64) -> bool {
    // SAFETY: the helper has no preconditions.
    let second = unsafe { bpf_ktime_get_ns() } / NANOSECONDS;
    let key = Second { second, probe: probe.into() };
    let told = match SECONDS.get_ptr_mut(key) {
        Some(told) => told,
        None => {
            // One CPU alone gets to do so.
            if SECONDS.insert(key, 0, BPF_NOEXIST.into()).is_ok() {
                forget(probe, second);
            }
            let Some(told) = SECONDS.get_ptr_mut(key) else { return false };
            told
        }
    };
    // Kernels before 5.12 do not give what was there before. Whoever adds at the same time may find the
    // other's, too, so that this can be too few and never too many.
    // SAFETY: a map value is 8-aligned.
    unsafe { atomic::add(told, 1) };
    // SAFETY: as above.
    unsafe { told.read_volatile() <= rate }
}

/// Drops the second before the last, in which no program is any more, for one that begins.
#[inline(always)]
fn forget(probe: u32, second: u64) {
    let Some(latest) = LATEST.get_ptr_mut(probe) else { return };
    // SAFETY: it is the probe's, and what begins a second is alone in that.
    let Latest { last, before } = unsafe { latest.read_volatile() };
    // There may be none.
    let _ = SECONDS.remove(Second { second: before, probe: probe.into() });
    // SAFETY: as above.
    unsafe { latest.write_volatile(Latest { last: second, before: last }) };
}
