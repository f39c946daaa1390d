//! Calls: what is read where a function is entered is kept until it returns, and told then, with what it
//! returned and how long that took.

use super::hit::{self, Frame, LONGEST_TAIL, Registers};
use super::{count, counter, fetch, filter, histogram, sampling, stack};
use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_ANY, BPF_NOEXIST},
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns, generated::bpf_probe_read_kernel},
    macros::map,
    maps::{LruHashMap, PerCpuArray},
};
use core::mem::offset_of;
use probe_common::RecordHeader;
use probe_common::call::{CallCounts, CallKey, PART};
use probe_common::counter::Counted;
use probe_common::fetch::{FIELDS, FetchTable, base, moment};
use probe_common::trace::ProbeHit;
use probe_ebpf::{Reservation, atomic, pipe};

type Part = [u8; PART];

/// User space says how many parts there are. What is kept when there are no more takes the place of what
/// was kept longest, so that calls that never return do not fill it up for ever.
///
/// The kernel's locks in it are not for programs that interrupt their holder. None does: the kernel runs
/// one program of a kprobe at a time on a CPU, and none while a system call looks at a map.
#[map]
static CALLS: LruHashMap<CallKey, Part> = LruHashMap::with_max_entries(1, 0);

/// What user space puts in the place of [`CALLS`] in programs that it loads for uprobes.
///
/// From 6.0 on, programs of kprobes do interrupt those of uprobes, where these hold a lock, too; so they may
/// not have a map in common. Programs of uprobes preempt each other, but not where a lock is held.
#[map]
static USER_CALLS: LruHashMap<CallKey, Part> = LruHashMap::with_max_entries(1, 0);

#[map]
static CALL_COUNTS: PerCpuArray<CallCounts> = PerCpuArray::with_max_entries(1, 0);

const HEADER: usize = size_of::<RecordHeader>();

/// What comes before a hit's tail.
const HEAD: usize = HEADER + size_of::<ProbeHit>();

/// Most parts of a call.
const PARTS: usize = (HEAD + LONGEST_TAIL).div_ceil(PART);

// The first part has what it takes to know the call by; what was counted before is in it, or ends in the second. A
// reservation has all parts, whole, and what is counted where a call returns is behind them.
const _: () = assert!(
    HEAD + 8 * FIELDS <= PART
        && HEAD + 8 * FIELDS + size_of::<Counted>() <= 2 * PART
        && PARTS * PART <= HEADER + probe_common::limits::MAX_EMIT
        && PARTS * PART <= HEAD + offset_of!(Frame, returned)
);

const ANY: u64 = BPF_ANY as u64;
const ONLY_NEW: u64 = BPF_NOEXIST as u64;

/// A call is entered, whose registers `fill` fills in.
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
    // The return of this call is not to be taken for that of an earlier one.
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
    // To read the fields is no part of the call's time.
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    // SAFETY: as above.
    unsafe { (*record).time = now };
    let counters_end = counter::enter(hit, probe);
    // They end behind the first part if there are many fields, too: it was kept without them.
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

/// A call returns `retval`, whether or not it was kept.
#[inline(always)]
pub(crate) fn returned<C: EbpfContext>(ctx: &C, probe: u32, stack: u64, retval: u64) -> u32 {
    let first = key(probe, stack, 0);
    let Some(kept) = CALLS.get_ptr(first) else { return 0 };
    // SAFETY: the first part begins with a header.
    let RecordHeader { len, time: entered, .. } = unsafe { kept.cast::<RecordHeader>().read() };
    let tid = kept.cast::<u8>().wrapping_add(HEADER + offset_of!(ProbeHit, task.tid));
    // SAFETY: then comes a hit.
    let tid = unsafe { tid.cast::<u32>().read() };
    if tid != bpf_get_current_pid_tgid() as u32 {
        // Another thread has the kernel's stack now.
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
    // SAFETY: a part has as many bytes, and there is room for a whole one.
    unsafe { copy(record, kept, HEADER, PART - HEADER) };
    // What cannot be removed has been dropped, perhaps before all of it was read.
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
    counter::tell(&mut hit, probe);
    if fetch::follow_table(probe, hit.depth(), moment::LATE) != 0 {
        if count::is_wanted() {
            histogram::add(probe, returned.wrapping_sub(entered));
        } else if sampling::is_told(probe) {
            hit::send(ctx, hit);
        }
    }
    0
}

/// A call cannot be told, or not be timed, for want of a slot.
#[inline(always)]
fn no_slot(probe: u32) {
    // Where calls are told, it is in the pipe's tally.
    if count::is_wanted() {
        count::unjudged(probe);
    }
}

/// Puts a call's further parts behind the first. `false` if one of them has been dropped.
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

/// Copies `len` bytes of a part, from its byte `from` on, to the same place behind `to`.
///
/// # Safety
///
/// They are there.
#[inline(always)]
unsafe fn copy(to: *mut RecordHeader, part: *const Part, from: usize, len: usize) {
    let to = to.cast::<u8>().wrapping_add(from);
    let part = part.cast::<u8>().wrapping_add(from);
    // SAFETY: the caller's promise. It cannot fail.
    unsafe { bpf_probe_read_kernel(to.cast(), len as u32, part.cast()) };
}

/// A record's `n`th part.
#[inline(always)]
fn part<'r>(record: *mut RecordHeader, n: usize) -> &'r Part {
    // SAFETY: a reservation has PARTS of them, whatever bytes they hold.
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
