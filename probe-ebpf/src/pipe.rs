//! The pipe: the only caller of `bpf_perf_event_output`.
//!
//! A record is built in per-CPU scratch memory, since a program's stack has 512 bytes, behind the
//! records that wait there already: the *open block*. The block goes out when one more record like
//! the last would not fit, when the consumer sleeps, or when the consumer asks for it by running
//! [`flush`] on the CPU. Until a consumer asks for packing, each record is a block of its own.
//!
//! # Nesting
//!
//! Programs interrupt each other on one CPU (a raw tracepoint in an interrupt that came during a
//! kprobe, for one), so there are [`DEPTH`] scratch slots, and a program takes the one that nobody
//! below it holds. Only the lowest slot keeps a block open. What a program emits that interrupted
//! another goes out at once, and so it may overtake records of that open block.
//!
//! Programs that can be *preempted* while they hold a reservation do not nest like that: attached
//! to uprobes, since kernel 5.15, two of them can come to share a slot. Everything else, kprobes and
//! tracepoints included, runs without preemption or nests.

use crate::atomic;
use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_F_CURRENT_CPU, BPF_F_MMAPABLE},
    helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_perf_event_output},
    macros::map,
    maps::{Array, PerCpuArray, PerfEventByteArray},
};
use core::{
    ffi::c_void,
    marker::PhantomData,
    mem::offset_of,
    ops::{Deref, DerefMut},
};
use probe_common::{
    BlockPrefix, Record, RecordHeader,
    block::record_span,
    control::{CONTROL_CPUS, CpuControl},
    limits::{DEPTH, KINDS, MAX_EMIT, MAX_PACKED, RECORD_ALIGN, TALLY_BANKS},
    tally::{FailureClass, KindTally},
};

/// Blocks go here; user space puts one perf event for each CPU into it.
#[map]
static PIPE_EVENTS: PerfEventByteArray = PerfEventByteArray::new(0);

/// Blocks go here while the consumer sleeps.
#[map]
static PIPE_EAGER: PerfEventByteArray = PerfEventByteArray::new(0);

/// What was attempted and what failed: a bank of [`KINDS`] entries for each level of nesting, so
/// that no counter is shared with a program that interrupts, and one for those who found no slot.
#[map]
static PIPE_TALLY: PerCpuArray<KindTally> = PerCpuArray::with_max_entries(KINDS * TALLY_BANKS, 0);

/// Memory that records are built in, one slot for each level of nesting.
#[map]
static PIPE_SCRATCH: PerCpuArray<Slot> = PerCpuArray::with_max_entries(DEPTH, 0);

/// The CPU's own state, in one entry.
#[map]
static PIPE_STATE: PerCpuArray<State> = PerCpuArray::with_max_entries(1, 0);

/// What the consumer asks for.
#[map]
static PIPE_CONTROL: Array<CpuControl> = Array::with_max_entries(CONTROL_CPUS, BPF_F_MMAPABLE);

/// Bytes of records that a slot has room for: a block up to its limit, and one longest record.
const ROOM: usize = MAX_PACKED as usize + record_span(MAX_EMIT);

/// The block starts at `prefix`, so that records are 8-aligned here as they are in the ring.
#[repr(C, align(8))]
struct Slot {
    /// Bytes of records in the block.
    fill: u32,
    prefix: BlockPrefix,
    records: [u8; ROOM],
    /// How many records of which kinds are in the block.
    kinds: [KindCount; BLOCK_KINDS],
}

/// How many different kinds a block may have before it is sent: with each one more, a failure takes
/// longer to tally.
const BLOCK_KINDS: usize = 4;

#[derive(Clone, Copy)]
#[repr(C)]
struct KindCount {
    /// Its index, which says nothing where `count` is 0.
    index: u16,
    count: u16,
}

#[repr(C)]
struct State {
    /// How many slots are held.
    depth: u32,
    /// The next block's sequence number.
    seq: u32,
    /// The consumer wanted the open block while a program held it.
    flush_wanted: u32,
    reserved: u32,
}

