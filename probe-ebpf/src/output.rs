//! The way out of a slot: the only caller of `bpf_perf_event_output`, and the tally of what it takes
//! and what it refuses.

use crate::atomic;
use crate::slot::{BLOCK_KINDS, KindCount, ROOM, Slot};
use aya_ebpf::{
    bindings::{BPF_F_CURRENT_CPU, BPF_F_MMAPABLE},
    helpers::{bpf_get_smp_processor_id, bpf_perf_event_output},
    macros::map,
    maps::{Array, PerCpuArray, PerfEventByteArray},
};
use core::ffi::c_void;
use probe_common::{
    BlockPrefix,
    control::{CONTROL_CPUS, CpuControl},
    limits::{DEPTH, KINDS, MAX_PACKED, RECORD_ALIGN, TALLY_BANKS},
    tally::{FailureClass, KindTally},
};

/// Blocks go here; user space puts one perf event for each CPU into it.
#[map]
static PIPE_EVENTS: PerfEventByteArray = PerfEventByteArray::new(0);

/// Blocks go here while the consumer sleeps.
#[map]
static PIPE_EAGER: PerfEventByteArray = PerfEventByteArray::new(0);

/// What was attempted and what failed: a bank of [`KINDS`] entries for each slot, so that no counter
/// is shared with a program that interrupts, and one for those who found no slot.
#[map]
static PIPE_TALLY: PerCpuArray<KindTally> = PerCpuArray::with_max_entries(KINDS * TALLY_BANKS, 0);

/// What the consumer asks for.
#[map]
static PIPE_CONTROL: Array<CpuControl> = Array::with_max_entries(CONTROL_CPUS, BPF_F_MMAPABLE);

/// This CPU's entry of the page that the consumer shares.
#[inline(always)]
pub(crate) fn control() -> Option<*mut CpuControl> {
    // SAFETY: the helper has no preconditions.
    PIPE_CONTROL.get_ptr_mut(unsafe { bpf_get_smp_processor_id() })
}

/// Tells the consumer which block is open.
#[inline(always)]
pub(crate) fn open(control: *mut CpuControl, block: u32) {
    // SAFETY: the map value is there for as long as the map is, and only this CPU writes the field.
    unsafe { (&raw mut (*control).open).write_volatile(block) };
}

/// Notes in the slot how long a block in it may become, by the page of the consumer.
#[inline(always)]
pub(crate) fn refresh_limit(slot: *mut Slot, control: Option<*mut CpuControl>) -> u32 {
    let limit = match control {
        // SAFETY: the map value is there for as long as the map is; the consumer writes it, too.
        Some(control) => unsafe { (&raw const (*control).limit).read_volatile() },
        // Without a word of the consumer, it wants no packing.
        None => 0,
    };
    let limit = if limit > MAX_PACKED { MAX_PACKED } else { limit };
    // SAFETY: the slot is the caller's.
    unsafe { (*slot).limit = limit };
    limit
}

/// Sends the slot's block with `fill` bytes of records, and empties it, whatever comes of it.
/// Returns the helper's errno.
#[inline(always)]
pub(crate) fn send(
    ctx: *mut c_void,
    slot: *mut Slot,
    fill: u32,
    depth: u32,
    control: Option<*mut CpuControl>,
) -> i64 {
    // It never is more, but the verifier does not know.
    let fill = if fill as usize > ROOM { ROOM as u32 } else { fill };
    // SAFETY: the slot is the caller's.
    let seq = unsafe { (*slot).seq };
    // SAFETY: as above.
    unsafe { (*slot).seq = seq.wrapping_add(1) };
    let used = (fill / RECORD_ALIGN as u32) as u16;
    // SAFETY: as above.
    unsafe { (*slot).prefix = BlockPrefix::new(used, depth, seq) };
    // SAFETY: as above.
    unsafe { (*slot).fill = 0 };
    let asleep = match control {
        // SAFETY: the map value is there for as long as the map is; the consumer writes it, too.
        Some(control) => unsafe { (&raw const (*control).asleep).read_volatile() },
        None => 0,
    };
    let map = if asleep != 0 { &raw const PIPE_EAGER } else { &raw const PIPE_EVENTS };
    // SAFETY: ctx is the context that the kernel gave this program; the block is inside the slot,
    // which the verifier proves once more.
    let errno = unsafe {
        bpf_perf_event_output(
            ctx,
            map.cast_mut().cast(),
            BPF_F_CURRENT_CPU,
            (&raw mut (*slot).prefix).cast(),
            u64::from(fill) + size_of::<BlockPrefix>() as u64,
        )
    };
    if let Some(control) = control {
        if asleep != 0 && errno == 0 {
            // One wakeup is enough for one sleep. The consumer cannot fall asleep again meanwhile: it
            // would find the slot held, or the flag down.
            // SAFETY: as above.
            unsafe { (&raw mut (*control).asleep).write_volatile(0) };
        }
        if depth == 0 {
            open(control, 0);
        }
    }
    // SAFETY: the slot is the caller's.
    let [first, second, ..] = unsafe { &mut (*slot).kinds };
    match first.get() {
        Some((index, count)) if errno == 0 && *second == KindCount::NONE => {
            *first = KindCount::NONE;
            count_as(depth, index, u64::from(count), None);
        }
        _ => {
            tally(slot, depth, errno);
        }
    }
    errno
}

/// Tallies the records of a block, which is empty then.
#[inline(never)]
fn tally(slot: *mut Slot, depth: u32, errno: i64) -> u32 {
    let failure = (errno != 0).then(|| FailureClass::of(errno));
    for at in 0..BLOCK_KINDS {
        // SAFETY: the slot is the caller's.
        let kind = unsafe { &mut (*slot).kinds[at] };
        let Some((index, count)) = kind.get() else { break };
        *kind = KindCount::NONE;
        count_as(depth, index, u64::from(count), failure);
    }
    0
}

/// Counts records of the kind at `index`, in the bank of a slot that is the caller's.
#[inline(always)]
pub(crate) fn count_as(depth: u32, index: u32, count: u64, failure: Option<FailureClass>) {
    let entry = (depth & (DEPTH - 1)) * KINDS + index;
    let Some(tally) = PIPE_TALLY.get_ptr_mut(entry) else { return };
    // SAFETY: the map value is this CPU's, and at this depth nobody else counts.
    unsafe { (*tally).attempted += count };
    if let Some(class) = failure {
        // The compiler knows that a class is below COUNT and would drop the mask; the verifier does
        // not, and needs it.
        let class = core::hint::black_box(class as usize) & (FailureClass::COUNT - 1);
        // SAFETY: the counter is within this CPU's map value.
        let counter = unsafe { (&raw mut (*tally).failed).cast::<u64>().add(class) };
        // SAFETY: as above.
        unsafe { *counter += count };
    }
}

const _: () = assert!(FailureClass::COUNT.is_power_of_two() && DEPTH.is_power_of_two());

/// Tallies a record of the kind at `index` that is not even in a block.
#[inline(always)]
pub(crate) fn refuse(index: u32, class: FailureClass) {
    let Some(tally) = PIPE_TALLY.get_ptr_mut(DEPTH * KINDS + index) else { return };
    // SAFETY: the counter is in this CPU's map value. Refusals can interrupt each other, so it is
    // added to atomically.
    unsafe { atomic::add(&raw mut (*tally).attempted, 1) };
    // SAFETY: as above.
    unsafe { atomic::add(&raw mut (*tally).failed[class as usize], 1) };
}
