//! The output of a slot: the only caller of `bpf_perf_event_output`, and the tally of what the kernel
//! accepts and refuses.

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
    control::{CONTROL_CPUS, CpuControl, MOST_UNANSWERED},
    limits::{KINDS, MAX_PACKED, RECORD_ALIGN, TALLY_BANKS},
    slot::{BLOCK_KINDS, KindCount},
    tally::{Bank, FailureClass, OutputTally, TallyBank},
};

/// Blocks are written here. User space puts one perf event for each CPU into this map.
#[map]
static PIPE_EVENTS: PerfEventByteArray = PerfEventByteArray::new(0);

/// Blocks are written here while the CPU is eager.
#[map]
static PIPE_EAGER: PerfEventByteArray = PerfEventByteArray::new(0);

/// Which records were sent and which failed.
#[map]
static PIPE_TALLY: PerCpuArray<TallyBank> = PerCpuArray::with_max_entries(TALLY_BANKS, 0);

/// Which outputs failed.
#[map]
static PIPE_OUTPUTS: PerCpuArray<OutputTally> = PerCpuArray::with_max_entries(1, 0);

/// What the consumer asks of each CPU.
#[map]
static PIPE_CONTROL: Array<CpuControl> = Array::with_max_entries(CONTROL_CPUS, BPF_F_MMAPABLE);

/// This CPU's entry in the page that the consumer shares.
#[inline(always)]
pub(crate) fn control() -> Option<*mut CpuControl> {
    // SAFETY: the helper has no preconditions.
    PIPE_CONTROL.get_ptr_mut(unsafe { bpf_get_smp_processor_id() })
}

/// Reports to the consumer which block is open.
#[inline(always)]
pub(crate) fn open(control: *mut CpuControl, block: u32) {
    // SAFETY: the map value lives as long as the map, and only this CPU writes the field.
    unsafe { (&raw mut (*control).open).write_volatile(block) };
}

/// The maximum length of a block, as the consumer's page states it.
#[inline(always)]
pub(crate) fn limit(control: Option<*mut CpuControl>) -> u32 {
    let limit = match control {
        // SAFETY: the map value lives as long as the map; the consumer writes it, too.
        Some(control) => unsafe { (&raw const (*control).limit).read_volatile() },
        // A CPU without an entry packs nothing.
        None => 0,
    };
    if limit > MAX_PACKED { MAX_PACKED } else { limit }
}

/// Sends the only record of a slot that has no open block. The record is `span` bytes long and of the kind at
/// `index`. It is tallied directly, without the counts of a block. Returns the helper's errno.
#[inline(always)]
pub(crate) fn send_one(
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
        // Hidden from the compiler, which would combine the depth and a pointer into one word to compare both at once. The
        // verifier of 5.10 allows no such arithmetic.
        count_sent(core::hint::black_box(depth), index, 1);
    } else {
        pipe_tally(depth, KindCount::one(index).word(), errno);
    }
    errno
}

/// Sends the open block of the first slot with `fill` bytes of records, and empties it whatever the result.
/// `uncounted` is what the block holds beyond the kinds that it counts. Returns the helper's errno.
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

/// Sends the open block of the first slot, but keeps it open if this CPU's event is not active: the CPU was
/// offline, and has no new event yet. Returns whether the block was sent or has failed for good.
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
        // A failure is tallied.
        empty(slot, KindCount::NONE, control, errno);
    }
    !is_kept
}

