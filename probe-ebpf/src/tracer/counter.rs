//! The counter that calls are told with: what the CPU counts from where a function is entered to where it
//! returns.

use super::{fetch, hit};
use aya_ebpf::{
    Global,
    bindings::BPF_F_CURRENT_CPU,
    helpers::{bpf_get_smp_processor_id, generated::bpf_perf_event_read_value},
    macros::map,
    maps::PerfEventByteArray,
};
use core::mem::offset_of;
use probe_common::counter::Counted;
use probe_common::fetch::base;
use probe_common::trace::ProbeHit;
use probe_ebpf::Reservation;

/// 1: calls are told with a counter. User space sets it before it loads the programs, so that the verifier drops
/// what is not done.
#[unsafe(no_mangle)]
static READ_COUNTER: Global<u8> = Global::new(0);

/// User space puts a counter for each CPU into it.
#[map]
static COUNTERS: PerfEventByteArray = PerfEventByteArray::new(0);

/// What the helper fills in.
const VALUE: usize = offset_of!(Counted, count);

const _: () = assert!(offset_of!(Counted, cpu) == 0 && size_of::<Counted>() == VALUE + 24);

#[inline(always)]
fn is_wanted() -> bool {
    READ_COUNTER.load() != 0
}

/// How many bytes of a hit's tail, behind the fields' words, have the counter as it was where the call was
/// entered.
#[inline(always)]
pub(crate) fn room() -> usize {
    if is_wanted() { size_of::<Counted>() } else { 0 }
}

/// Reads the counter of a call that is entered, into the room for it.
#[inline(always)]
pub(crate) fn enter(hit: &mut Reservation<ProbeHit>, probe: u32) {
    if is_wanted()
        && let Some(entered) = entered(hit, probe)
    {
        // SAFETY: the room is the hit's.
        unsafe { read(entered) };
    }
}

/// Reads the counter of a call that returns.
#[inline(always)]
pub(crate) fn leave(hit: &mut Reservation<ProbeHit>) {
    if is_wanted() {
        let returned = &raw mut hit::frame(hit).returned;
        // SAFETY: it is the frame's.
        unsafe { read(returned) };
    }
}

/// Tells what was counted in a call that has been restored.
#[inline(always)]
pub(crate) fn tell(hit: &mut Reservation<ProbeHit>, probe: u32) {
    if is_wanted()
        && let Some(entered) = entered(hit, probe)
    {
        // SAFETY: the room is the hit's.
        let entered = unsafe { entered.read() };
        let frame = hit::frame(hit);
        frame.registers[base::COUNTER as usize] = frame.returned.since(&entered);
    }
}

/// Where the counter is as it was where the call was entered.
#[inline(always)]
fn entered(hit: &mut Reservation<ProbeHit>, probe: u32) -> Option<*mut Counted> {
    let behind_words = 8 * usize::from(fetch::table(probe)?.field_count);
    Some(hit::frame(hit).tail.as_mut_ptr().wrapping_add(behind_words).cast())
}

/// Reads this CPU's counter.
///
/// # Safety
///
/// There is room for it.
#[inline(always)]
unsafe fn read(to: *mut Counted) {
    // SAFETY: the helper has no preconditions.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    // SAFETY: the caller's promise. It begins with the CPU.
    unsafe { to.cast::<u64>().write(cpu.into()) };
    let value = to.cast::<u8>().wrapping_add(VALUE);
    let len = (size_of::<Counted>() - VALUE) as u32;
    // It fills in zeros if it fails.
    // SAFETY: as above.
    let _ = unsafe {
        bpf_perf_event_read_value(
            (&raw const COUNTERS).cast_mut().cast(),
            BPF_F_CURRENT_CPU,
            value.cast(),
            len,
        )
    };
}
