//! The pipe: the only caller of `bpf_perf_event_output`.
//!
//! A record is built in per-CPU scratch memory, since a program's stack has 512 bytes. Programs
//! interrupt each other on one CPU (a raw tracepoint in an interrupt that came during a kprobe, for
//! one), so there are [`DEPTH`] scratch slots, and a program takes the one that nobody below it
//! holds.
//!
//! Programs that can be *preempted* while they hold a reservation do not nest like that: attached
//! to uprobes, since kernel 5.15, two of them can come to share a slot. Everything else, kprobes and
//! tracepoints included, runs without preemption or nests.

use crate::atomic;
use aya_ebpf::{
    EbpfContext,
    bindings::BPF_F_CURRENT_CPU,
    helpers::{bpf_ktime_get_ns, bpf_perf_event_output},
    macros::map,
    maps::{PerCpuArray, PerfEventByteArray},
};
use core::{
    marker::PhantomData,
    mem::offset_of,
    ops::{Deref, DerefMut},
};
use probe_common::{
    BlockPrefix, Record, RecordHeader,
    block::{Single, record_span, single_span},
    limits::{DEPTH, KINDS, MAX_EMIT, RECORD_ALIGN},
    tally::{FailureClass, KindTally},
};

/// Blocks go here; user space puts one perf event for each CPU into it.
#[map]
static PIPE_EVENTS: PerfEventByteArray = PerfEventByteArray::new(0);

/// What was sent and what failed, by [`RecordKind::index`](probe_common::RecordKind::index).
#[map]
static PIPE_TALLY: PerCpuArray<KindTally> = PerCpuArray::with_max_entries(KINDS, 0);

/// Memory that records are built in, one slot for each level of nesting.
#[map]
static PIPE_SCRATCH: PerCpuArray<Slot> = PerCpuArray::with_max_entries(DEPTH, 0);

/// The CPU's own state, in one entry.
#[map]
static PIPE_STATE: PerCpuArray<State> = PerCpuArray::with_max_entries(1, 0);

#[repr(C, align(8))]
struct Slot {
    head: Single,
    payload: [u8; MAX_EMIT],
}

#[repr(C)]
struct State {
    /// How many slots are held.
    depth: u32,
    /// The next block's sequence number.
    seq: u32,
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
/// If the kernel does not take it (see [`FailureClass`] for the reasons), or more than [`DEPTH`]
/// programs hold a reservation on this CPU. The failure is tallied.
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
    let Some(state) = PIPE_STATE.get_ptr_mut(0) else { return Err(refuse::<T>()) };
    // SAFETY: `state` is this CPU's map value. An interrupt between this read and the write below
    // takes the same slot and has given it back when we go on.
    let depth = unsafe { (*state).depth };
    if depth >= DEPTH {
        return Err(refuse::<T>());
    }
    let Some(slot) = PIPE_SCRATCH.get_ptr_mut(depth) else { return Err(refuse::<T>()) };
    // SAFETY: as above.
    unsafe { (*state).depth = depth + 1 };
    let reservation = Reservation { slot, state, depth, record: PhantomData };
    // SAFETY: the slot is ours until the reservation is dropped.
    unsafe {
        (*slot).head.header = RecordHeader {
            kind: T::KIND,
            len: size_of::<T>() as u32,
            // SAFETY: the helper has no preconditions.
            time: bpf_ktime_get_ns(),
        }
    };
    Ok(reservation)
}

