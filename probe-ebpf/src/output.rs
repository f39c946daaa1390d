//! The way out of a slot: the only caller of `bpf_perf_event_output`, and the tally of what it takes
//! and what it refuses.

use crate::atomic;
use crate::slot::{self, FIRST, ROOM, Slot};
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
    slot::{BLOCK_KINDS, KindCount},
    tally::{FailureClass, KindTally, OutputTally, TallyBank},
};

/// Blocks go here; user space puts one perf event for each CPU into it.
#[map]
static PIPE_EVENTS: PerfEventByteArray = PerfEventByteArray::new(0);

/// Blocks go here while the consumer sleeps.
#[map]
static PIPE_EAGER: PerfEventByteArray = PerfEventByteArray::new(0);

/// What was attempted and what failed: a bank for each slot, so that no counter is shared with a
/// program that interrupts, and one for those who found no slot.
#[map]
static PIPE_TALLY: PerCpuArray<TallyBank> = PerCpuArray::with_max_entries(TALLY_BANKS, 0);

/// Which outputs failed, for each slot. (Whoever finds none has no output.)
#[map]
static PIPE_OUTPUTS: PerCpuArray<OutputTally> = PerCpuArray::with_max_entries(DEPTH, 0);

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

/// How long a block may become, by the page of the consumer.
#[inline(always)]
pub(crate) fn limit(control: Option<*mut CpuControl>) -> u32 {
    let limit = match control {
        // SAFETY: the map value is there for as long as the map is; the consumer writes it, too.
        Some(control) => unsafe { (&raw const (*control).limit).read_volatile() },
        // Without a word of the consumer, it wants no packing.
        None => 0,
    };
    if limit > MAX_PACKED { MAX_PACKED } else { limit }
}

/// Sends the only record of a slot that has no block open, `span` bytes long and of the kind at `index`: it is
/// tallied without having been in a block's count. Returns the helper's errno.
#[inline(always)]
pub(crate) fn send_alone(
    ctx: *mut c_void,
    slot: *mut Slot,
    span: u32,
    depth: u32,
    index: u32,
    control: Option<*mut CpuControl>,
) -> i64 {
    let errno = offer(ctx, slot, span, depth, control);
    step(slot);
    if errno == 0 {
        count_as(depth, index, 1, None);
    } else {
        pipe_tally(depth, KindCount::one(index).word(), errno);
    }
    errno
}

/// Sends the open block of the first slot with `fill` bytes of records, and empties it, whatever comes of it.
/// `uncounted` is what is in the block beyond the kinds that it counts. Returns the helper's errno.
#[inline(always)]
pub(crate) fn send(
    ctx: *mut c_void,
    slot: *mut Slot,
    fill: u32,
    uncounted: KindCount,
    control: Option<*mut CpuControl>,
) -> i64 {
    let errno = offer(ctx, slot, fill, FIRST, control);
    empty(slot, uncounted, control, errno);
    errno
}

/// Sends the open block of the first slot, and keeps it open if this CPU's event is not active: the CPU was
/// offline, and its next event is yet to come. Whether it was sent, or has failed for good.
#[inline(always)]
pub(crate) fn send_or_keep(
    ctx: *mut c_void,
    slot: *mut Slot,
    fill: u32,
    control: Option<*mut CpuControl>,
) -> bool {
    let errno = offer(ctx, slot, fill, FIRST, control);
    let is_kept = matches!(FailureClass::of(errno), FailureClass::NotActive);
    if !is_kept {
        // A failure is in the tally.
        empty(slot, KindCount::NONE, control, errno);
    }
    !is_kept
}

/// Gives the slot's block to the kernel. Returns the helper's errno.
#[inline(always)]
fn offer(
    ctx: *mut c_void,
    slot: *mut Slot,
    fill: u32,
    depth: u32,
    control: Option<*mut CpuControl>,
) -> i64 {
    // It never is more, but the verifier does not know.
    let fill = if fill as usize > ROOM { ROOM as u32 } else { fill };
    // SAFETY: the slot is the caller's.
    let seq = unsafe { (*slot).head.seq };
    let used = (fill / RECORD_ALIGN as u32) as u16;
    // SAFETY: as above.
    unsafe { (*slot).head.prefix = BlockPrefix::new(used, depth, seq) };
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
            (&raw mut (*slot).head.prefix).cast(),
            u64::from(fill) + size_of::<BlockPrefix>() as u64,
        )
    };
    if let Some(control) = control
        && asleep != 0
        && errno == 0
    {
        // One wakeup is enough for one sleep. The consumer cannot fall asleep again meanwhile: it
        // would find the slot held, or the flag down.
        // SAFETY: as above.
        unsafe { (&raw mut (*control).asleep).write_volatile(0) };
    }
    errno
}

