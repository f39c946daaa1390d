//! Calls: what is read at a function's entry is kept until the function returns, and then reported together with
//! the return value and the duration.

use super::hit::{self, Frame, LONGEST_TAIL, Registers};
use super::{count, counter, fetch, filter, histogram, sampling, stack, task};
use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_ANY, BPF_NOEXIST},
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns, generated::bpf_probe_read_kernel},
    macros::map,
    maps::{LruHashMap, PerCpuArray},
};
use core::mem::offset_of;
use probe_common::RecordHeader;
use probe_ebpf::{Reservation, atomic, pipe};
use probe_tracer_common::call::{CallCounts, CallKey, PART};
use probe_tracer_common::counter::Counted;
use probe_tracer_common::fetch::{FIELDS, FetchTable, base, moment};
use probe_tracer_common::trace::ProbeHit;

type Part = [u8; PART];

/// User space sets the number of parts. When the map is full, a new part replaces the oldest one, so that calls
/// that never return do not fill the map for ever.
///
/// A program must not interrupt another one that holds a lock of this map. None does: the kernel runs one kprobe
/// program at a time on a CPU, and none while a system call accesses a map.
#[map]
static CALLS: LruHashMap<CallKey, Part> = LruHashMap::with_max_entries(1, 0);

/// User space puts this map in the place of [`CALLS`] in programs that it loads for uprobes.
///
/// From 6.0 on, kprobe programs do interrupt uprobe programs, even where these hold a lock, so the two must not
/// share a map. Uprobe programs preempt each other, but not while they hold a lock.
#[map]
static USER_CALLS: LruHashMap<CallKey, Part> = LruHashMap::with_max_entries(1, 0);

#[map]
static CALL_COUNTS: PerCpuArray<CallCounts> = PerCpuArray::with_max_entries(1, 0);

const HEADER: usize = size_of::<RecordHeader>();

/// What precedes a hit's tail.
const HEAD: usize = HEADER + size_of::<ProbeHit>();

/// The most parts of a call.
const PARTS: usize = (HEAD + LONGEST_TAIL).div_ceil(PART);

// The first part identifies the call; the counters at entry end in it or in the second part. A reservation
// has room for all parts in full, and the counters at the return are behind them.
const _: () = assert!(
    HEAD <= PART
        && HEAD + 8 * FIELDS + size_of::<Counted>() <= 2 * PART
        && PARTS * PART <= HEADER + probe_common::limits::MAX_EMIT
        && PARTS * PART <= HEAD + offset_of!(Frame, returned)
);

const ANY: u64 = BPF_ANY as u64;
const ONLY_NEW: u64 = BPF_NOEXIST as u64;

/// Handles the entry of a call. `fill` fills in the registers.
#[inline(always)]
pub(crate) fn entered<C: EbpfContext>(
    ctx: &C,
    probe: u32,
    stack: u64,
    fill: impl FnOnce(&mut Registers, &FetchTable),
) -> u32 {
    if !filter::current_is_traced() {
        return 0;
    }
    let is_kept = match hit::begin(ctx, probe, fill) {
        Some(mut hit) => {
            fetch::follow_table(probe, hit.depth(), moment::EARLY) != 0 && {
                stack::read(ctx, probe, &hit);
                keep(&mut hit, probe, stack)
            }
        }
        None => {
            no_slot(probe);
            false
        }
    };
    // The return of this call must not be taken for the return of an earlier one.
    if !is_kept && CALLS.remove(key(probe, stack, 0)).is_ok() {
        tally(probe, |counts| &raw mut counts.replaced);
    }
    0
}

/// Keeps a call until it returns.
#[inline(always)]
fn keep(hit: &mut Reservation<ProbeHit>, probe: u32, stack: u64) -> bool {
    let len = hit::frame(hit).len;
    let record = hit.as_mut_ptr();
    // SAFETY: the header is the reservation's.
    unsafe { (*record).len = (size_of::<ProbeHit>() + len) as u32 };
    for n in 1..PARTS {
        if n * PART >= HEAD + len {
            break;
        }
        if CALLS.insert(key(probe, stack, n), part(record, n), ANY).is_err() {
            tally(probe, |counts| &raw mut counts.refused);
            return false;
        }
    }
    let first = key(probe, stack, 0);
    // Reading the fields is not part of the call's duration.
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    // SAFETY: as above.
    unsafe { (*record).time = now };
    let counters_end = counter::enter(hit, probe);
    // With many fields, the counters end behind the first part as well, which was kept without them.
    if HEAD + counters_end > PART
        && CALLS.insert(key(probe, stack, 1), part(record, 1), ANY).is_err()
    {
        tally(probe, |counts| &raw mut counts.refused);
        return false;
    }
    if CALLS.insert(first, part(record, 0), ONLY_NEW).is_err() {
        if CALLS.insert(first, part(record, 0), ANY).is_err() {
            tally(probe, |counts| &raw mut counts.refused);
            return false;
        }
        tally(probe, |counts| &raw mut counts.replaced);
    }
    tally(probe, |counts| &raw mut counts.kept);
    true
}

