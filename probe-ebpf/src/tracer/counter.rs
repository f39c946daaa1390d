//! The counters that calls are told with: what the CPU counts from where a function is entered to where it
//! returns.

use super::{fetch, hit};
use aya_ebpf::{
    Global,
    bindings::BPF_F_CURRENT_CPU,
    helpers::{bpf_get_smp_processor_id, generated::bpf_perf_event_read_value},
    macros::map,
    maps::{Array, PerfEventByteArray},
};
use probe_common::counter::{COUNTERS, Count, Counted};
use probe_common::fetch::base;
use probe_common::trace::ProbeHit;
use probe_ebpf::Reservation;

/// How many counters calls are told with. User space sets it before it loads the programs, so that the verifier
/// drops what is not done.
#[unsafe(no_mangle)]
static READ_COUNTERS: Global<u8> = Global::new(0);

// User space puts a counter for each CPU into each of them that is wanted.
#[map]
static COUNTERS_0: PerfEventByteArray = PerfEventByteArray::new(0);
#[map]
static COUNTERS_1: PerfEventByteArray = PerfEventByteArray::new(0);
#[map]
static COUNTERS_2: PerfEventByteArray = PerfEventByteArray::new(0);
#[map]
static COUNTERS_3: PerfEventByteArray = PerfEventByteArray::new(0);

/// By CPU: user space says how many there are, and adds 1 before it replaces a CPU's counters, and when it has.
#[map]
static COUNTER_GENERATIONS: Array<u32> = Array::with_max_entries(1, 0);

/// A generation of which nothing is known.
const UNSETTLED: u32 = 1;

#[inline(always)]
fn wanted() -> usize {
    READ_COUNTERS.load().into()
}

/// How many bytes of a hit's tail, behind the fields' words, have the counters as they were where the call was
/// entered.
#[inline(always)]
pub(crate) fn room() -> usize {
    Counted::bytes(wanted())
}

/// Reads the counters of a call that is entered, into the room for them: where that ends, in the tail.
#[inline(always)]
pub(crate) fn enter(hit: &mut Reservation<ProbeHit>, probe: u32) -> usize {
    if wanted() == 0 {
        return 0;
    }
    let Some(behind_words) = behind_words(probe) else { return 0 };
    let at = hit::frame(hit).tail.as_mut_ptr().wrapping_add(behind_words);
    let entered = at.cast::<Counted>();
    // SAFETY: the room is the hit's.
    let of = unsafe { &raw mut (*entered).source };
    // Before they are read: whoever replaces them meanwhile changes it first.
    // SAFETY: as above.
    unsafe { of.write(source()) };
    // SAFETY: as above.
    let counts = unsafe { &raw mut (*entered).counts };
    // SAFETY: as above.
    unsafe { read(counts.cast()) };
    behind_words + room()
}

/// Reads the counters of a call that returns.
#[inline(always)]
pub(crate) fn leave(hit: &mut Reservation<ProbeHit>) {
    if wanted() == 0 {
        return;
    }
    let returned = &mut hit::frame(hit).returned;
    // SAFETY: they are the frame's.
    unsafe { read(returned.counts.as_mut_ptr()) };
    // Now that they are read, for the same reason.
    returned.source = source();
}

/// Tells what was counted in a call that has been restored.
#[inline(always)]
pub(crate) fn tell(hit: &mut Reservation<ProbeHit>, probe: u32) {
    if wanted() == 0 {
        return;
    }
    let Some(behind_words) = behind_words(probe) else { return };
    let frame = hit::frame(hit);
    // SAFETY: the frame's tail has room for all counters there, nothing else is written in it, and any bytes are some.
    let entered = unsafe { &*frame.tail.as_ptr().wrapping_add(behind_words).cast::<Counted>() };
    for n in 0..COUNTERS {
        if n < wanted() {
            let counted = frame.returned.since(entered, n);
            frame.registers[base::COUNTER as usize + n] = counted;
        }
    }
}

/// Where in the tail the counters are as they were where the call was entered.
#[inline(always)]
fn behind_words(probe: u32) -> Option<usize> {
    Some(8 * usize::from(fetch::table(probe)?.field_count))
}

/// Whose counters this CPU reads.
#[inline(always)]
fn source() -> u64 {
    // SAFETY: the helper has no preconditions.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let generation = match COUNTER_GENERATIONS.get_ptr(cpu) {
        // SAFETY: it is the map's. User space may write it meanwhile.
        Some(generation) => unsafe { generation.read_volatile() },
        None => UNSETTLED,
    };
    Counted::source(cpu, generation)
}

/// Reads this CPU's counters, always in the same order: so each counts as much of the reading of the others.
///
/// # Safety
///
/// There is room for those that are wanted.
#[inline(always)]
unsafe fn read(to: *mut Count) {
    let maps = [
        &raw const COUNTERS_0,
        &raw const COUNTERS_1,
        &raw const COUNTERS_2,
        &raw const COUNTERS_3,
    ];
    for (n, map) in maps.into_iter().enumerate() {
        if n < wanted() {
            // It fills in zeros if it fails.
            // SAFETY: the caller's promise.
            let _ = unsafe {
                bpf_perf_event_read_value(
                    map.cast_mut().cast(),
                    BPF_F_CURRENT_CPU,
                    to.wrapping_add(n).cast(),
                    size_of::<Count>() as u32,
                )
            };
        }
    }
}