/// Passes the slot's block to the kernel. Returns the helper's errno.
#[inline(always)]
fn offer(
    ctx: *mut c_void,
    slot: *mut Slot,
    fill: u32,
    depth: u32,
    control: Option<*mut CpuControl>,
) -> i64 {
    // It never exceeds ROOM, but the verifier does not know that.
    let fill = if fill as usize > ROOM { ROOM as u32 } else { fill };
    // SAFETY: the caller holds the slot.
    let seq = unsafe { (*slot).head.seq };
    let used = (fill / RECORD_ALIGN as u32) as u16;
    // SAFETY: as above.
    unsafe { (*slot).head.prefix = BlockPrefix::new(used, depth, seq) };
    // SAFETY: the caller holds the slot.
    let block = unsafe { &raw const (*slot).head.prefix };
    let len = u64::from(fill) + size_of::<BlockPrefix>() as u64;
    if let Some(control) = control {
        let period = eager_period(control);
        if period != 0 {
            let is_last = count_wakeup(control, period);
            // SAFETY: the block is inside the slot, which the verifier proves again.
            let errno = unsafe { write(ctx, &raw const PIPE_EAGER, block, len) };
            if errno == 0 && is_last {
                end_period(control, period);
            }
            if !matches!(FailureClass::of(errno), FailureClass::NoEvent) {
                return errno;
            }
            // The consumer that asked for wakeups is gone. There may be another one, which has only the other map.
        }
    }
    // SAFETY: as above.
    unsafe { write(ctx, &raw const PIPE_EVENTS, block, len) }
}

/// Writes a block of `len` bytes, including its prefix, into this CPU's ring. Returns the helper's errno.
///
/// # Safety
///
/// `ctx` must be the context that the kernel passed to this program, and the block must have `len` bytes.
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

/// The number of the eager period in which the next block wakes the consumer, or 0 if it does not.
#[inline(always)]
fn eager_period(control: *mut CpuControl) -> u32 {
    // SAFETY: the map value lives as long as the map; the consumer writes it, too.
    let eager = unsafe { (&raw const (*control).eager).read_volatile() };
    // SAFETY: as above.
    if eager == unsafe { (&raw const (*control).ended).read_volatile() } { 0 } else { eager }
}

/// Counts the wakeup that follows. If too many are unanswered, announces that the CPU ends the period after this one,
/// and returns `true`.
///
/// Programs that interrupt each other may count one wakeup less.
#[inline(always)]
fn count_wakeup(control: *mut CpuControl, period: u32) -> bool {
    // SAFETY: the map value lives as long as the map, and only this CPU writes the field.
    let wakeups = unsafe { (&raw const (*control).wakeups).read_volatile() }.wrapping_add(1);
    // SAFETY: as above.
    unsafe { (&raw mut (*control).wakeups).write_volatile(wakeups) };
    // SAFETY: as above; the consumer writes this field.
    let answered = unsafe { (&raw const (*control).answered).read_volatile() };
    let is_last = wakeups.wrapping_sub(answered) >= MOST_UNANSWERED;
    if is_last {
        // SAFETY: as above; only this CPU writes the field.
        unsafe { (&raw mut (*control).ending).write_volatile(period) };
    }
    is_last
}

/// Ends an eager period, after a block that has woken the consumer and whose wakeup was announced as the last: when
/// the consumer looks because of that wakeup, it finds the announcement.
#[inline(always)]
fn end_period(control: *mut CpuControl, period: u32) {
    // SAFETY: the map value lives as long as the map, and only this CPU writes the field.
    unsafe { (&raw mut (*control).ended).write_volatile(period) };
}

/// Empties the first slot after an output that returned `errno`: tallies the records of its block, and reports to
/// the consumer that no block is open.
#[inline(always)]
fn empty(slot: *mut Slot, uncounted: KindCount, control: Option<*mut CpuControl>, errno: i64) {
    step(slot);
    // SAFETY: the caller holds the slot.
    unsafe { (*slot).head.fill = 0 };
    if let Some(control) = control {
        open(control, 0);
    }
    // SAFETY: as above.
    let [first, second, ..] = unsafe { &mut (*slot).head.kinds };
    match first.get() {
        Some((index, count)) if errno == 0 && *second == KindCount::NONE => {
            *first = KindCount::NONE;
            count_sent(FIRST, index, count);
        }
        _ => {
            pipe_tally(FIRST, uncounted.word(), errno);
        }
    }
}

/// Advances the sequence number to that of the slot's next block.
#[inline(always)]
fn step(slot: *mut Slot) {
    // SAFETY: the caller holds the slot.
    unsafe { (*slot).head.seq = (*slot).head.seq.wrapping_add(1) };
}

