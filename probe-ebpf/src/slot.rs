//! Scratch memory: where records are built, and who builds one in it now.
//!
//! There are [`DEPTH`] slots for each CPU. A slot is held from [`take`] to [`give_back`] by one
//! program; whoever comes meanwhile takes another one.

use crate::atomic;
use aya_ebpf::{macros::map, maps::PerCpuArray};
use core::mem::offset_of;
use probe_common::{
    BlockPrefix,
    block::record_span,
    limits::{DEPTH, MAX_EMIT, MAX_PACKED, RECORD_ALIGN},
    slot::SlotHead,
};

#[map]
static PIPE_SCRATCH: PerCpuArray<Slot> = PerCpuArray::with_max_entries(DEPTH, 0);

/// Bytes of records that a slot has room for: a block up to its limit, and one longest record.
pub(crate) const ROOM: usize = MAX_PACKED as usize + record_span(MAX_EMIT);

/// The block starts at the head's `prefix`, so that records are 8-aligned here as they are in the
/// ring. What stands before them is in one cache line.
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(crate) head: SlotHead,
    pub(crate) records: [u8; ROOM],
}

/// Where the block starts.
const PREFIX_AT: usize = offset_of!(Slot, head) + offset_of!(SlotHead, prefix);

const _: () = {
    assert!(ROOM.is_multiple_of(RECORD_ALIGN) && ROOM / RECORD_ALIGN <= u16::MAX as usize);
    assert!(offset_of!(Slot, records).is_multiple_of(RECORD_ALIGN));
    assert!(PREFIX_AT + size_of::<BlockPrefix>() == offset_of!(Slot, records));
    // PCPU_MIN_UNIT_SIZE
    assert!(size_of::<Slot>() <= 32 << 10);
};

/// A slot of this CPU.
#[inline(always)]
pub(crate) fn get(depth: u32) -> Option<*mut Slot> {
    PIPE_SCRATCH.get_ptr_mut(depth)
}

/// Takes the first slot that nobody holds, and tells which it is.
#[inline(always)]
pub(crate) fn take_any() -> Option<(*mut Slot, u32)> {
    let slot = get(0)?;
    if take(slot) {
        return Some((slot, 0));
    }
    for depth in 1..DEPTH {
        let slot = get(depth)?;
        if take(slot) {
            return Some((slot, depth));
        }
    }
    None
}

/// Takes a slot, unless somebody holds it.
///
/// Programs that interrupt each other give back in the reverse order; programs that can be preempted
/// do not, and two of them can find a slot free at the same time. Both claim it, then. To claim is
/// atomic, so that at most one of them finds no claim beside its own after it. Perhaps none does, which
/// is as good: they withdraw, and take another slot. Who is only interrupted, by programs that end before
/// it goes on, has the slot that it found free. `probe-common/tests/slots.rs` tries out every order of these
/// steps.
///
/// An atomic addition waits for the processor's store buffer, so there is one for a record, and who has
/// the slot gives it back without: it alone writes that counter.
#[inline(always)]
pub(crate) fn take(slot: *mut Slot) -> bool {
    if seems_held(slot) {
        return false;
    }
    // SAFETY: the counter is in this CPU's map value.
    unsafe { atomic::add(&raw mut (*slot).head.claims, 1) };
    if outstanding(slot) == 1 {
        return true;
    }
    // SAFETY: as above.
    unsafe { atomic::add(&raw mut (*slot).head.withdrawn, 1) };
    false
}

#[inline(always)]
pub(crate) fn is_held(slot: *mut Slot) -> bool {
    outstanding(slot) != 0
}

/// Gives back what [`take`] took.
#[inline(always)]
pub(crate) fn give_back(slot: *mut Slot) {
    // SAFETY: the counter is in this CPU's map value, and the slot is the caller's.
    let given_back = unsafe { &raw mut (*slot).head.given_back };
    // SAFETY: as above.
    unsafe { given_back.write_volatile(given_back.read_volatile().wrapping_add(1)) };
}

/// Whether it is worth a claim. Programs that interrupt this, and end, make no difference; others may, and the
/// claim is in vain then.
#[inline(always)]
fn seems_held(slot: *mut Slot) -> bool {
    let claims = claims(slot);
    claims.wrapping_sub(ended(slot)).cast_signed() > 0
}

/// How many claims are neither withdrawn nor given back, or more: what ends is seen before what
/// begins.
#[inline(always)]
fn outstanding(slot: *mut Slot) -> u64 {
    let ended = ended(slot);
    claims(slot).wrapping_sub(ended)
}

#[inline(always)]
fn claims(slot: *mut Slot) -> u64 {
    // SAFETY: the counter is in this CPU's map value.
    unsafe { (&raw const (*slot).head.claims).read_volatile() }
}

#[inline(always)]
fn ended(slot: *mut Slot) -> u64 {
    // SAFETY: the slot is a value of this CPU's map.
    let head = unsafe { &raw const (*slot).head };
    // SAFETY: as above.
    let withdrawn = unsafe { (&raw const (*head).withdrawn).read_volatile() };
    // SAFETY: as above.
    withdrawn.wrapping_add(unsafe { (&raw const (*head).given_back).read_volatile() })
}
