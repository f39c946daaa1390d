//! The counters of calls: what the CPU counts between a function's entry and its
//! return.

use super::{fetch, hit};
use aya_ebpf::{
    Global,
    bindings::BPF_F_CURRENT_CPU,
    helpers::{bpf_get_smp_processor_id, generated::bpf_perf_event_read_value},
    macros::map,
    maps::{Array, PerfEventByteArray},
};
use probe_ebpf::Reservation;
use probe_tracer_common::counter::{COUNTERS, Counted, CounterValue};
use probe_tracer_common::fetch::base;
use probe_tracer_common::trace::ProbeHit;

/// The number of counters. User space sets it before it loads the programs, so that the verifier removes the
/// branches that are not taken.
#[unsafe(no_mangle)]
static READ_COUNTERS: Global<u8> = Global::new(0);

// For each counter in use, user space puts an event for each CPU into its map.
#[map]
static COUNTERS_0: PerfEventByteArray = PerfEventByteArray::new(0);
#[map]
static COUNTERS_1: PerfEventByteArray = PerfEventByteArray::new(0);
#[map]
static COUNTERS_2: PerfEventByteArray = PerfEventByteArray::new(0);
#[map]
static COUNTERS_3: PerfEventByteArray = PerfEventByteArray::new(0);

/// Indexed by CPU; user space sets the number of entries. It adds 1 before it replaces a CPU's counters, and again afterwards.
#[map]
static COUNTER_GENERATIONS: Array<u32> = Array::with_max_entries(1, 0);

/// The generation of counters that are unknown.
const UNSETTLED: u32 = 1;

#[inline(always)]
fn wanted() -> usize {
    READ_COUNTERS.load().into()
}

/// Bytes of a hit's tail, behind the words of the fields, that hold the counters' values at
/// entry.
#[inline(always)]
pub(crate) fn room() -> usize {
    Counted::bytes(wanted())
}

/// Reads the counters at the entry of a call into the room for them, and returns where in the tail that room ends.
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
    // Before the counters are read: user space changes the generation before it replaces them.
    // SAFETY: as above.
    unsafe { of.write(source()) };
    // SAFETY: as above.
    let counts = unsafe { &raw mut (*entered).counts };
    // SAFETY: as above.
    unsafe { read(counts.cast()) };
    behind_words + room()
}

/// Reads the counters at the return of a call.
#[inline(always)]
pub(crate) fn leave(hit: &mut Reservation<ProbeHit>) {
    if wanted() == 0 {
        return;
    }
    let returned = &mut hit::frame(hit).returned;
    // SAFETY: they are the frame's.
    unsafe { read(returned.counts.as_mut_ptr()) };
    // After the counters were read, for the same reason.
    returned.source = source();
}

/// Stores what was counted during a call that has been restored.
#[inline(always)]
pub(crate) fn report(hit: &mut Reservation<ProbeHit>, probe: u32) {
    if wanted() == 0 {
        return;
    }
    let Some(behind_words) = behind_words(probe) else { return };
    let frame = hit::frame(hit);
    // SAFETY: the frame's tail has room for all counters there, nothing else is written to it, and any bytes are valid.
    let entered = unsafe { &*frame.tail.as_ptr().wrapping_add(behind_words).cast::<Counted>() };
    for n in 0..COUNTERS {
        if n < wanted() {
            let counted = frame.returned.since(entered, n);
            frame.registers[base::COUNTER as usize + n] = counted;
        }
    }
}

/// Where in the tail the counters' values at entry are.
#[inline(always)]
fn behind_words(probe: u32) -> Option<usize> {
    Some(8 * usize::from(fetch::table(probe)?.field_count))
}

/// Identifies the counters that this CPU reads.
#[inline(always)]
fn source() -> u64 {
    // SAFETY: the helper has no preconditions.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let generation = match COUNTER_GENERATIONS.get_ptr(cpu) {
        // SAFETY: the entry belongs to the map. User space may write it at the same time.
        Some(generation) => unsafe { generation.read_volatile() },
        None => UNSETTLED,
    };
    Counted::source(cpu, generation)
}

/// Reads this CPU's counters, always in the same order, so that each counts the same share of reading the others.
///
/// # Safety
///
/// There is room for as many counters as are in use.
#[inline(always)]
unsafe fn read(to: *mut CounterValue) {
    let maps = [
        &raw const COUNTERS_0,
        &raw const COUNTERS_1,
        &raw const COUNTERS_2,
        &raw const COUNTERS_3,
    ];
    for (n, map) in maps.into_iter().enumerate() {
        if n < wanted() {
            // On failure, the helper fills in zeros.
            // SAFETY: the caller's promise.
            let _ = unsafe {
                bpf_perf_event_read_value(
                    map.cast_mut().cast(),
                    BPF_F_CURRENT_CPU,
                    to.wrapping_add(n).cast(),
                    size_of::<CounterValue>() as u32,
                )
            };
        }
    }
}
