//! Keeps records in maps until they are complete. A record has any length, but the values of a map have one, so that a
//! record is kept in parts.

use super::hit::{Frame, LONGEST_TAIL};
use aya_ebpf::{bindings::BPF_ANY, helpers::generated::bpf_probe_read_kernel};
use core::mem::offset_of;
use probe_common::RecordHeader;
use probe_tracer_common::call::PART;
use probe_tracer_common::counter::Counted;
use probe_tracer_common::fetch::FIELDS;
use probe_tracer_common::trace::ProbeHit;

pub(crate) type Part = [u8; PART];

pub(crate) const HEADER: usize = size_of::<RecordHeader>();

/// What precedes a hit's tail.
pub(crate) const HEAD: usize = HEADER + size_of::<ProbeHit>();

/// The most parts of a record.
pub(crate) const PARTS: usize = (HEAD + LONGEST_TAIL).div_ceil(PART);

pub(crate) const ANY: u64 = BPF_ANY as u64;

// The first part identifies the record; the counters at a call's entry end in it or in the second part. A reservation
// has room for all parts in full, and the counters at the return are behind them.
const _: () = assert!(
    HEAD <= PART
        && HEAD + 8 * FIELDS + size_of::<Counted>() <= 2 * PART
        && PARTS * PART <= HEADER + probe_common::limits::MAX_EMIT
        && PARTS * PART <= HEAD + offset_of!(Frame, returned)
);

/// Where the parts of one record are kept.
pub(crate) trait Parts {
    /// Keeps the `n`th part. Returns `false` if the map refuses it.
    fn insert(&self, n: usize, part: &Part, flags: u64) -> bool;

    fn get(&self, n: usize) -> Option<*const Part>;

    /// Returns `false` if there is no such part.
    fn remove(&self, n: usize) -> bool;
}

/// Keeps all parts of a record of `len` bytes, header included, but the first. Returns `false` if the map refuses one.
#[inline(always)]
pub(crate) fn keep_rest(parts: &impl Parts, record: *mut RecordHeader, len: usize) -> bool {
    for n in 1..PARTS {
        if n * PART >= len {
            break;
        }
        if !parts.insert(n, part(record, n), ANY) {
            return false;
        }
    }
    true
}

/// Copies all parts of such a record but the first. Returns `false` if one of them is not there any more. With `takes`,
/// the parts are removed.
#[inline(always)]
pub(crate) fn restore_rest(
    parts: &impl Parts,
    record: *mut RecordHeader,
    len: usize,
    takes: bool,
) -> bool {
    for n in 1..PARTS {
        if n * PART >= len {
            break;
        }
        let Some(kept) = parts.get(n) else { return false };
        // SAFETY: the value has the size of a part, and a reservation has room for all parts.
        unsafe { copy(record.cast::<Part>().wrapping_add(n).cast(), kept, 0, PART) };
        if takes && !parts.remove(n) {
            return false;
        }
    }
    true
}

/// Copies `len` bytes of a part, starting at byte `from`, to the same place relative to `to`.
///
/// # Safety
///
/// Source and destination have these bytes.
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut RecordHeader, part: *const Part, from: usize, len: usize) {
    let to = to.cast::<u8>().wrapping_add(from);
    let part = part.cast::<u8>().wrapping_add(from);
    // SAFETY: the caller's promise. The copy cannot fail.
    unsafe { bpf_probe_read_kernel(to.cast(), len as u32, part.cast()) };
}

/// The `n`th part of a record.
#[inline(always)]
pub(crate) fn part<'r>(record: *mut RecordHeader, n: usize) -> &'r Part {
    // SAFETY: a reservation has PARTS parts, and any bytes are valid in them.
    unsafe { &*record.cast::<Part>().wrapping_add(n) }
}
