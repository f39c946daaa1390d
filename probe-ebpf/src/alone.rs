//! Emitting records that are never packed.

use crate::clock;
use crate::output;
use crate::pipe::{EmitError, index_of};
use aya_ebpf::EbpfContext;
use core::mem::MaybeUninit;
use probe_common::{
    BlockPrefix, Record, RecordHeader,
    block::record_span,
    limits::{MAX_ALONE, RECORD_ALIGN},
};

/// A record on the stack, behind what the ring wants before it.
#[repr(C)]
struct Alone<T> {
    /// So that the header is 8-aligned, as it is in the ring, where the block begins at its prefix.
    align: u32,
    prefix: BlockPrefix,
    header: RecordHeader,
    record: T,
}

impl<T: Record> Alone<T> {
    const LEN: u32 = {
        let () = T::CAN_BE_EMITTED;
        assert!(size_of::<T>() <= MAX_ALONE, "the record exceeds limits::MAX_ALONE");
        size_of::<T>() as u32
    };

    /// Bytes from the prefix on. The kernel rounds a sample up, which is the record's padding.
    const BLOCK: usize = size_of::<BlockPrefix>() + size_of::<RecordHeader>() + size_of::<T>();

    const WORDS: u16 = (record_span(size_of::<T>()) / RECORD_ALIGN) as u16;
}

/// Sends a record at once, whatever the consumer wants of packing: for records that must not wait in a block, as those
/// that somebody else reads out of the ring, too.
///
/// It takes no slot, and so never fails because too many programs are in the middle of one, and costs less than an
/// [`emit`](crate::emit) that is not packed. It may overtake records that wait in the CPU's open block.
///
/// Only failures are tallied: what was sent is counted by who reads it. So the ledger knows of such a record once it
/// is consumed (or, of a flight recorder, found by a dump), and of those that were not, it knows the failed ones.
///
/// # Errors
///
/// If the kernel does not take the record (see [`FailureClass`](probe_common::tally::FailureClass) for the reasons).
/// The failure is tallied.
///
/// A type that is longer than [`MAX_ALONE`] does not compile.
#[inline(always)]
pub fn emit_alone<C: EbpfContext, T: Record + Copy>(ctx: &C, record: &T) -> Result<(), EmitError> {
    let mut alone = MaybeUninit::<Alone<T>>::uninit();
    let block = alone.as_mut_ptr();
    // SAFETY: it is ours, and whole after this from the prefix on, of which alone it is read.
    unsafe {
        (*block).prefix = BlockPrefix::alone(Alone::<T>::WORDS);
        (*block).record = *record;
        // The time last: what comes after it waits for the clock.
        let time = clock::now(clock::chosen());
        (*block).header = RecordHeader { kind: T::KIND, len: Alone::<T>::LEN, time };
    }
    // SAFETY: as above; the context is this program's.
    let errno = unsafe {
        let prefix = &raw const (*block).prefix;
        output::send_slotless(ctx.as_ptr(), prefix, Alone::<T>::BLOCK as u64, index_of::<T>())
    };
    EmitError::check(errno)
}
