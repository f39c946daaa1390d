//! Calls: what is read at a function's entry is kept until the function returns, and then reported together with
//! the return value and the duration.

use super::fetch::again;
use super::hit::{self, Hook};
use super::parts::{self, ANY, HEAD, HEADER, Part, Parts, part};
use super::{count, counter, fetch, filter, histogram, sampling, stack, task, wait};
use aya_ebpf::{
    EbpfContext,
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::map,
    maps::{LruHashMap, PerCpuArray},
    programs::RetProbeContext,
};
use aya_log_ebpf::trace;
use core::ffi::c_void;
use core::mem::offset_of;
use probe_common::{RecordHeader, RecordKind};
use probe_ebpf::{Reservation, atomic, pipe};
use probe_tracer_common::call::{CallCounts, CallKey, PART};
use probe_tracer_common::fetch::{base, moment};
use probe_tracer_common::trace::{ProbeHit, Task};

/// User space sets the number of parts. When the map is full, a new part replaces the oldest one, so that calls
/// that never return do not fill the map for ever.
///
/// A program must not interrupt another one that holds a lock of this map. None does: these locks keep interrupts out, and
/// the kernel runs no kprobe program while another program or a system call accesses a map on that CPU.
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

const ONLY_NEW: u64 = BPF_NOEXIST as u64;

/// A call that is kept, or is about to be.
struct Kept {
    probe: u32,
    stack: u64,
}

impl Parts for Kept {
    #[inline(always)]
    fn insert(&self, n: usize, part: &Part, flags: u64) -> bool {
        CALLS.insert(key(self.probe, self.stack, n), part, flags).is_ok()
    }

    #[inline(always)]
    fn get(&self, n: usize) -> Option<*const Part> {
        CALLS.get_ptr(key(self.probe, self.stack, n))
    }

    #[inline(always)]
    fn remove(&self, n: usize) -> bool {
        CALLS.remove(key(self.probe, self.stack, n)).is_ok()
    }
}

/// Handles the entry of a call. One that never returns is counted, but takes no room.
#[inline(always)]
pub(crate) fn entered<H: Hook, C: EbpfContext>(
    ctx: &C,
    probe: u32,
    stack: u64,
    returns: bool,
) -> u32 {
    if !filter::current_is_traced() {
        return 0;
    }
    let sieved = hit::sieve(ctx.as_ptr(), probe);
    let is_kept = sieved != fetch::REJECTED
        && match hit::begin(probe) {
            Some(mut hit) => {
                let said = hit::read_into::<H, C>(ctx, &mut hit, sieved);
                said != fetch::REJECTED && may_be_decided(probe, &hit, said) && {
                    if returns {
                        stack::read::<H, C>(ctx, probe, &hit);
                        keep(&mut hit, probe, stack)
                    } else {
                        // Its return will not be seen.
                        tally(probe, |counts| &raw mut counts.kept);
                        tally(probe, |counts| &raw mut counts.replaced);
                        true
                    }
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

/// Whether the predicate has accepted a call, or may be decided when it returns: by then, fields that faulted may be
/// readable. Otherwise counts the call as undecided.
#[inline(always)]
fn may_be_decided(probe: u32, hit: &Reservation<ProbeHit>, said: u32) -> bool {
    let is_accepted = said == fetch::ACCEPTED || said == fetch::FINAL;
    if is_accepted || fetch::fields_to_read(probe, hit.depth()) != 0 {
        return true;
    }
    wait::remain_undecided(probe);
    false
}

/// Keeps a call until it returns.
#[inline(always)]
fn keep(hit: &mut Reservation<ProbeHit>, probe: u32, stack: u64) -> bool {
    let len = hit::frame(hit).len;
    // All kept records are hits, so the kind's place has room for something else.
    let memory = if hit.faults == 0 { 0 } else { wait::memory() };
    let record = hit.as_mut_ptr();
    // SAFETY: the header is the reservation's.
    unsafe { (*record).len = (size_of::<ProbeHit>() + len) as u32 };
    // SAFETY: as above.
    unsafe { (*record).kind = RecordKind(memory) };
    if !parts::keep_rest(&Kept { probe, stack }, record, HEAD + len) {
        tally(probe, |counts| &raw mut counts.refused);
        return false;
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

/// Handles the return of a call, whether or not the call was kept. One function for all programs, so that the object has this
/// code once.
#[inline(never)]
pub(crate) fn returned(ctx: *mut c_void, probe: u32, stack: u64, retval: u64) -> u32 {
    let ctx = &RetProbeContext::new(ctx);
    trace!(ctx, "call of {} returned", probe);
    // A call that ends later than the trace is one whose return was not seen.
    if !filter::is_open() {
        return 0;
    }
    let first = key(probe, stack, 0);
    let Some(kept) = CALLS.get_ptr(first) else { return 0 };
    // SAFETY: the first part begins with a header.
    let RecordHeader { kind, len, time: entered } = unsafe { kept.cast::<RecordHeader>().read() };
    let task = kept.cast::<u8>().wrapping_add(HEADER + offset_of!(ProbeHit, task));
    // SAFETY: a hit follows the header.
    let Task { pid, tid, .. } = unsafe { task.cast::<Task>().read() };
    let now = task::ids();
    // A thread that executes a program gets the id of the process.
    if tid != now.tid && (pid, pid) != (now.pid, now.tid) {
        // Another thread uses the kernel's stack now.
        if CALLS.remove(first).is_ok() {
            tally(probe, |counts| &raw mut counts.replaced);
        }
        return 0;
    }
    let Ok(mut hit) = pipe::reserve::<ProbeHit>() else {
        // A call that the map has dropped by now is counted as such, unless the pipe's tally has counted it.
        if CALLS.remove(first).is_ok() || !count::is_wanted() {
            tally(probe, |counts| &raw mut counts.returned);
            no_slot(probe);
        }
        return 0;
    };
    counter::leave(&mut hit);
    let record = hit.as_mut_ptr();
    // SAFETY: the value has the size of a part, and there is room for a whole one.
    unsafe { parts::copy(record, kept, HEADER, PART - HEADER) };
    // What cannot be removed was dropped, perhaps before it had been read completely.
    let all = HEADER + len as usize;
    if CALLS.remove(first).is_err()
        || !parts::restore_rest(&Kept { probe, stack }, record, all, true)
    {
        return 0;
    }
    tally(probe, |counts| &raw mut counts.returned);
    // SAFETY: the header is the reservation's.
    let returned = unsafe { (*record).time };
    let frame = hit::frame(&mut hit);
    frame.len = (len as usize).wrapping_sub(size_of::<ProbeHit>());
    frame.registers[base::RETVAL as usize] = retval;
    // Another CPU's clock may be a little behind.
    let latency = returned.saturating_sub(entered);
    frame.registers[base::LATENCY as usize] = latency;
    counter::report(&mut hit, probe);
    let mut decided = fetch::ACCEPTED;
    if hit.faults != 0 {
        decided = if kind.0 != 0 && kind.0 == wait::memory() {
            // The kernel, or the process, has read by now what was missing at the entry.
            fetch::read_again(probe, hit.depth(), again::FOR_GOOD)
        } else {
            // The memory may be that of another program.
            fetch::give_fields_up(probe, hit.depth())
        };
    }
    if decided == fetch::ACCEPTED {
        decided = fetch::follow_table(probe, hit.depth(), moment::LATE);
    }
    if decided == fetch::UNDECIDED {
        wait::remain_undecided(probe);
    }
    if decided == fetch::ACCEPTED {
        if count::is_wanted() {
            histogram::add(probe, latency);
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
