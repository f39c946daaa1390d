//! Which records a ring has room for.

use crate::error::PollError;
use crate::queue::consumer::Consumer;
use probe_common::BlockPrefix;
use probe_common::limits::MAX_PAYLOAD;
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
    use probe_common::limits::MAX_EMIT;
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
}
