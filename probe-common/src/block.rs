//! Blocks: the prefix, a writer, and an iterator over the records.

use crate::limits::{DEPTH, MAX_BLOCK, RECORD_ALIGN};
use crate::record::{Record, RecordHeader, RecordKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first four bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BlockPrefix {
    /// The length of the block's records, in 8-byte words. The kernel pads raw data with stale
    /// bytes; this field marks the end of ours.
    pub used: u16,
    /// The upper 3 bits hold the number of the CPU's scratch slot that the block comes from
    /// ([`DEPTH`]). The lower 13 bits count the blocks that this slot tried to send, and wrap. A gap
    /// shows where blocks are missing.
    pub seq: u16,
}

/// The number of low bits of [`BlockPrefix::seq`] that hold the count.
const SEQ_BITS: u32 = 13;

const _: () = assert!(DEPTH <= 1 << (u16::BITS - SEQ_BITS), "every slot has a number");

impl BlockPrefix {
    /// The prefix of a slot's `count`th block, which holds `used` words of records.
    #[inline]
    pub const fn new(used: u16, slot: u32, count: u32) -> Self {
        Self { used, seq: (slot << SEQ_BITS | count & ((1 << SEQ_BITS) - 1)) as u16 }
    }
}

/// The bytes that a record with `len` bytes of payload occupies in a block: header, payload and padding.
///
/// # Panics
///
/// In builds that check for overflow, if the sum exceeds `usize::MAX`. No payload in memory is as long.
#[inline]
pub const fn record_span(len: usize) -> usize {
    size_of::<RecordHeader>() + len.next_multiple_of(RECORD_ALIGN)
}

/// The same for any `len`. No record claims more than `u32::MAX` bytes of payload.
#[inline]
const fn span_of_claimed(len: usize) -> usize {
    record_span(if len > u32::MAX as usize { u32::MAX as usize } else { len })
}

/// Writes records into a block, one after another.
///
/// ```
/// use probe_common::{BlockWriter, Records, RecordKind};
///
/// let mut bytes = [0; 256];
/// let mut writer = BlockWriter::new(&mut bytes, 7).unwrap();
/// assert!(writer.push(RecordKind::user(0), 1_000, b"one"));
/// assert!(writer.push(RecordKind::user(1), 2_000, b"another"));
/// let block = writer.finish();
///
/// let records: Vec<_> = Records::new(block)?.collect::<Result<_, _>>()?;
/// assert_eq!(records[1].payload, b"another");
/// # Ok::<(), probe_common::BlockError>(())
/// ```
#[derive(Debug)]
pub struct BlockWriter<'b> {
    bytes: &'b mut [u8],
    end: usize,
}

impl<'b> BlockWriter<'b> {
    /// Starts a block in `bytes`, and uses at most [`MAX_BLOCK`] of them. Returns `None` if not even
    /// the prefix fits. `seq` is that of [`BlockPrefix`]: slot and count.
    pub fn new(bytes: &'b mut [u8], seq: u16) -> Option<Self> {
        let room = bytes.len().min(MAX_BLOCK);
        let bytes = &mut bytes[..room];
        BlockPrefix { used: 0, seq }.write_to_prefix(bytes).ok()?;
        Some(Self { bytes, end: size_of::<BlockPrefix>() })
    }

    /// Appends a record. Returns `false` and writes nothing if the record does not fit.
    #[must_use = "a record that does not fit is not in the block"]
    pub fn push(&mut self, kind: RecordKind, time: u64, payload: &[u8]) -> bool {
        let (Ok(len), Some(room)) = (
            u32::try_from(payload.len()),
            self.bytes[self.end..].get_mut(..record_span(payload.len())),
        ) else {
            return false;
        };
        let (header, body) = room.split_at_mut(size_of::<RecordHeader>());
        let (data, padding) = body.split_at_mut(payload.len());
        header.copy_from_slice(RecordHeader { kind, len, time }.as_bytes());
        data.copy_from_slice(payload);
        padding.fill(0);
        self.end += record_span(payload.len());
        true
    }

    /// Completes the prefix and returns the block.
    pub fn finish(self) -> &'b [u8] {
        let words = (self.end - size_of::<BlockPrefix>()) / RECORD_ALIGN;
        // A block of MAX_BLOCK bytes has far fewer words than a u16 can count.
        self.bytes[..size_of::<u16>()].copy_from_slice(&(words as u16).to_ne_bytes());
        &self.bytes[..self.end]
    }
}

/// A record taken from a block, with its payload not yet read as a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'b> {
    /// The layout of the payload.
    pub kind: RecordKind,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub time: u64,
    /// The payload, without padding.
    pub payload: &'b [u8],
}

