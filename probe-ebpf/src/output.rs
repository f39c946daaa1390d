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

/// An object has this section (`probe_common::control::ALONE_SECTION`) if it has programs that mention it, in a branch
/// that is seldom taken: those that emit alone.
#[unsafe(link_section = ".bss.pipe_alone")]
static mut PIPE_ALONE: u32 = 0;

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

/// Which outputs failed, for each slot, and for what was built in none.
#[map]
static PIPE_OUTPUTS: PerCpuArray<OutputTally> = PerCpuArray::with_max_entries(TALLY_BANKS, 0);

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
    let sleep = sleep_to_end(control);
    let map = if sleep != 0 { &raw const PIPE_EAGER } else { &raw const PIPE_EVENTS };
    // SAFETY: the slot is the caller's.
    let block = unsafe { &raw const (*slot).head.prefix };
    let len = u64::from(fill) + size_of::<BlockPrefix>() as u64;
    // SAFETY: the block is inside the slot, which the verifier proves once more.
    let errno = unsafe { write(ctx, map, block, len) };
    if let Some(control) = control
        && sleep != 0
        && errno == 0
    {
        end_sleep(control, sleep);
    }
    errno
}

/// Writes a block of `len` bytes, which its prefix begins, into this CPU's ring. Returns the helper's errno.
///
/// # Safety
///
/// `ctx` is the context that the kernel gave this program, and the block is as long as that.
#[inline(always)]
unsafe fn write(
    ctx: *mut c_void,
    map: *const PerfEventByteArray,
    block: *const BlockPrefix,
    len: u64,
) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        bpf_perf_event_output(
            ctx,
            map.cast_mut().cast(),
            BPF_F_CURRENT_CPU,
            block.cast_mut().cast(),
            len,
        )
    }
}

/// The number of the consumer's sleep that is to be ended by the next block, or 0 while it is awake, or this CPU has
/// woken it already.
#[inline(always)]
fn sleep_to_end(control: Option<*mut CpuControl>) -> u32 {
    let Some(control) = control else { return 0 };
    // SAFETY: the map value is there for as long as the map is; the consumer writes it, too.
    let asleep = unsafe { (&raw const (*control).asleep).read_volatile() };
    // SAFETY: as above.
    if asleep != 0 && asleep != unsafe { (&raw const (*control).woken).read_volatile() } {
        asleep
    } else {
        0
    }
}

/// This CPU has woken the consumer out of its sleep of this number: one wakeup is enough for each. Whoever is late to
/// say so says it of a sleep that is over, and may cost the next one a second wakeup.
#[inline(always)]
fn end_sleep(control: *mut CpuControl, sleep: u32) {
    // SAFETY: the map value is there for as long as the map is, and only this CPU writes the field.
    unsafe { (&raw mut (*control).woken).write_volatile(sleep) };
}

/// Sends a block that is in no slot, of one record of the kind at `index`. Only a failure is tallied. Returns the
/// helper's errno.
///
/// No slot is held that would tell the consumer of it, so it may fall asleep in the middle of this. So the block
/// goes out first, and then we look whether it sleeps: if it did not yet, it will look once more before it does.
///
/// # Safety
///
/// As for [`write`].
#[inline(always)]
pub(crate) unsafe fn send_slotless(
    ctx: *mut c_void,
    block: *const BlockPrefix,
    len: u64,
    index: u32,
) -> i64 {
    // SAFETY: the caller's promise.
    let errno = unsafe { write(ctx, &raw const PIPE_EVENTS, block, len) };
    if errno != 0 {
        // SAFETY: nobody reads it.
        unsafe { (&raw mut PIPE_ALONE).write_volatile(1) };
        let class = FailureClass::of(errno);
        refuse(index, class);
        refuse_output(1, class);
        return errno;
    }
    let control = control();
    let sleep = sleep_to_end(control);
    if let Some(control) = control
        && sleep != 0
    {
        wake(ctx, control, sleep);
    }
    0
}

/// Wakes the consumer out of its sleep of this number.
#[inline(always)]
fn wake(ctx: *mut c_void, control: *mut CpuControl, sleep: u32) {
    let nothing = BlockPrefix::alone(0);
    // SAFETY: the prefix is a whole block.
    let errno = unsafe {
        write(ctx, &raw const PIPE_EAGER, &raw const nothing, size_of_val(&nothing) as u64)
    };
    if errno == 0 {
        end_sleep(control, sleep);
    } else {
        refuse_output(0, FailureClass::of(errno));
    }
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
    // SAFETY: the caller's promise.
    unsafe { *counter_of(failed, class) += count };
}

/// The counter of a class of failures.
#[inline(always)]
fn counter_of(failed: *mut [u64; FailureClass::COUNT], class: FailureClass) -> *mut u64 {
    // The compiler knows that a class is below COUNT and would drop the mask; the verifier does not,
    // and needs it.
    let class = core::hint::black_box(class as usize) & (FailureClass::COUNT - 1);
    failed.cast::<u64>().wrapping_add(class)
}

const _: () = assert!(FailureClass::COUNT.is_power_of_two() && KINDS.is_power_of_two());

/// Tallies an output that was in no slot, with so many records in it.
#[inline(always)]
fn refuse_output(records: u64, class: FailureClass) {
    let Some(tally) = PIPE_OUTPUTS.get_ptr_mut(DEPTH) else { return };
    if matches!(class, FailureClass::NoSpace) {
        // SAFETY: the counter is in this CPU's map value. As in refuse().
        unsafe { atomic::add(&raw mut (*tally).lost_records, records) };
    }
    // SAFETY: as above.
    unsafe { atomic::add(counter_of(&raw mut (*tally).failed, class), 1) };
}

/// Tallies a record of the kind at `index` that is in no slot.
#[inline(always)]
pub(crate) fn refuse(index: u32, class: FailureClass) {
    let Some(tally) = tally_of(DEPTH, index) else { return };
    // SAFETY: the counter is in this CPU's map value. Refusals can interrupt each other, so it is
    // added to atomically.
    unsafe { atomic::add(counter_of(&raw mut (*tally).failed, class), 1) };
}