/// Empties the first slot, whose block the kernel took, or did not, as `errno` says: tallies what was in it, and
/// tells the consumer that none is open.
#[inline(always)]
fn empty(slot: *mut Slot, uncounted: KindCount, control: Option<*mut CpuControl>, errno: i64) {
    step(slot);
    // SAFETY: the slot is the caller's.
    unsafe { (*slot).head.fill = 0 };
    if let Some(control) = control {
        open(control, 0);
    }
    // SAFETY: as above.
    let [first, second, ..] = unsafe { &mut (*slot).head.kinds };
    match first.get() {
        Some((index, count)) if errno == 0 && *second == KindCount::NONE => {
            *first = KindCount::NONE;
            count_as(FIRST, index, count, None);
        }
        _ => {
            pipe_tally(FIRST, uncounted.word(), errno);
        }
    }
}

/// The slot's next block has the next number.
#[inline(always)]
fn step(slot: *mut Slot) {
    // SAFETY: the slot is the caller's.
    unsafe { (*slot).head.seq = (*slot).head.seq.wrapping_add(1) };
}

/// Tallies the records of the block in the slot at `depth`, which is empty then, and the output, if it
/// failed. Who calls it holds the slot.
///
/// A global function (`BTF_FUNC_GLOBAL`, 5.6+): the verifier looks at it once, not for each way that leads
/// here. It may have numbers only.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pipe_tally(depth: u32, uncounted: u32, errno: i64) -> u32 {
    let Some(slot) = slot::get(depth) else { return 0 };
    let failure = (errno != 0).then(|| FailureClass::of(errno));
    let mut records = 0;
    if let Some((index, count)) = KindCount::of_word(uncounted).get() {
        records += count;
        count_as(depth, index, count, failure);
    }
    for at in 0..BLOCK_KINDS {
        // SAFETY: the slot is the caller's.
        let kind = unsafe { &mut (*slot).head.kinds[at] };
        let Some((index, count)) = kind.get() else { break };
        *kind = KindCount::NONE;
        records += count;
        count_as(depth, index, count, failure);
    }
    if let Some(class) = failure {
        count_output(depth, records, class);
    }
    0
}

/// Counts an output that the kernel did not take, with so many records in it.
#[inline(always)]
fn count_output(depth: u32, records: u32, class: FailureClass) {
    let Some(tally) = PIPE_OUTPUTS.get_ptr_mut(depth) else { return };
    if matches!(class, FailureClass::NoSpace) {
        // SAFETY: the map value is this CPU's, and at this depth nobody else counts.
        unsafe { (*tally).lost_records += u64::from(records) };
    }
    // SAFETY: as above.
    unsafe { add_failed(&raw mut (*tally).failed, class, 1) };
}

/// The count of the kind at `index`, at a depth.
#[inline(always)]
fn tally_of(depth: u32, index: u32) -> Option<*mut KindTally> {
    let bank = PIPE_TALLY.get_ptr_mut(depth)?;
    // It never is more, but the verifier does not know.
    let index = index & (KINDS - 1);
    // SAFETY: the bank has so many.
    Some(unsafe { bank.cast::<KindTally>().add(index as usize) })
}

/// Counts records of the kind at `index`, in the bank of a slot that is the caller's.
#[inline(always)]
fn count_as(depth: u32, index: u32, count: u32, failure: Option<FailureClass>) {
    let Some(tally) = tally_of(depth, index) else { return };
    let count = u64::from(count);
    match failure {
        // SAFETY: the map value is this CPU's, and at this depth nobody else counts.
        None => unsafe { (*tally).sent += count },
        // SAFETY: as above.
        Some(class) => unsafe { add_failed(&raw mut (*tally).failed, class, count) },
    }
}

/// Adds to one of the counters of failures.
///
/// # Safety
///
/// They have to be in a map value that nobody else writes now.
#[inline(always)]
unsafe fn add_failed(failed: *mut [u64; FailureClass::COUNT], class: FailureClass, count: u64) {
    // The compiler knows that a class is below COUNT and would drop the mask; the verifier does not,
    // and needs it.
    let class = core::hint::black_box(class as usize) & (FailureClass::COUNT - 1);
    // SAFETY: the counter is one of them.
    let counter = unsafe { failed.cast::<u64>().add(class) };
    // SAFETY: the caller's promise.
    unsafe { *counter += count };
}

const _: () = assert!(FailureClass::COUNT.is_power_of_two() && KINDS.is_power_of_two());

/// Tallies a record of the kind at `index` that is not even in a block.
#[inline(always)]
pub(crate) fn refuse(index: u32, class: FailureClass) {
    let Some(tally) = tally_of(DEPTH, index) else { return };
    // SAFETY: the counter is in this CPU's map value. Refusals can interrupt each other, so it is
    // added to atomically.
    unsafe { atomic::add(&raw mut (*tally).failed[class as usize], 1) };
}