/// A record was not sent. It has been tallied already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmitError {
    class: FailureClass,
    errno: i64,
}

impl EmitError {
    /// Why.
    #[inline]
    pub const fn class(&self) -> FailureClass {
        self.class
    }

    /// What `bpf_perf_event_output` returned: a negative errno, or 0 where the pipe refused before
    /// it asked the kernel.
    #[inline]
    pub const fn errno(&self) -> i64 {
        self.errno
    }
}

/// Sends a record.
///
/// # Errors
///
/// If the kernel does not take the block that the record completes (see [`FailureClass`] for the
/// reasons), or more than [`DEPTH`] programs hold a reservation on this CPU. Failures are tallied,
/// those of earlier records in the block as well.
///
/// A type that is longer than [`MAX_EMIT`] does not compile.
#[inline(always)]
pub fn emit<C: EbpfContext, T: Record + Copy>(ctx: &C, record: &T) -> Result<(), EmitError> {
    let mut reservation = reserve::<T>()?;
    *reservation = *record;
    reservation.commit(ctx)
}

/// Reserves memory for a record, to be built in place and then sent with
/// [`commit`](Reservation::commit). Its time is now.
///
/// The record holds whatever was there before: write every field.
///
/// # Errors
///
/// If more than [`DEPTH`] programs hold a reservation on this CPU. The failure is tallied.
#[inline(always)]
pub fn reserve<T: Record>() -> Result<Reservation<T>, EmitError> {
    const {
        let () = T::FITS;
        assert!(size_of::<T>() <= MAX_EMIT, "the record exceeds limits::MAX_EMIT");
    }
    let Some(state) = PIPE_STATE.get_ptr_mut(0) else {
        return Err(refuse::<T>(FailureClass::Nested));
    };
    // SAFETY: `state` is this CPU's map value. An interrupt between this read and the write below
    // takes the same slot and has given it back when we go on.
    let depth = unsafe { (*state).depth };
    if depth >= DEPTH {
        return Err(refuse::<T>(FailureClass::Nested));
    }
    let Some(slot) = PIPE_SCRATCH.get_ptr_mut(depth) else {
        return Err(refuse::<T>(FailureClass::Nested));
    };
    // SAFETY: as above.
    unsafe { (&raw mut (*state).depth).write_volatile(depth + 1) };
    // SAFETY: the slot is ours until the reservation is dropped.
    let fill = unsafe { (*slot).fill };
    // It never is, but the verifier does not know.
    let fill = if fill > MAX_PACKED { 0 } else { fill };
    // SAFETY: MAX_PACKED bytes into the records there is room for the longest one.
    let header = unsafe { (&raw mut (*slot).records).cast::<u8>().add(fill as usize) };
    let reservation =
        Reservation { slot, state, header: header.cast(), fill, depth, record: PhantomData };
    // SAFETY: as above; the helper has no preconditions.
    unsafe {
        reservation.header.write(RecordHeader {
            kind: T::KIND,
            len: size_of::<T>() as u32,
            time: bpf_ktime_get_ns(),
        });
    }
    Ok(reservation)
}

/// Memory for one record. Dropped without [`commit`](Self::commit), it sends nothing and counts
/// nothing.
#[must_use = "a reservation sends nothing until it is committed"]
pub struct Reservation<T: Record> {
    slot: *mut Slot,
    state: *mut State,
    /// Where the record goes in the slot.
    header: *mut RecordHeader,
    /// Bytes of records before it.
    fill: u32,
    depth: u32,
    record: PhantomData<T>,
}

impl<T: Record> Reservation<T> {
    /// The longest tail, in bytes, that a record of this type can have.
    pub const MAX_TAIL: usize = MAX_EMIT - size_of::<T>();

    /// The bytes after the record: [`MAX_TAIL`](Self::MAX_TAIL) of them, holding whatever was there
    /// before. [`commit_with_tail`](Self::commit_with_tail) sends as many as were written.
    #[inline(always)]
    pub fn tail(&mut self) -> &mut [u8] {
        // SAFETY: the slot is ours, and bytes have no invalid values. size_of::<T>() is at most
        // MAX_EMIT, which reserve() has proved.
        unsafe {
            core::slice::from_raw_parts_mut(
                self.header.add(1).cast::<u8>().add(size_of::<T>()),
                Self::MAX_TAIL,
            )
        }
    }

