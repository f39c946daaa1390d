//! Emitting records.
//!
//! A program's stack has only 512 bytes, so a record is built in per-CPU scratch memory. It goes after
//! the records that already wait there: the *open block*. The block is sent when another record like
//! the last one would not fit, or when the consumer asks for it by running
//! [`flush`] on the CPU. Until a consumer asks for packing, each record is a block of its own.
//!
//! # Nesting
//!
//! Programs interrupt each other on one CPU: a raw tracepoint fires in an interrupt during a kprobe, a
//! perf event fires in a non-maskable interrupt, or another task preempts the program of a uprobe.
//! There are therefore [`DEPTH`] scratch slots, and a program takes the first one that nobody holds.
//! Only the lowest slot keeps a block open. A program that finds this slot held sends its record at
//! once, so the record may overtake those of the open block.

use crate::clock::{self, PER_BLOCK};
use crate::output::{self, control, open};
use crate::slot::{self, Slot, Taken};
use aya_ebpf::EbpfContext;
use core::{
    ffi::c_void,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};
use probe_common::{
    Record, RecordHeader,
    block::record_span,
    control::Flushed,
    limits::{DEPTH, MAX_EMIT, MAX_PACKED},
    record::assert_can_be_emitted,
    slot::{BLOCK_KINDS, KindCount},
    tally::FailureClass,
};

/// A record was not sent. It has already been tallied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmitError {
    class: FailureClass,
    errno: i64,
}

impl EmitError {
    /// Turns the helper's return value into a result.
    #[inline(always)]
    pub(crate) fn check(errno: i64) -> Result<(), Self> {
        if errno == 0 { Ok(()) } else { Err(Self { class: FailureClass::of(errno), errno }) }
    }

    /// Why the record was not sent.
    #[inline]
    pub const fn class(&self) -> FailureClass {
        self.class
    }

    /// The return value of `bpf_perf_event_output`: a negative errno, or 0 if the pipe refused the
    /// record without calling the kernel.
    #[inline]
    pub const fn errno(&self) -> i64 {
        self.errno
    }
}

/// Sends a record.
///
/// # Errors
///
/// If the kernel refuses the block that the record completes (see [`FailureClass`] for the reasons),
/// or more than [`DEPTH`] programs hold a reservation on this CPU. Failures are tallied, including
/// those of earlier records in the block.
///
/// A type longer than [`MAX_EMIT`] does not compile.
#[inline(always)]
pub fn emit<C: EbpfContext, T: Record + Copy>(ctx: &C, record: &T) -> Result<(), EmitError> {
    let mut reservation = reserve::<T>()?;
    *reservation = *record;
    reservation.commit(ctx)
}

/// Reserves memory for a record, to be built in place and then sent with
/// [`commit`](Reservation::commit). Its time is now, by the loader's [`Clock`](probe_common::control::Clock).
///
/// The record holds whatever the memory held before: write every field.
///
/// # Errors
///
/// If more than [`DEPTH`] programs hold a reservation on this CPU. The failure is tallied.
#[inline(always)]
pub fn reserve<T: Record>() -> Result<Reservation<T>, EmitError> {
    let () = const { assert_can_be_emitted::<T>() };
    let clock = clock::chosen();
    // Read the clock between the two halves of taking a slot. Reading the clock waits for everything before it, and
    // so does an atomic addition. What follows does not wait for the clock.
    let claim = slot::claim_first();
    let now = if clock == PER_BLOCK { 0 } else { clock::now(clock) };
    let Some((taken, depth)) = claim.and_then(slot::take_any) else {
        return Err(refuse::<T>(FailureClass::Nested));
    };
    let slot = taken.slot;
    // SAFETY: we hold the slot until the reservation is dropped.
    let (fill, header) = unsafe { end_of_block(slot) };
    // From memory, where the verifier knows nothing about it: it would otherwise check what follows for each depth.
    let place = header.cast::<u32>();
    // SAFETY: as above; the header is overwritten below.
    unsafe { place.write_volatile(depth) };
    // SAFETY: as above.
    let depth = unsafe { place.read_volatile() };
    let reservation = Reservation { taken, header, fill, depth, record: PhantomData };
    let time = if clock == PER_BLOCK { time_of_block(slot, fill) } else { now };
    // SAFETY: as above.
    unsafe {
        reservation.header.write(RecordHeader { kind: T::KIND, len: size_of::<T>() as u32, time });
    }
    Ok(reservation)
}

