//! Packing into a BPF ring buffer of the CPU: the pipe's blocks, through another map.
//!
//! A record takes the pipe's steps in their order: claim the slot, read the clock, append the record to the open
//! block, count it, give the slot back. There is only one slot, and a program that finds it held sends nothing.

use crate::{Framed, now, ring_of_this_cpu};
use aya_ebpf::{bindings::BPF_RB_NO_WAKEUP, macros::map, maps::PerCpuArray};
use probe_common::{
    BlockPrefix,
    limits::{MAX_PACKED, RECORD_ALIGN},
    slot::{KindCount, SlotHead},
};
use probe_ebpf::atomic;

#[map]
static PEER_SLOT: PerCpuArray<Slot> = PerCpuArray::with_max_entries(1, 0);

/// An entry of a ring buffer is 8-aligned. The word before the prefix is sent, too, so that the records are.
const LEAD: usize = size_of::<u32>() + size_of::<BlockPrefix>();

const ROOM: usize = MAX_PACKED as usize + size_of::<Framed<8>>();

#[repr(C, align(64))]
struct Slot {
    head: SlotHead,
    records: [u8; ROOM],
}

/// Appends a record to the block, and sends the block unless another one fits.
#[inline(always)]
pub(crate) fn append<const WORDS: usize>() {
    with_slot(|slot, time| {
        let fill = slot.head.fill as usize;
        // It never exceeds MAX_PACKED, but the verifier does not know that.
        let fill = if fill > MAX_PACKED as usize { 0 } else { fill };
        // SAFETY: after MAX_PACKED bytes of records there is room for one more, and it is 8-aligned.
        let record = unsafe { slot.records.as_mut_ptr().add(fill).cast::<Framed<WORDS>>() };
        // SAFETY: as above.
        unsafe { &mut *record }.fill(time);
        let first = &mut slot.head.kinds[0];
        *first = if *first == KindCount::NONE { KindCount::one(0) } else { first.and_one() };
        let fill = fill + size_of::<Framed<WORDS>>();
        if fill + size_of::<Framed<WORDS>>() <= MAX_PACKED as usize {
            slot.head.fill = fill as u32;
        } else {
            send(slot, fill);
        }
    });
}

/// Sends the open block.
#[inline(always)]
pub(crate) fn flush() {
    with_slot(|slot, _| {
        let fill = slot.head.fill as usize;
        if fill != 0 {
            send(slot, fill);
        }
    });
}

/// Takes the slot and the time, unless another program holds the slot.
#[inline(always)]
fn with_slot(run: impl FnOnce(&mut Slot, u64)) {
    let Some(slot) = PEER_SLOT.get_ptr_mut(0) else { return };
    // SAFETY: the counters are in this CPU's map value.
    let claims = unsafe { &raw mut (*slot).head.claims };
    // SAFETY: as above.
    let given_back = unsafe { &raw mut (*slot).head.given_back };
    // SAFETY: as above.
    unsafe { atomic::add(claims, 1) };
    let time = now();
    // SAFETY: as above.
    let before = unsafe { given_back.read_volatile() };
    // SAFETY: as above.
    let claimed = unsafe { claims.read_volatile() };
    if claimed.wrapping_sub(before) != 1 {
        // SAFETY: as above.
        unsafe { atomic::add(claims, 1u64.wrapping_neg()) };
        return;
    }
    // SAFETY: we hold the slot.
    run(unsafe { &mut *slot }, time);
    // SAFETY: only the holder writes this counter.
    unsafe { given_back.write_volatile(before.wrapping_add(1)) };
}

/// Sends the block with `fill` bytes of records, and empties it. User space counts what arrives.
#[inline(always)]
fn send(slot: &mut Slot, fill: usize) {
    // It never exceeds ROOM, but the verifier does not know that.
    let fill = if fill > ROOM { ROOM } else { fill };
    slot.head.prefix = BlockPrefix::new((fill / RECORD_ALIGN) as u16, 0, slot.head.seq);
    slot.head.seq = slot.head.seq.wrapping_add(1);
    slot.head.fill = 0;
    slot.head.kinds[0] = KindCount::NONE;
    let Some(ring) = ring_of_this_cpu() else { return };
    let start = slot.records.as_ptr().wrapping_sub(LEAD);
    // SAFETY: the end of the head comes before the records.
    let block = unsafe { core::slice::from_raw_parts(start, LEAD + fill) };
    let _ = ring.output_untyped::<[u8]>(block, BPF_RB_NO_WAKEUP.into());
}