/// Memory for one record. Dropped without [`commit`](Self::commit), it sends nothing and counts
/// nothing.
#[must_use = "a reservation sends nothing until it is committed"]
pub struct Reservation<T: Record> {
    slot: *mut Slot,
    state: *mut State,
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
            let payload = &raw mut (*self.slot).payload;
            core::slice::from_raw_parts_mut(
                payload.cast::<u8>().add(size_of::<T>()),
                Self::MAX_TAIL,
            )
        }
    }

    /// Sends the record.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it. The failure is tallied.
    #[inline(always)]
    pub fn commit<C: EbpfContext>(self, ctx: &C) -> Result<(), EmitError> {
        self.output(ctx, single_span(size_of::<T>()))
    }

    /// Sends the record and `len` bytes of its tail.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it, or `len` exceeds [`MAX_TAIL`](Self::MAX_TAIL). The failure
    /// is tallied.
    #[inline(always)]
    pub fn commit_with_tail<C: EbpfContext>(self, ctx: &C, len: usize) -> Result<(), EmitError> {
        if len > Self::MAX_TAIL {
            return Err(fail::<T>(FailureClass::TooBig, 0));
        }
        let len = size_of::<T>() + len;
        // SAFETY: the slot is ours.
        unsafe { (*self.slot).head.header.len = len as u32 };
        self.output(ctx, single_span(len))
    }

    /// Sends the slot's block of `block_len` bytes and counts it.
    #[inline(always)]
    fn output<C: EbpfContext>(self, ctx: &C, block_len: usize) -> Result<(), EmitError> {
        let words = (block_len - size_of::<BlockPrefix>()) / RECORD_ALIGN;
        // SAFETY: the state is this CPU's map value, and the slot is ours.
        let seq = unsafe { (*self.state).seq };
        // SAFETY: as above.
        unsafe { (*self.state).seq = seq.wrapping_add(1) };
        // SAFETY: as above.
        unsafe { (*self.slot).head.prefix = BlockPrefix { used: words as u16, seq: seq as u16 } };
        // SAFETY: ctx is the context that the kernel gave this program; the block starts inside the
        // slot and ends inside it, which the verifier proves once more.
        let errno = unsafe {
            bpf_perf_event_output(
                ctx.as_ptr(),
                (&raw const PIPE_EVENTS).cast_mut().cast(),
                BPF_F_CURRENT_CPU,
                self.slot.cast::<u8>().add(Single::BLOCK_AT).cast(),
                block_len as u64,
            )
        };
        if errno == 0 {
            count::<T>(offset_of!(KindTally, sent) / size_of::<u64>());
            Ok(())
        } else {
            Err(fail::<T>(FailureClass::of(errno), errno))
        }
    }
}

const _: () = assert!(
    size_of::<Slot>() == Single::PAYLOAD_AT + MAX_EMIT
        && Single::BLOCK_AT + single_span(MAX_EMIT) == size_of::<Slot>()
        && record_span(MAX_EMIT) <= (u16::MAX as usize) * RECORD_ALIGN
);

impl<T: Record> Deref for Reservation<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the slot is ours, 8-aligned, long enough (reserve() has proved both), and a
        // record is valid whatever bytes it holds.
        unsafe { &*(&raw const (*self.slot).payload).cast() }
    }
}

impl<T: Record> DerefMut for Reservation<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in deref().
        unsafe { &mut *(&raw mut (*self.slot).payload).cast() }
    }
}

impl<T: Record> Drop for Reservation<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the state is this CPU's map value; whoever took a slot after us has given it
        // back.
        unsafe { (*self.state).depth = self.depth };
    }
}

/// All slots are taken.
#[inline(always)]
fn refuse<T: Record>() -> EmitError {
    fail::<T>(FailureClass::Nested, 0)
}

#[inline(always)]
fn fail<T: Record>(class: FailureClass, errno: i64) -> EmitError {
    // The compiler knows that a class is below COUNT and would drop the mask; the verifier does
    // not, and needs it.
    let class_index = core::hint::black_box(class as usize) & (FailureClass::COUNT - 1);
    count::<T>(offset_of!(KindTally, failed) / size_of::<u64>() + class_index);
    EmitError { class, errno }
}

const _: () = assert!(FailureClass::COUNT.is_power_of_two());

/// Adds one to a counter of this CPU's tally for `T`, given by its place in [`KindTally`].
#[inline(always)]
fn count<T: Record>(counter: usize) {
    let Some(index) = (const { T::KIND.index() }) else { return };
    if let Some(tally) = PIPE_TALLY.get_ptr_mut(index) {
        // SAFETY: the counter is within this CPU's map value, which is 8-aligned.
        let counter = unsafe { tally.cast::<u64>().add(counter) };
        // SAFETY: as above, and whoever counts there does it like this.
        unsafe { atomic::add(counter, 1) };
    }
}