/// The record and the tail of a reservation, for a global function. The verifier checks such a function only
/// once, regardless of its callers, but lets it take only numbers.
///
/// # Safety
///
/// The caller of the function must hold the reservation of a `T` at this depth, and must not access its
/// memory meanwhile.
#[inline(always)]
pub unsafe fn reserved<'r, T: Record>(depth: u32) -> Option<(&'r mut T, &'r mut [u8])> {
    // SAFETY: the caller's promise.
    let header = unsafe { reserved_header(depth) }?;
    // SAFETY: the record follows its header, and the tail follows the record, as in reserve(). Both are valid
    // whatever bytes they hold.
    unsafe {
        let record = header.cast::<u8>().add(size_of::<RecordHeader>());
        let tail = record.add(size_of::<T>());
        let tail = core::slice::from_raw_parts_mut(tail, Reservation::<T>::MAX_TAIL);
        Some((&mut *record.cast::<T>(), tail))
    }
}

/// The header of a reservation, for a global function, as [`Reservation::as_mut_ptr`].
///
/// # Safety
///
/// As for [`reserved`].
#[inline(always)]
pub unsafe fn reserved_header(depth: u32) -> Option<*mut RecordHeader> {
    let slot = slot::get(depth)?;
    // SAFETY: the caller holds the slot.
    let (_, header) = unsafe { end_of_block(slot) };
    Some(header)
}

/// The reservation that a global function has [left](Reservation::leave) to its caller.
///
/// # Safety
///
/// The reservation must be of a `T`, at this depth, and nobody else may continue with it.
#[inline(always)]
pub unsafe fn left<T: Record>(depth: u32) -> Option<Reservation<T>> {
    let taken = slot::taken(slot::get(depth)?);
    // SAFETY: the caller holds the slot.
    let (fill, header) = unsafe { end_of_block(taken.slot) };
    Some(Reservation { taken, header, fill, depth, record: PhantomData })
}

/// The bytes of records in a slot's block, and the address of the next record's header.
///
/// # Safety
///
/// The caller must hold the slot.
#[inline(always)]
unsafe fn end_of_block(slot: *mut Slot) -> (u32, *mut RecordHeader) {
    // SAFETY: the caller's promise.
    let fill = unsafe { (*slot).head.fill };
    // It never exceeds MAX_PACKED, but the verifier does not know that.
    let fill = if fill > MAX_PACKED { 0 } else { fill };
    // SAFETY: after MAX_PACKED bytes of records, there is room for the longest record.
    let header = unsafe { (&raw mut (*slot).records).cast::<u8>().add(fill as usize) };
    (fill, header.cast())
}

/// The time of the block in a slot that we hold, with `fill` bytes of records in the block.
#[inline(always)]
fn time_of_block(slot: *mut Slot, fill: u32) -> u64 {
    if fill == 0 {
        // SAFETY: we hold the slot.
        unsafe { (*slot).head.time = clock::now(PER_BLOCK) };
    }
    // SAFETY: as above.
    unsafe { (*slot).head.time }
}

/// Memory for one record. Dropping it without [`commit`](Self::commit) sends nothing and counts
/// nothing.
#[must_use = "a reservation sends nothing until it is committed"]
pub struct Reservation<T: Record> {
    taken: Taken,
    /// The address of the record's header in the slot.
    header: *mut RecordHeader,
    /// The bytes of records before it.
    fill: u32,
    depth: u32,
    record: PhantomData<T>,
}

impl<T: Record> Reservation<T> {
    /// The longest tail, in bytes, that a record of this type can have.
    pub const MAX_TAIL: usize = MAX_EMIT - size_of::<T>();

    /// The [`MAX_TAIL`](Self::MAX_TAIL) bytes after the record, which hold whatever the memory held
    /// before. [`commit_with_tail`](Self::commit_with_tail) sends as many of them as you ask for.
    #[inline(always)]
    pub fn tail(&mut self) -> &mut [u8] {
        // SAFETY: we hold the slot, and bytes have no invalid values. size_of::<T>() is at most
        // MAX_EMIT, which reserve() has proved.
        unsafe {
            core::slice::from_raw_parts_mut(
                self.header.add(1).cast::<u8>().add(size_of::<T>()),
                Self::MAX_TAIL,
            )
        }
    }

    /// The record's header; the record and its tail follow it. Use the pointer to store the record
    /// elsewhere, and to continue with it in another reservation.
    #[inline(always)]
    pub fn as_mut_ptr(&mut self) -> *mut RecordHeader {
        self.header
    }

    /// Keeps the reservation for the caller of a global function, which gets it by its depth from [`left`].
    #[inline(always)]
    pub fn leave(self) -> u32 {
        let depth = self.depth;
        core::mem::forget(self);
        depth
    }

    /// The depth by which [`reserved`] finds the reservation.
    #[inline(always)]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Sends the record.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the block that the record completes. The failure is tallied.
    #[inline(always)]
    pub fn commit<C: EbpfContext>(self, ctx: &C) -> Result<(), EmitError> {
        self.append(ctx, record_span(size_of::<T>()) as u32)
    }

