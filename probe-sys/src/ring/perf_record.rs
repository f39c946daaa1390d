//! Perf records: `enum perf_event_type` in `include/uapi/linux/perf_event.h`.
//!
//! The contents of a ring are not trusted. If a payload is too long, the kernel writes a header whose size is 0 or
//! 8, and overwrites unread data.

use zerocopy::{FromBytes, Immutable, KnownLayout};

const PERF_RECORD_LOST: u32 = 2;
/// The type of a record with a sample.
pub const PERF_RECORD_SAMPLE: u32 = 9;
const PERF_RECORD_LOST_SAMPLES: u32 = 13;

/// `struct perf_event_header`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// `PERF_RECORD_*`: `type`.
    pub kind: u32,
    /// `PERF_RECORD_MISC_*`.
    pub misc: u16,
    size: u16,
}

impl Header {
    /// The bytes of a header.
    pub const LEN: usize = size_of::<Self>();

    /// Reads the header at the start of `available` bytes, and the length of its record, which includes the header.
    /// `None` if the length is not possible.
    #[inline]
    pub fn read(bytes: &[u8], available: usize) -> Option<(Self, usize)> {
        let (header, _) = Self::read_from_prefix(bytes).ok()?;
        let size = usize::from(header.size);
        let sound = size >= Self::LEN && size.is_multiple_of(8) && size <= available;
        sound.then_some((header, size))
    }
}

/// A perf record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfRecord<'r> {
    /// The raw data of an eBPF program, with the kernel's padding.
    Sample(&'r [u8]),
    /// The number of records that the kernel dropped before this one.
    Lost(u64),
    /// A record of another type.
    Other,
    /// A record that is too short for its type.
    Malformed,
}

impl<'r> PerfRecord<'r> {
    /// Reads a whole record, including its header, of an event that samples only `PERF_SAMPLE_RAW`.
    #[inline]
    pub fn read(header: Header, record: &'r [u8]) -> Self {
        let body = record.get(Header::LEN..).unwrap_or_default();
        let read = match header.kind {
            PERF_RECORD_SAMPLE => sample(body).map(Self::Sample),
            PERF_RECORD_LOST => word(body, 1).map(Self::Lost),
            PERF_RECORD_LOST_SAMPLES => word(body, 0).map(Self::Lost),
            _ => Some(Self::Other),
        };
        read.unwrap_or(Self::Malformed)
    }
}

/// `{ u32 size; char data[size]; }`
#[inline]
fn sample(body: &[u8]) -> Option<&[u8]> {
    let (size, data) = u32::read_from_prefix(body).ok()?;
    data.get(..size as usize)
}

/// The `n`th u64: `struct { u64 id; u64 lost; }` for LOST, `struct { u64 lost; }` for LOST_SAMPLES.
fn word(body: &[u8], n: usize) -> Option<u64> {
    let (word, _) = u64::read_from_prefix(body.get(n * 8..)?).ok()?;
    Some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, size: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(0u16.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn read(bytes: &[u8]) -> Option<PerfRecord<'_>> {
        let (header, size) = Header::read(bytes, bytes.len())?;
        Some(PerfRecord::read(header, &bytes[..size]))
    }

    #[test]
    fn samples_give_their_raw_data() {
        let body = [&4u32.to_ne_bytes()[..], b"abcd", &[0; 8]].concat();
        assert_eq!(read(&record(9, 24, &body)), Some(PerfRecord::Sample(b"abcd")));
    }

    #[test]
    fn a_raw_size_past_its_record_is_malformed() {
        for raw in [13u32, 1 << 16, u32::MAX] {
            let body = [&raw.to_ne_bytes()[..], &[0; 12]].concat();
            assert_eq!(read(&record(9, 24, &body)), Some(PerfRecord::Malformed), "{raw}");
        }
    }

    #[test]
    fn an_invalid_size_is_no_record() {
        for size in [0, 1, 7, 9, 15, 32, u16::MAX] {
            assert_eq!(read(&record(9, size, &[0; 16])), None, "{size}");
        }
    }

    #[test]
    fn losses_are_counted() {
        let body = [&1u64.to_ne_bytes()[..], &99u64.to_ne_bytes()].concat();
        assert_eq!(read(&record(2, 24, &body)), Some(PerfRecord::Lost(99)));
        assert_eq!(read(&record(13, 16, &99u64.to_ne_bytes())), Some(PerfRecord::Lost(99)));
        assert_eq!(read(&record(2, 8, &[])), Some(PerfRecord::Malformed));
        assert_eq!(read(&record(4, 8, &[])), Some(PerfRecord::Other));
    }
}