    /// Sends the record.
    ///
    /// # Errors
    ///
    /// If the kernel does not take the block that it completes. The failure is tallied.
    #[inline(always)]
    pub fn commit<C: EbpfContext>(self, ctx: &C) -> Result<(), EmitError> {
        self.append(ctx, record_span(size_of::<T>()) as u32)
    }

    /// Sends the record and `len` bytes of its tail.
    ///
    /// # Errors
    ///
    /// If the kernel does not take the block that it completes, or `len` exceeds
    /// [`MAX_TAIL`](Self::MAX_TAIL). The failure is tallied.
    #[inline(always)]
    pub fn commit_with_tail<C: EbpfContext>(self, ctx: &C, len: usize) -> Result<(), EmitError> {
        if len > Self::MAX_TAIL {
            return Err(refuse::<T>(FailureClass::TooBig));
        }
        let len = size_of::<T>() + len;
        // SAFETY: the slot is ours.
        unsafe { (*self.header).len = len as u32 };
        self.append(ctx, record_span(len) as u32)
    }

    /// Counts the record, makes it part of the block, and sends the block if it is time to.
    #[inline(always)]
    fn append<C: EbpfContext>(self, ctx: &C, span: u32) -> Result<(), EmitError> {
        let has_room_for_kind = self.count_attempt();
        let fill = self.fill + span;
        // SAFETY: the slot is ours.
        unsafe { (&raw mut (*self.slot).fill).write_volatile(fill) };
        let control = control();
        // Without a word of the consumer: it is awake, and wants no packing.
        let (mut asleep, mut limit) = (0, 0);
        if let Some(control) = control {
            // SAFETY: the map value is there for as long as the map is; the consumer writes it,
            // too, so each field is read once.
            asleep = unsafe { (&raw const (*control).asleep).read_volatile() };
            // SAFETY: as above.
            limit = unsafe { (&raw const (*control).limit).read_volatile() };
            if asleep != 0 {
                // One wakeup is enough for one sleep.
                // SAFETY: as above.
                unsafe { (&raw mut (*control).asleep).write_volatile(0) };
            }
        }
        let next = fill + span;
        let mut result = Ok(());
        if asleep != 0 || self.depth != 0 || next > limit || next > MAX_PACKED || !has_room_for_kind
        {
            result = self.output(ctx, fill, asleep != 0, has_room_for_kind);
            if let Some(control) = control
                && self.depth == 0
            {
                open(control, 0);
            }
        } else if let Some(control) = control
            && self.fill == 0
        {
            // SAFETY: the state is this CPU's map value.
            let seq = unsafe { (*self.state).seq };
            // Not 0, which is none.
            open(control, (seq & 0xffff) + 1);
        }
        let (state, slot, depth) = (self.state, self.slot, self.depth);
        // Gives the slot back.
        drop(self);
        if depth == 0 {
            // The consumer may have asked for the block since we looked whether it sleeps, and does
            // sleep now.
            // SAFETY: the state is this CPU's map value; an interrupt may write it.
            let wanted = unsafe { (&raw const (*state).flush_wanted).read_volatile() };
            if wanted != 0 {
                flush_slot(ctx.as_ptr(), state, slot, true);
            }
        }
        result
    }

    /// Counts the record as attempted, and as one of the block's. `false` if the block has too many
    /// kinds already: it is to be sent, then.
    #[inline(always)]
    fn count_attempt(&self) -> bool {
        let Some(index) = (const { T::KIND.index() }) else { return false };
        let depth = self.depth & (DEPTH - 1);
        if let Some(tally) = PIPE_TALLY.get_ptr_mut(depth * KINDS + index) {
            // SAFETY: the map value is this CPU's, and at this depth nobody else counts.
            unsafe { (*tally).attempted += 1 };
        }
        for at in 0..BLOCK_KINDS {
            // SAFETY: the slot is ours.
            let entry = unsafe { &mut (*self.slot).kinds[at] };
            if entry.count == 0 {
                *entry = KindCount { index: index as u16, count: 1 };
                return true;
            }
            if entry.index == index as u16 {
                entry.count += 1;
                return true;
            }
        }
        false
    }

