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
/// atomic, so that at most one of them reads a count of 1 after it. Perhaps none does, which is as
/// good: they take another slot. `probe-common/tests/slots.rs` tries out every order of these steps.
#[inline(always)]
pub(crate) fn take(slot: *mut Slot) -> bool {
    if is_held(slot) {
        return false;
    }
    // SAFETY: the counter is in this CPU's map value.
    let claims = unsafe { &raw mut (*slot).head.claims };
    // SAFETY: as above.
    unsafe { atomic::add(claims, 1) };
    // SAFETY: as above.
    if unsafe { claims.read_volatile() } == 1 {
        return true;
    }
    give_back(slot);
    false
}

#[inline(always)]
pub(crate) fn is_held(slot: *mut Slot) -> bool {
    // SAFETY: the counter is in this CPU's map value.
    unsafe { (&raw const (*slot).head.claims).read_volatile() != 0 }
}

/// Gives back what [`take`] took.
#[inline(always)]
pub(crate) fn give_back(slot: *mut Slot) {
    // Others may have claimed it in vain just now, so this is atomic, too.
    // SAFETY: the counter is in this CPU's map value.
    unsafe { atomic::add(&raw mut (*slot).head.claims, 1u64.wrapping_neg()) };
}
