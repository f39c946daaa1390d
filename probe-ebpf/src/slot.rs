//! Scratch memory: where records are built, and which program builds one there now.
//!
//! Each CPU has [`DEPTH`] slots. One program holds a slot from [`Claim::on`] to [`Taken::give_back`]; a program
//! that runs in between takes another slot.

use crate::atomic;
use aya_ebpf::{macros::map, maps::PerCpuArray};
use core::mem::offset_of;
use probe_common::{
    BlockPrefix,
    block::record_span,
    limits::{DEPTH, MAX_EMIT, MAX_PACKED, RECORD_ALIGN, TALLY_BANKS},
    slot::SlotHead,
    tally::{OutputTally, TallyBank},
};

#[map]
static PIPE_SCRATCH: PerCpuArray<Slot> = PerCpuArray::with_max_entries(DEPTH, 0);

/// The depth of the only slot that keeps a block open.
pub(crate) const FIRST: u32 = 0;

/// The bytes of records that a slot has room for: a block up to its limit, and one record of maximum length.
pub(crate) const ROOM: usize = MAX_PACKED as usize + record_span(MAX_EMIT);

/// The block starts at the head's `prefix`, so records are 8-aligned here as they are in the ring.
/// Everything before the records is in one cache line.
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(crate) head: SlotHead,
    pub(crate) records: [u8; ROOM],
}

/// The offset of the block in the slot.
const PREFIX_AT: usize = offset_of!(Slot, head) + offset_of!(SlotHead, prefix);

const _: () = {
    assert!(ROOM.is_multiple_of(RECORD_ALIGN) && ROOM / RECORD_ALIGN <= u16::MAX as usize);
    assert!(offset_of!(Slot, records).is_multiple_of(RECORD_ALIGN));
    assert!(PREFIX_AT + size_of::<BlockPrefix>() == offset_of!(Slot, records));
    // All maps have this much for each possible CPU, and each further slot adds to it.
    let counts = size_of::<TallyBank>() * TALLY_BANKS as usize + size_of::<OutputTally>();
    assert!(size_of::<Slot>() + counts <= 32 << 10);
};

/// A slot of this CPU.
#[inline(always)]
pub(crate) fn get(depth: u32) -> Option<*mut Slot> {
    PIPE_SCRATCH.get_ptr_mut(depth)
}

/// A slot that we hold until we give it back.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) slot: *mut Slot,
    /// The number of times that the slot was given back before.
    given_back: u64,
}

/// Claims the first slot.
#[inline(always)]
pub(crate) fn claim_first() -> Option<Claim> {
    get(FIRST).map(Claim::on)
}

/// Takes the slot of the claim on the first slot or, if another program has claimed that one, the next slot that nobody
/// holds. Returns its depth as well.
#[inline(always)]
pub(crate) fn take_any(first: Claim) -> Option<(Taken, u32)> {
    if let Some(taken) = first.taken() {
        return Some((taken, FIRST));
    }
    for depth in FIRST + 1..DEPTH {
        if let Some(taken) = take(get(depth)?) {
            return Some((taken, depth));
        }
    }
    None
}

/// Takes a slot, unless somebody holds it.
#[inline(always)]
pub(crate) fn take(slot: *mut Slot) -> Option<Taken> {
    Claim::on(slot).taken()
}

/// A slot that is held already.
#[inline(always)]
pub(crate) fn taken(slot: *mut Slot) -> Taken {
    // Only the holder writes this counter.
    Taken { slot, given_back: given_back(slot) }
}

/// A claim on a slot: the first half of taking it.
///
/// Programs that interrupt each other give their slots back in reverse order. Programs that can be preempted
/// do not, and two of them can find the same slot free. So each program first claims the slot, and then looks
/// for other claims. Claiming is atomic, so at most one program finds no claim beside its own. If none does,
/// that is safe, too: they withdraw, and take other slots. A program that is only interrupted, by programs that
/// end before it continues, gets the slot that it found free. `probe-common/tests/slots.rs` tries every order
/// of these steps.
///
/// An atomic addition waits for the processor's store buffer, so there is only one for each record. Giving the
/// slot back needs none: only the holder writes that counter, and it knows the old value.
#[must_use = "until somebody looks whether it is the only one, nobody can take the slot"]
pub(crate) struct Claim {
    slot: *mut Slot,
}

impl Claim {
    #[inline(always)]
    pub(crate) fn on(slot: *mut Slot) -> Self {
        // SAFETY: the counter is in this CPU's map value.
        unsafe { atomic::add(&raw mut (*slot).head.claims, 1) };
        Self { slot }
    }

    /// The slot, if nobody else has claimed it. Otherwise the claim is withdrawn.
    #[inline(always)]
    pub(crate) fn taken(self) -> Option<Taken> {
        let Self { slot } = self;
        let given_back = given_back(slot);
        if claims(slot).wrapping_sub(given_back) == 1 {
            atomic::barrier();
            return Some(Taken { slot, given_back });
        }
        // SAFETY: as in on().
        unsafe { atomic::add(&raw mut (*slot).head.claims, 1u64.wrapping_neg()) };
        None
    }
}

/// Whether somebody holds or claims the slot. Reads `given_back` before `claims`.
#[inline(always)]
pub(crate) fn is_held(slot: *mut Slot) -> bool {
    let given_back = given_back(slot);
    claims(slot) != given_back
}

impl Taken {
    /// Gives the slot back, after which others can take it.
    #[inline(always)]
    pub(crate) fn give_back(self) {
        atomic::barrier();
        // SAFETY: the counter is in this CPU's map value, and we hold the slot.
        let counter = unsafe { &raw mut (*self.slot).head.given_back };
        // SAFETY: as above.
        unsafe { counter.write_volatile(self.given_back.wrapping_add(1)) };
    }
}

#[inline(always)]
fn claims(slot: *mut Slot) -> u64 {
    // SAFETY: the counter is in this CPU's map value.
    unsafe { (&raw const (*slot).head.claims).read_volatile() }
}

#[inline(always)]
fn given_back(slot: *mut Slot) -> u64 {
    // SAFETY: the counter is in this CPU's map value.
    unsafe { (&raw const (*slot).head.given_back).read_volatile() }
}