    #[inline(always)]
    fn output<C: EbpfContext>(
        &self,
        ctx: &C,
        fill: u32,
        eager: bool,
        has_room_for_kind: bool,
    ) -> Result<(), EmitError> {
        match output(ctx.as_ptr(), self.state, self.slot, fill, self.depth, eager) {
            0 => Ok(()),
            errno => {
                let class = FailureClass::of(errno);
                if !has_room_for_kind && let Some(index) = const { T::KIND.index() } {
                    // The block does not know of it.
                    fail(index, self.depth, class, 1);
                }
                Err(EmitError { class, errno })
            }
        }
    }
}

const _: () = {
    assert!(DEPTH.is_power_of_two());
    assert!(ROOM.is_multiple_of(RECORD_ALIGN) && ROOM / RECORD_ALIGN <= u16::MAX as usize);
    assert!(offset_of!(Slot, records).is_multiple_of(RECORD_ALIGN));
    assert!(offset_of!(Slot, prefix) + size_of::<BlockPrefix>() == offset_of!(Slot, records));
    // PCPU_MIN_UNIT_SIZE
    assert!(size_of::<Slot>() <= 32 << 10);
};

impl<T: Record> Deref for Reservation<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the slot is ours, 8-aligned, long enough (reserve() has proved both), and a
        // record is valid whatever bytes it holds.
        unsafe { &*self.header.add(1).cast() }
    }
}

impl<T: Record> DerefMut for Reservation<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in deref().
        unsafe { &mut *self.header.add(1).cast() }
    }
}

impl<T: Record> Drop for Reservation<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the state is this CPU's map value; whoever took a slot after us has given it
        // back.
        unsafe { (&raw mut (*self.state).depth).write_volatile(self.depth) };
    }
}

/// Sends this CPU's open block: what the program that `program!` defines does.
#[inline(always)]
pub fn flush(ctx: *mut c_void) -> u32 {
    let Some(state) = PIPE_STATE.get_ptr_mut(0) else { return 0 };
    // SAFETY: the state is this CPU's map value.
    if unsafe { (&raw const (*state).depth).read_volatile() } != 0 {
        // We interrupted a program that holds the block. It sees this when it gives it back.
        // SAFETY: as above.
        unsafe { (&raw mut (*state).flush_wanted).write_volatile(1) };
        return 0;
    }
    if let Some(slot) = PIPE_SCRATCH.get_ptr_mut(0) {
        flush_slot(ctx, state, slot, false);
    }
    0
}

/// Sends the block of the lowest slot, which nobody holds.
#[inline(always)]
fn flush_slot(ctx: *mut c_void, state: *mut State, slot: *mut Slot, eager: bool) {
    // SAFETY: the state is this CPU's map value. Whoever interrupts us now takes and gives back the
    // slot as if we were not there, unless we hold it.
    unsafe { (&raw mut (*state).depth).write_volatile(1) };
    // SAFETY: as above.
    unsafe { (&raw mut (*state).flush_wanted).write_volatile(0) };
    // SAFETY: the slot is ours.
    let fill = unsafe { (*slot).fill };
    // An empty block wakes as well: the consumer may be asleep over what went out lazily.
    if fill != 0 || eager {
        // A failure is in the tally.
        let _ = output(ctx, state, slot, fill, 0, eager);
    }
    if let Some(control) = control() {
        open(control, 0);
    }
    // SAFETY: as above.
    unsafe { (&raw mut (*state).depth).write_volatile(0) };
}

/// This CPU's entry of the page that the consumer shares.
#[inline(always)]
fn control() -> Option<*mut CpuControl> {
    // SAFETY: the helper has no preconditions.
    PIPE_CONTROL.get_ptr_mut(unsafe { bpf_get_smp_processor_id() })
}

