//! Which records and blocks a ring has room for.

use crate::error::PollError;
use crate::queue::consumer::Consumer;
use probe_common::BlockPrefix;
use probe_common::limits::{MAX_EMIT, MAX_PACKED, MAX_PAYLOAD};
use probe_common::record_span;
use probe_sys::ring::page::rounded_up;
use probe_sys::ring::perf_record::Header;

/// The least size of a ring, in bytes, that has room for a record with `len` bytes of payload.
fn ring_for(len: usize) -> Option<usize> {
    // The kernel puts the size of the raw data before a block.
    let before = Header::LEN + size_of::<u32>() + size_of::<BlockPrefix>();
    // The kernel leaves at least one byte of a ring free.
    rounded_up(before + record_span(len) + 1)
}

/// The length up to which records are packed into a block, in bytes: a block that takes more than a fraction of the ring would
/// often find no room. A record of any length may end it, so nothing is packed where an empty ring has no room for both.
pub(crate) fn longest_packed(bytes_per_cpu: usize) -> u32 {
    let part = MAX_PACKED.min(u32::try_from(bytes_per_cpu / 8).unwrap_or(u32::MAX));
    let has_room = ring_for(MAX_EMIT + part as usize).is_some_and(|needed| needed <= bytes_per_cpu);
    if has_room { part } else { 0 }
}

/// Checks that rings of this size have room for the records that a consumer expects. Otherwise each of them would be lost,
/// and wake nobody.
pub(crate) fn check<C: Consumer>(bytes_per_cpu: usize, consumer: &C) -> Result<(), PollError> {
    let len = consumer.longest();
    match ring_for(len.min(MAX_PAYLOAD)) {
        Some(needed) if needed > bytes_per_cpu => {
            Err(PollError::no_room(len, bytes_per_cpu, needed))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_sys::memory::page_size;

    #[test]
    fn a_ring_has_room_for_a_record_with_what_is_around_it() {
        let page = page_size();
        // A perf header of 8 bytes, a length of 4, a prefix of 4, and a record header of 16; the ring is never full.
        let most = page - 32 - 8;
        assert_eq!(ring_for(0), Some(page));
        assert_eq!(ring_for(most), Some(page));
        assert_eq!(ring_for(most + 1), Some(2 * page));
        assert_eq!(ring_for(MAX_EMIT), Some(page.max(16 << 10)));
        assert!(ring_for(MAX_PAYLOAD).is_some());
    }

    #[test]
    fn a_record_that_fits_alone_fits_behind_others() {
        for ring in (12..=30).map(|bits| 1_usize << bits) {
            let packed = longest_packed(ring) as usize;
            for len in [0, 64, 4000, MAX_EMIT] {
                let is_alone = ring_for(len).is_some_and(|needed| needed <= ring);
                // What comes before is followed by a header of its own.
                let is_behind = ring_for(packed + len).is_some_and(|needed| needed <= ring);
                assert!(!is_alone || is_behind, "{ring} {packed} {len}");
            }
        }
        assert_eq!([8, 16, 64, 256].map(|kib| longest_packed(kib << 10)), [0, 2048, 8192, 8192]);
    }
}
