//! The sizes that the wire, the kernel and the pipe allow.

/// Largest raw payload, in bytes, that one perf record can carry.
///
/// `perf_event_header::size` is a `u16`. Past this, the kernel reports success and writes a record
/// whose size has overflowed, so no block is ever longer.
pub const MAX_BLOCK: usize = 65_516;

/// Alignment, in bytes, of every record in a block.
pub const RECORD_ALIGN: usize = 8;

/// Largest payload of one record, in bytes, that [`MAX_BLOCK`] leaves room for: a multiple of
/// [`RECORD_ALIGN`].
pub const MAX_PAYLOAD: usize =
    (MAX_BLOCK - size_of::<crate::block::BlockPrefix>() - size_of::<crate::record::RecordHeader>())
        / RECORD_ALIGN
        * RECORD_ALIGN;

/// Largest payload of one record, in bytes, that the eBPF side has scratch memory for.
///
/// A per-CPU map value may not exceed 32 KiB (`PCPU_MIN_UNIT_SIZE`), and there is one for each
/// level of [`DEPTH`] on each possible CPU.
pub const MAX_EMIT: usize = 8 << 10;

/// Largest payload of a record that is emitted alone, in bytes: it is built on the program's stack, which has 512 for
/// everything (`MAX_BPF_STACK`).
pub const MAX_ALONE: usize = 256;

/// Longest block that is packed, in bytes of records.
///
/// A block goes out when one more record like the last would exceed it, so that a single longer
/// record can. With 4, 8 and 16 KiB, a record with 64 bytes of payload cost its producer 57.0, 54.3 and 53.0 ns,
/// and with one time for each block 20.7, 16.6 and 15.6 (medians of 11 measurements in turns, one CPU, kernel
/// 6.18 on an AMD EPYC). The last nanosecond is not worth twice the memory, which every possible CPU has.
pub const MAX_PACKED: u32 = 8 << 10;

/// How many programs may hold a reservation on one CPU at the same time: one each for a task, a
/// soft interrupt, a hard interrupt and a non-maskable interrupt.
pub const DEPTH: u32 = 4;

/// How many kinds the toolkit keeps for itself: `0 .. BUILTIN_KINDS`.
pub const BUILTIN_KINDS: u32 = 64;

/// The first kind that belongs to users.
pub const FIRST_USER_KIND: u32 = 0x1000;

/// How many kinds users have: `FIRST_USER_KIND .. FIRST_USER_KIND + USER_KINDS`.
pub const USER_KINDS: u32 = 192;

/// How many kinds there are, of both sorts: the length of every table that a kind indexes.
pub const KINDS: u32 = BUILTIN_KINDS + USER_KINDS;

/// How many banks a tally has: one for each level of [`DEPTH`], and one for what had no slot.
pub const TALLY_BANKS: u32 = DEPTH + 1;