/// Handles the return of a call, whether or not the call was kept.
#[inline(always)]
pub(crate) fn returned<C: EbpfContext>(ctx: &C, probe: u32, stack: u64, retval: u64) -> u32 {
    let first = key(probe, stack, 0);
    let Some(kept) = CALLS.get_ptr(first) else { return 0 };
    // SAFETY: the first part begins with a header.
    let RecordHeader { len, time: entered, .. } = unsafe { kept.cast::<RecordHeader>().read() };
    let tid = kept.cast::<u8>().wrapping_add(HEADER + offset_of!(ProbeHit, task.tid));
    // SAFETY: a hit follows the header.
    let tid = unsafe { tid.cast::<u32>().read() };
    if tid != task::ids().tid {
        // Another thread uses the kernel's stack now.
        if CALLS.remove(first).is_ok() {
            tally(probe, |counts| &raw mut counts.replaced);
        }
        return 0;
    }
    let Ok(mut hit) = pipe::reserve::<ProbeHit>() else {
        if CALLS.remove(first).is_ok() {
            tally(probe, |counts| &raw mut counts.returned);
            no_slot(probe);
        }
        return 0;
    };
    counter::leave(&mut hit);
    let record = hit.as_mut_ptr();
    // SAFETY: the value has the size of a part, and there is room for a whole one.
    unsafe { copy(record, kept, HEADER, PART - HEADER) };
    // What cannot be removed was dropped, perhaps before it had been read completely.
    if CALLS.remove(first).is_err() || !restore(record, len as usize, probe, stack) {
        return 0;
    }
    tally(probe, |counts| &raw mut counts.returned);
    // SAFETY: the header is the reservation's.
    let returned = unsafe { (*record).time };
    let frame = hit::frame(&mut hit);
    frame.len = (len as usize).wrapping_sub(size_of::<ProbeHit>());
    frame.registers[base::RETVAL as usize] = retval;
    frame.registers[base::LATENCY as usize] = returned.wrapping_sub(entered);
    counter::report(&mut hit, probe);
    if fetch::follow_table(probe, hit.depth(), moment::LATE) != 0 {
        if count::is_wanted() {
            histogram::add(probe, returned.wrapping_sub(entered));
        } else if sampling::is_reported(probe) {
            hit::send(ctx, hit);
        }
    }
    0
}

/// Counts a call that cannot be reported or timed because no slot is free.
#[inline(always)]
fn no_slot(probe: u32) {
    // Where calls are reported, the pipe's tally counts them.
    if count::is_wanted() {
        count::unjudged(probe);
    }
}

/// Copies the further parts of a call behind the first one. Returns `false` if one of them was dropped.
#[inline(always)]
fn restore(record: *mut RecordHeader, len: usize, probe: u32, stack: u64) -> bool {
    for n in 1..PARTS {
        if n * PART >= HEADER + len {
            break;
        }
        let key = key(probe, stack, n);
        let Some(kept) = CALLS.get_ptr(key) else { return false };
        // SAFETY: as in returned().
        unsafe { copy(record.cast::<Part>().wrapping_add(n).cast(), kept, 0, PART) };
        if CALLS.remove(key).is_err() {
            return false;
        }
    }
    true
}

/// Copies `len` bytes of a part, starting at byte `from`, to the same place relative to `to`.
///
/// # Safety
///
/// Source and destination have these bytes.
#[inline(always)]
unsafe fn copy(to: *mut RecordHeader, part: *const Part, from: usize, len: usize) {
    let to = to.cast::<u8>().wrapping_add(from);
    let part = part.cast::<u8>().wrapping_add(from);
    // SAFETY: the caller's promise. The copy cannot fail.
    unsafe { bpf_probe_read_kernel(to.cast(), len as u32, part.cast()) };
}

/// The `n`th part of a record.
#[inline(always)]
fn part<'r>(record: *mut RecordHeader, n: usize) -> &'r Part {
    // SAFETY: a reservation has PARTS parts, and any bytes are valid in them.
    unsafe { &*record.cast::<Part>().wrapping_add(n) }
}

#[inline(always)]
fn key(probe: u32, stack: u64, part: usize) -> CallKey {
    CallKey::new(stack, bpf_get_current_pid_tgid() as u32, probe, part as u32)
}

/// Adds 1 to one of a probe's counts.
#[inline(always)]
fn tally(probe: u32, which: impl FnOnce(&mut CallCounts) -> *mut u64) {
    let Some(counts) = CALL_COUNTS.get_ptr_mut(probe) else { return };
    // SAFETY: the counts are this CPU's.
    let counter = which(unsafe { &mut *counts });
    // SAFETY: as above; a map value is 8-aligned.
    unsafe { atomic::add(counter, 1) };
}