impl<'b> RawRecord<'b> {
    /// Reads the payload as a `T` in place, and returns it with the tail that follows it.
    ///
    /// Returns `None` if the payload is too short for a `T`, or not aligned for it. In a block that
    /// lies in a ring, it is always aligned. Does not check `kind`.
    #[inline]
    pub fn read<T: Record>(&self) -> Option<(&'b T, &'b [u8])> {
        T::ref_from_prefix(self.payload).ok()
    }
}

/// Why a block is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockError {
    /// The block is too short for its prefix.
    NoPrefix {
        /// The length of the block, in bytes.
        bytes: usize,
    },
    /// The prefix claims more than the block holds.
    Overlong {
        /// The bytes of records that the prefix claims.
        claimed: usize,
        /// The bytes that the block holds after the prefix.
        bytes: usize,
    },
    /// A record claims more than is left of the block.
    RecordOverlong {
        /// The offset of the record's header, in bytes from the first record.
        at: usize,
        /// The bytes that the record claims, including its header and padding.
        claimed: usize,
        /// The bytes that are left of the block.
        bytes: usize,
    },
}

impl core::fmt::Display for BlockError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoPrefix { bytes } => write!(f, "a block of {bytes} bytes has no prefix"),
            Self::Overlong { claimed, bytes } => {
                write!(f, "a block claims {claimed} bytes of records and has {bytes}")
            }
            Self::RecordOverlong { at, claimed, bytes } => {
                write!(f, "a record at byte {at} claims {claimed} bytes and {bytes} are left")
            }
        }
    }
}

impl core::error::Error for BlockError {}

/// Iterates over the records of a block. Ends after the first error, since nothing marks the start
/// of the record after a malformed one. The default has no records.
#[derive(Clone, Debug, Default)]
pub struct Records<'b> {
    /// The records that are left.
    rest: &'b [u8],
    /// The bytes of all records in the block.
    total: usize,
    seq: u16,
}

impl<'b> Records<'b> {
    /// Reads the prefix of a block, which is the raw data of a perf record, padding included.
    ///
    /// # Errors
    ///
    /// If the prefix is missing, or claims more than the block holds.
    #[inline]
    pub fn new(block: &'b [u8]) -> Result<Self, BlockError> {
        let Ok((prefix, rest)) = BlockPrefix::read_from_prefix(block) else {
            return Err(BlockError::NoPrefix { bytes: block.len() });
        };
        let claimed = usize::from(prefix.used) * RECORD_ALIGN;
        match rest.get(..claimed) {
            Some(rest) => Ok(Self { rest, total: claimed, seq: prefix.seq }),
            None => Err(BlockError::Overlong { claimed, bytes: rest.len() }),
        }
    }

    /// The scratch slot of its CPU that the block comes from. It is 0 unless the program interrupted
    /// another one in the middle of a record.
    #[inline]
    pub const fn slot(&self) -> u16 {
        self.seq >> SEQ_BITS
    }

    /// The block's sequence number among the blocks of the same CPU and [`slot`](Self::slot): 13 bits,
    /// wrapping.
    #[inline]
    pub const fn seq(&self) -> u16 {
        self.seq & ((1 << SEQ_BITS) - 1)
    }

    /// The bytes from the first record to the next one. [`resume`](Self::resume) takes this value.
    #[inline]
    pub const fn offset(&self) -> usize {
        self.total - self.remaining()
    }

    /// The bytes from the next record to the end of the last one.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Continues at `offset`, a value that [`offset`](Self::offset) returned for the same block. Past
    /// the end, no records are left.
    #[inline]
    #[must_use]
    pub fn resume(mut self, offset: usize) -> Self {
        let skipped = offset.saturating_sub(self.offset()).min(self.rest.len());
        self.rest = &self.rest[skipped..];
        self
    }

    /// The kind of the next record, or `None` if nothing is left or the kind is cut off.
    #[inline]
    pub fn next_kind(&self) -> Option<RecordKind> {
        let (kind, _) = RecordKind::read_from_prefix(self.rest).ok()?;
        Some(kind)
    }

    /// The kind of the next record and the length that its payload claims, or `None` without a whole header.
    #[inline]
    pub fn next_shape(&self) -> Option<(RecordKind, usize)> {
        let (header, _) = RecordHeader::read_from_prefix(self.rest).ok()?;
        Some((header.kind, header.len as usize))
    }