/// Tallies and clears the records of the block in the slot at `depth`, and tallies the output if it failed. The
/// caller holds the slot.
///
/// This is a global function (`BTF_FUNC_GLOBAL`, 5.6+): the verifier checks it once, not for each path that
/// leads here. Its arguments can only be numbers.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pipe_tally(depth: u32, uncounted: u32, errno: i64) -> u32 {
    let Some(slot) = slot::get(depth) else { return 0 };
    let failure = (errno != 0).then(|| FailureClass::of(errno));
    let count_kind = |index, count| match failure {
        None => count_sent(depth, index, count),
        Some(class) => add(Bank::Failed(class), index, count),
    };
    let mut records = 0;
    if let Some((index, count)) = KindCount::of_word(uncounted).get() {
        records += count;
        count_kind(index, count);
    }
    for at in 0..BLOCK_KINDS {
        // SAFETY: the caller holds the slot.
        let kind = unsafe { &mut (*slot).head.kinds[at] };
        let Some((index, count)) = kind.get() else { break };
        *kind = KindCount::NONE;
        records += count;
        count_kind(index, count);
    }
    if let Some(class) = failure {
        count_output(records, class);
    }
    0
}

/// Counts an output that the kernel refused, with `records` records in it.
#[inline(always)]
fn count_output(records: u32, class: FailureClass) {
    let records = u64::from(records);
    let is_loss = matches!(class, FailureClass::NoSpace);
    if let Some(tally) = PIPE_OUTPUTS.get_ptr_mut(0) {
        // The compiler knows that a class is below COUNT and would remove the mask. The verifier does not know that, and
        // needs the mask.
        let class = core::hint::black_box(class as usize) & (FailureClass::COUNT - 1);
        // SAFETY: the counters are in this CPU's map value, and every addition to them is atomic.
        unsafe {
            if is_loss {
                atomic::add(&raw mut (*tally).lost_records, records);
            }
            atomic::add((&raw mut (*tally).failed).cast::<u64>().add(class), 1);
        }
    }
    let Some(control) = control() else { return };
    // SAFETY: the map value lives as long as the map, and only this CPU adds to the counters.
    unsafe {
        if is_loss {
            atomic::add(&raw mut (*control).lost_records, records);
        } else {
            atomic::add(&raw mut (*control).failures, 1);
        }
    }
}

/// This CPU's counter of the kind at `index` in a bank.
#[inline(always)]
fn counter(bank: Bank, index: u32) -> Option<*mut u64> {
    let bank = PIPE_TALLY.get_ptr_mut(bank.index())?;
    // It never exceeds KINDS - 1, but the verifier does not know that.
    let index = index & (KINDS - 1);
    // SAFETY: the bank has KINDS counters.
    Some(unsafe { bank.cast::<u64>().add(index as usize) })
}

const _: () = assert!(FailureClass::COUNT.is_power_of_two() && KINDS.is_power_of_two());

/// Counts records of the kind at `index` that the kernel accepted. The caller holds the slot at this depth.
#[inline(always)]
fn count_sent(depth: u32, index: u32, count: u32) {
    if depth != FIRST {
        return add(Bank::SentNested, index, count);
    }
    let Some(counter) = counter(Bank::SentFirst, index) else { return };
    // SAFETY: the counter is in this CPU's map value, and only the holder of the first slot counts there.
    unsafe { *counter += u64::from(count) };
}

/// Adds to a bank in which several programs count.
#[inline(always)]
fn add(bank: Bank, index: u32, count: u32) {
    let Some(counter) = counter(bank, index) else { return };
    // SAFETY: the counter is in this CPU's map value, and every addition to it is atomic.
    unsafe { atomic::add(counter, u64::from(count)) };
}

/// Tallies a record of the kind at `index` that the pipe refuses.
#[inline(always)]
pub(crate) fn refuse(index: u32, class: FailureClass) {
    add(Bank::Failed(class), index, 1);
    if let Some(control) = control() {
        // SAFETY: the map value lives as long as the map, and only this CPU adds to the counter.
        unsafe { atomic::add(&raw mut (*control).failures, 1) };
    }
}