/// Tells the consumer which block is open.
#[inline(always)]
fn open(control: *mut CpuControl, block: u32) {
    // SAFETY: the map value is there for as long as the map is, and only this CPU writes the field.
    unsafe { (&raw mut (*control).open).write_volatile(block) };
}

/// Sends the slot's block with `fill` bytes of records, and empties it, whatever comes of it.
/// Returns the helper's errno.
#[inline(always)]
fn output(
    ctx: *mut c_void,
    state: *mut State,
    slot: *mut Slot,
    fill: u32,
    depth: u32,
    eager: bool,
) -> i64 {
    // It never is more, but the verifier does not know.
    let fill = if fill as usize > ROOM { ROOM as u32 } else { fill };
    // SAFETY: the state is this CPU's map value, and the slot is ours.
    let seq = unsafe { (*state).seq };
    // SAFETY: as above.
    unsafe { (*state).seq = seq.wrapping_add(1) };
    let used = (fill / RECORD_ALIGN as u32) as u16;
    // SAFETY: as above.
    unsafe { (*slot).prefix = BlockPrefix { used, seq: seq as u16 } };
    // SAFETY: as above.
    unsafe { (&raw mut (*slot).fill).write_volatile(0) };
    let map = if eager { &raw const PIPE_EAGER } else { &raw const PIPE_EVENTS };
    // SAFETY: ctx is the context that the kernel gave this program; the block is inside the slot,
    // which the verifier proves once more.
    let errno = unsafe {
        bpf_perf_event_output(
            ctx,
            map.cast_mut().cast(),
            BPF_F_CURRENT_CPU,
            (&raw mut (*slot).prefix).cast(),
            u64::from(fill) + size_of::<BlockPrefix>() as u64,
        )
    };
    if errno != 0 {
        fail_block(slot, depth, FailureClass::of(errno));
    }
    // SAFETY: the slot is ours.
    unsafe { (*slot).kinds = [KindCount { index: 0, count: 0 }; BLOCK_KINDS] };
    errno
}

/// Tallies the records of a block as failed.
#[inline(never)]
fn fail_block(slot: *mut Slot, depth: u32, class: FailureClass) {
    for at in 0..BLOCK_KINDS {
        // SAFETY: the slot is the caller's.
        let KindCount { index, count } = unsafe { (*slot).kinds[at] };
        if count != 0 {
            fail(u32::from(index), depth, class, u64::from(count));
        }
    }
}

/// Tallies a record that is not even in a block.
#[inline(always)]
fn refuse<T: Record>(class: FailureClass) -> EmitError {
    let error = EmitError { class, errno: 0 };
    let Some(index) = (const { T::KIND.index() }) else { return error };
    if let Some(tally) = PIPE_TALLY.get_ptr_mut(DEPTH * KINDS + index) {
        // SAFETY: the counter is in this CPU's map value. Refusals can interrupt each other, so it
        // is added to atomically.
        unsafe { atomic::add(&raw mut (*tally).attempted, 1) };
        // SAFETY: as above.
        unsafe { atomic::add(&raw mut (*tally).failed[class as usize], 1) };
    }
    error
}

/// Tallies `count` records as failed.
#[inline(always)]
fn fail(index: u32, depth: u32, class: FailureClass, count: u64) {
    let depth = depth & (DEPTH - 1);
    if let Some(tally) = PIPE_TALLY.get_ptr_mut(depth * KINDS + index) {
        // The compiler knows that a class is below COUNT and would drop the mask; the verifier does
        // not, and needs it.
        let class = core::hint::black_box(class as usize) & (FailureClass::COUNT - 1);
        // SAFETY: the counter is within this CPU's map value.
        let counter = unsafe { (&raw mut (*tally).failed).cast::<u64>().add(class) };
        // SAFETY: as above, and at this depth nobody else counts.
        unsafe { *counter += count };
    }
}

const _: () = assert!(FailureClass::COUNT.is_power_of_two());
