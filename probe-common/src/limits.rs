//! The size limits of the wire, the kernel and the pipe.

/// The largest raw payload, in bytes, that one perf record can carry.
///
/// `perf_event_header::size` is a `u16`. Beyond this limit, the kernel reports success and writes a
/// record whose size has overflowed, so no block is ever longer.
pub const MAX_BLOCK: usize = 65_516;

/// The alignment, in bytes, of every record in a block.
pub const RECORD_ALIGN: usize = 8;

/// The largest payload of one record, in bytes, that [`MAX_BLOCK`] leaves room for: a multiple of
/// [`RECORD_ALIGN`].
pub const MAX_PAYLOAD: usize =
    (MAX_BLOCK - size_of::<crate::block::BlockPrefix>() - size_of::<crate::record::RecordHeader>())
        / RECORD_ALIGN
        * RECORD_ALIGN;

/// The largest payload of one record, in bytes, that the eBPF side has scratch memory for.
///
/// A per-CPU map value may not exceed 32 KiB (`PCPU_MIN_UNIT_SIZE`), and every possible CPU has one
/// for each level of [`DEPTH`].
pub const MAX_EMIT: usize = 8 << 10;

/// The longest block that is packed, in bytes of records.
///
/// A block is sent when another record like the last would exceed this limit, so a single longer record
/// can still exceed it. With 4, 8 and 16 KiB, a record with 64 bytes of payload cost its producer 57.0, 54.3 and
/// 53.0 ns; with one time per block, it cost 20.7, 16.6 and 15.6 ns (medians of 11 alternating measurements, one CPU,
/// kernel 6.18 on an AMD EPYC). The last nanosecond is not worth twice the memory on every possible CPU.
pub const MAX_PACKED: u32 = 8 << 10;

/// The number of programs that may hold a reservation on one CPU at the same time: one each for a
/// task, a soft interrupt, a hard interrupt and a non-maskable interrupt.
pub const DEPTH: u32 = 4;

/// The number of kinds that the toolkit reserves for itself: `0 .. BUILTIN_KINDS`.
pub const BUILTIN_KINDS: u32 = 32;

/// The first kind that belongs to users.
pub const FIRST_USER_KIND: u32 = 0x1000;

/// The number of kinds that users have: `FIRST_USER_KIND .. FIRST_USER_KIND + USER_KINDS`.
pub const USER_KINDS: u32 = 96;

/// The number of all kinds, which is the length of every table that a kind indexes.
pub const KINDS: u32 = BUILTIN_KINDS + USER_KINDS;

/// The number of banks in a tally: one for the records of the first slot that were sent, one for those of all other slots,
/// and one for the failures of each class.
pub const TALLY_BANKS: u32 = 2 + crate::tally::FailureClass::COUNT as u32;