    /// The kind of the record after the next one, or `None` if there is none or its kind is cut off.
    #[inline]
    pub fn kind_after_next(&self) -> Option<RecordKind> {
        let (_, len) = self.next_shape()?;
        let (kind, _) = RecordKind::read_from_prefix(self.rest.get(record_span(len)..)?).ok()?;
        Some(kind)
    }

    /// The next record, if it is of this kind. A header that is cut off matches every kind and is an error.
    #[inline(always)]
    pub fn next_of(&mut self, kind: RecordKind) -> Option<Result<RawRecord<'b>, BlockError>> {
        match RecordHeader::read_from_prefix(self.rest) {
            Ok((header, body)) if header.kind == kind => Some(self.take(header, body)),
            Ok(_) => None,
            Err(_) => self.next(),
        }
    }

    /// The next records that are alike: all of this kind, with payloads of `len` bytes. They stay in the block until
    /// [`skip_alike`](Self::skip_alike) takes as many as you have used.
    ///
    /// Finding a record in this way does not wait for the length of the record before it, as the iterator itself
    /// does.
    #[inline(always)]
    pub fn alike(
        &self,
        kind: RecordKind,
        len: usize,
    ) -> impl Iterator<Item = RawRecord<'b>> + use<'b> {
        self.rest.chunks_exact(span_of_claimed(len)).map_while(move |record| {
            let (header, body) = RecordHeader::read_from_prefix(record).ok()?;
            let alike = header.kind == kind && header.len as usize == len;
            alike.then(|| RawRecord { kind, time: header.time, payload: &body[..len] })
        })
    }

    /// Skips the first `count` records that are [alike](Self::alike), or all that are left if there are fewer.
    #[inline(always)]
    pub fn skip_alike(&mut self, len: usize, count: usize) {
        let skipped = count.saturating_mul(span_of_claimed(len)).min(self.rest.len());
        self.rest = &self.rest[skipped..];
    }

    /// Takes the next record, given its header and all bytes after the header.
    #[inline(always)]
    fn take(&mut self, header: RecordHeader, body: &'b [u8]) -> Result<RawRecord<'b>, BlockError> {
        // Adding 7 to a u32 does not overflow: eBPF and the hosts that it runs on are 64-bit.
        let len = header.len as usize;
        match body.split_at_checked((len + (RECORD_ALIGN - 1)) & !(RECORD_ALIGN - 1)) {
            Some((padded, rest)) => {
                self.rest = rest;
                let payload = &padded[..len];
                Ok(RawRecord { kind: header.kind, time: header.time, payload })
            }
            None => Err(self.malformed(record_span(len))),
        }
    }

    /// Whether no records are left.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline(always)]
    fn malformed(&mut self, claimed: usize) -> BlockError {
        let error = overlong(self.offset(), claimed, self.rest.len());
        self.rest = &[];
        error
    }
}

/// A separate function that takes no reference to the records, so that a loop keeps them in registers.
#[cold]
#[inline(never)]
const fn overlong(at: usize, claimed: usize, bytes: usize) -> BlockError {
    BlockError::RecordOverlong { at, claimed, bytes }
}