    /// Sends the record and `len` bytes of its tail.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the block that the record completes, or `len` exceeds
    /// [`MAX_TAIL`](Self::MAX_TAIL). The failure is tallied.
    #[inline(always)]
    pub fn commit_with_tail<C: EbpfContext>(self, ctx: &C, len: usize) -> Result<(), EmitError> {
        if len > Self::MAX_TAIL {
            return Err(refuse::<T>(FailureClass::TooBig));
        }
        let len = size_of::<T>() + len;
        // SAFETY: we hold the slot.
        unsafe { (*self.header).len = len as u32 };
        self.append(ctx, record_span(len) as u32)
    }

    /// Adds the record to the block, and sends the block if it is due.
    #[inline(always)]
    fn append<C: EbpfContext>(self, ctx: &C, span: u32) -> Result<(), EmitError> {
        let errno = if self.fill == 0 { self.begin(ctx, span) } else { self.go_on(ctx, span) };
        EmitError::check(errno)
    }

    /// Begins a block with the record if the consumer wants packing and another record like it would fit.
    /// Otherwise the record is a block of its own. Returns the errno of an output, or 0.
    #[inline(always)]
    fn begin<C: EbpfContext>(&self, ctx: &C, span: u32) -> i64 {
        let slot = self.taken.slot;
        let control = control();
        let limit = if self.depth == slot::FIRST { output::limit(control) } else { 0 };
        if 2 * span > limit {
            return output::send_one(
                ctx.as_ptr(),
                slot,
                span,
                self.depth,
                index_of::<T>(),
                control,
            );
        }
        self.count();
        // SAFETY: we hold the slot.
        unsafe { (*slot).head.fill = span };
        if let Some(control) = control {
            // SAFETY: as above.
            let seq = unsafe { (*slot).head.seq };
            // Not 0, which means that no block is open.
            open(control, (seq & 0xffff) + 1);
        }
        0
    }

    /// Adds the record to the block that earlier records began, and sends the block unless another record would
    /// fit. Returns the errno of the output, or 0.
    #[inline(always)]
    fn go_on<C: EbpfContext>(&self, ctx: &C, span: u32) -> i64 {
        let slot = self.taken.slot;
        let fill = self.fill + span;
        let is_counted = self.count();
        let control = control();
        if is_counted && fill + span <= output::limit(control) {
            // SAFETY: we hold the slot.
            unsafe { (*slot).head.fill = fill };
            return 0;
        }
        // A record that the block does not count is counted separately.
        let uncounted = if is_counted { KindCount::NONE } else { KindCount::one(index_of::<T>()) };
        output::send(ctx.as_ptr(), slot, fill, uncounted, control)
    }

    /// Counts the record in the block. Returns `false` if the block already has too many kinds, so that
    /// it must be sent.
    #[inline(always)]
    fn count(&self) -> bool {
        for at in 0..BLOCK_KINDS {
            // SAFETY: we hold the slot.
            let kind = unsafe { &mut (*self.taken.slot).head.kinds[at] };
            if kind.is_of(index_of::<T>()) {
                *kind = kind.and_one();
                return true;
            }
            if *kind == KindCount::NONE {
                *kind = KindCount::one(index_of::<T>());
                return true;
            }
        }
        false
    }
}

impl<T: Record> Deref for Reservation<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: we hold the slot. It is 8-aligned and long enough (reserve() has proved both), and a
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
        self.taken.give_back();
    }
}

/// The index of a type's kind in a tally.
pub(crate) const fn index_of<T: Record>() -> u32 {
    match T::KIND.index() {
        Some(index) => index,
        // `assert_can_be_emitted` has proved that the kind has an index.
        None => 0,
    }
}

/// Tallies a record that the pipe refuses.
#[inline(always)]
fn refuse<T: Record>(class: FailureClass) -> EmitError {
    output::refuse(index_of::<T>(), class);
    EmitError { class, errno: 0 }
}

/// Sends this CPU's open block, so that the next record reads again what the consumer wants. The
/// program that `program!` defines runs this. Returns a [`Flushed`].
#[inline(always)]
pub fn flush(ctx: *mut c_void) -> u32 {
    for depth in 1..DEPTH {
        if let Some(slot) = slot::get(depth)
            && slot::is_held(slot)
        {
            return Flushed::Held as u32;
        }
    }
    let Some(slot) = slot::get(slot::FIRST) else { return Flushed::Sent as u32 };
    let Some(taken) = slot::take(slot) else { return Flushed::Held as u32 };
    // SAFETY: we hold the slot.
    let fill = unsafe { (*slot).head.fill };
    let is_sent = fill == 0 || output::send_or_keep(ctx, slot, fill, control());
    taken.give_back();
    if is_sent { Flushed::Sent as u32 } else { Flushed::Kept as u32 }
}