impl<'b> Iterator for Records<'b> {
    type Item = Result<RawRecord<'b>, BlockError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let Ok((header, body)) = RecordHeader::read_from_prefix(self.rest) else {
            if self.rest.is_empty() {
                return None;
            }
            return Some(Err(self.malformed(size_of::<RecordHeader>())));
        };
        Some(self.take(header, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn block(records: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = [0xaa; 512];
        let mut writer = BlockWriter::new(&mut bytes, 9).unwrap();
        for (kind, payload) in records {
            assert!(writer.push(RecordKind(*kind), 5, payload));
        }
        writer.finish().to_vec()
    }

    #[test]
    fn what_is_written_is_read() {
        let written: [(u32, &[u8]); 4] =
            [(1, b""), (2, b"12345678"), (0x1000, b"x"), (3, &[7; 99])];
        let mut bytes = block(&written);
        // The kernel's padding.
        bytes.extend([0xee; 4]);
        let records = Records::new(&bytes).unwrap();
        assert_eq!((records.slot(), records.seq()), (0, 9));
        let read: Vec<_> = records.map(|r| r.map(|r| (r.kind.0, r.payload)).unwrap()).collect();
        assert_eq!(read, written);
    }

    #[test]
    fn a_prefix_tells_slot_and_sequence() {
        for (slot, count) in [(0, 0), (3, 0x1fff), (1, 0x2000), (2, u32::MAX)] {
            let prefix = BlockPrefix::new(0, slot, count);
            let records = Records::new(prefix.as_bytes()).unwrap();
            let read = (u32::from(records.slot()), u32::from(records.seq()));
            assert_eq!(read, (slot, count & 0x1fff));
        }
    }

    #[test]
    fn a_full_block_takes_no_more() {
        const ONE: usize = size_of::<BlockPrefix>() + record_span(8);
        let mut bytes = [0; ONE];
        let mut writer = BlockWriter::new(&mut bytes, 0).unwrap();
        assert!(!writer.push(RecordKind(1), 0, &[0; 9]));
        assert!(writer.push(RecordKind(1), 0, &[0; 8]));
        assert!(!writer.push(RecordKind(1), 0, &[]));
        assert_eq!(writer.finish().len(), ONE);
        assert!(BlockWriter::new(&mut [0; 3], 0).is_none());
    }

    #[test]
    fn resuming_continues_where_it_was_left() {
        let bytes = block(&[(1, b"a"), (2, b"b"), (3, b"c")]);
        let mut records = Records::new(&bytes).unwrap();
        records.next();
        let rest = Records::new(&bytes).unwrap().resume(records.offset());
        assert_eq!(rest.map(|r| r.unwrap().kind.0).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(Records::new(&bytes).unwrap().resume(usize::MAX).count(), 0);
    }

    #[test]
    fn alike_are_those_of_one_kind_and_length_that_come_next() {
        let written: [(u32, &[u8]); 6] =
            [(1, b"a"), (1, b"b"), (2, b"c"), (2, b"dd"), (2, b"e"), (2, b"f")];
        let bytes = block(&written);
        let mut records = Records::new(&bytes).unwrap();
        let alike = |records: &Records<'_>, kind, len| {
            records
                .alike(RecordKind(kind), len)
                .flat_map(|r| r.payload.to_vec())
                .collect::<Vec<_>>()
        };
        assert_eq!(alike(&records, 1, 1), b"ab", "the third is of another kind");
        assert_eq!(alike(&records, 2, 1), b"", "the first is of another kind");
        records.skip_alike(1, 2);
        assert_eq!(records.remaining(), 4 * record_span(1));
        assert_eq!(
            alike(&records, 2, 1),
            b"c",
            "the second is longer, and takes as much of the block"
        );
        records.skip_alike(1, 2);
        assert_eq!(alike(&records, 2, 1), b"ef");
        assert_eq!(alike(&records, 2, 9), b"");
        assert_eq!(records.next().unwrap().unwrap().payload, b"e");
        assert_eq!(alike(&records, 2, usize::MAX), b"", "no record is as long");
        records.skip_alike(usize::MAX, usize::MAX);
        assert!(records.is_empty(), "there are not so many");
    }

    #[test]
    fn what_comes_next_is_seen_before_it_is_taken() {
        let bytes = block(&[(1, b"a"), (1, b"longer than one word"), (2, b"c")]);
        let mut records = Records::new(&bytes).unwrap();
        let mut seen = Vec::new();
        loop {
            let shape = records.next_shape().map(|(kind, len)| (kind.0, len));
            seen.push((shape, records.kind_after_next().map(|kind| kind.0)));
            if records.next().is_none() {
                break;
            }
        }
        assert_eq!(
            seen,
            [(Some((1, 1)), Some(1)), (Some((1, 20)), Some(2)), (Some((2, 1)), None), (None, None)]
        );
    }

    #[test]
    fn no_bytes_at_all_make_the_iterator_panic_or_run_for_ever() {
        let sound = block(&[(1, b"abc"), (2, b"defghijkl")]);
        for at in 0..sound.len() {
            for value in [0, 1, 7, 8, 0x7f, 0xff] {
                let mut bytes = sound.clone();
                bytes[at] = value;
                for end in 0..=bytes.len() {
                    if let Ok(records) = Records::new(&bytes[..end]) {
                        assert!(records.count() <= 8);
                    }
                }
            }
        }
    }

    #[test]
    fn errors_say_where() {
        assert_eq!(Records::new(&[0; 3]).unwrap_err(), BlockError::NoPrefix { bytes: 3 });
        let mut bytes = block(&[(1, b"abc")]);
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(Records::new(cut).unwrap_err(), BlockError::Overlong { claimed: 24, bytes: 23 });
        bytes[8] = 200;
        let mut records = Records::new(&bytes).unwrap();
        let malformed = BlockError::RecordOverlong { at: 0, claimed: 216, bytes: 24 };
        assert_eq!(records.next_shape(), Some((RecordKind(1), 200)));
        assert_eq!(records.kind_after_next(), None);
        assert_eq!(records.next(), Some(Err(malformed)));
        assert_eq!(records.next(), None);
    }
}
