//! A ring whose records are borrowed one by one.

use crate::record::RecordError;
use probe_sys::ring::RingMemory;
use probe_sys::ring::page::{RingPages, Scratch};
use probe_sys::ring::perf_record::Header;

/// A ring, and how far it has been read.
#[derive(Debug)]
pub(super) struct RecordRing<R = RingPages> {
    memory: R,
    scratch: Scratch,
    /// The position up to which records have been taken.
    at: u64,
    /// The end of this slice: the head when it began.
    head: u64,
    /// The position up to which space has been returned to the kernel.
    tail: u64,
}

impl RecordRing {
    /// The pages, for the AUX area.
    pub(super) fn pages_mut(&mut self) -> &mut RingPages {
        &mut self.memory
    }
}

/// Where a record that was taken lies in the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordSpan {
    pub(super) header: Header,
    at: u64,
    len: usize,
}

impl<R: RingMemory> RecordRing<R> {
    /// Creates a reader of a ring that has not been read.
    pub(super) fn new(memory: R) -> Self {
        Self { memory, scratch: Scratch::default(), at: 0, head: 0, tail: 0 }
    }

    /// Begins a slice of records: all that are in the ring now.
    pub(super) fn begin_slice(&mut self) {
        self.head = self.memory.head();
    }

    /// Whether everything in the ring has been taken.
    pub(super) fn is_read(&self) -> bool {
        self.at == self.memory.head()
    }

    /// Takes the next record of this slice, whose bytes stay valid until the next call. `None` at the end of the slice.
    pub(super) fn take(&mut self) -> Option<Result<RecordSpan, RecordError>> {
        let geometry = self.memory.geometry();
        if self.at == self.head {
            self.return_space();
            return None;
        }
        if self.at.wrapping_sub(self.tail) >= geometry.size() as u64 / 4 {
            self.return_space();
        }
        let read = geometry.available(self.at, self.head).and_then(|available| {
            let bytes = self.memory.bytes(self.at, Header::LEN.min(available), &mut self.scratch);
            Header::read(bytes, available)
        });
        let Some((header, len)) = read else {
            let available = self.head.wrapping_sub(self.at) as usize;
            // The next record cannot be found.
            self.at = self.head;
            return Some(Err(RecordError::Header { available }));
        };
        let span = RecordSpan { header, at: self.at, len };
        self.at = self.at.wrapping_add(len as u64);
        Some(Ok(span))
    }

    /// The bytes of the record that was just taken.
    pub(super) fn bytes(&mut self, span: RecordSpan) -> &[u8] {
        self.memory.bytes(span.at, span.len, &mut self.scratch)
    }

    /// Returns everything that has been read to the kernel.
    fn return_space(&mut self) {
        if self.tail != self.at {
            self.tail = self.at;
            self.memory.publish_tail(self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Body, Layout, Record};
    use probe_sys::ring::memory::MemoryRing;

    /// A record of type 13, `PERF_RECORD_LOST_SAMPLES`.
    fn lost(count: u64) -> Vec<u8> {
        let header = [&13u32.to_ne_bytes()[..], &[0; 2], &16u16.to_ne_bytes()].concat();
        [header, count.to_ne_bytes().to_vec()].concat()
    }

    fn next(ring: &mut RecordRing<MemoryRing>) -> Option<Result<u64, RecordError>> {
        let record = ring.take()?.and_then(|span| {
            Record::with_header(span.header, ring.bytes(span), &Layout::default())
        });
        Some(record.map(|record| match record.body {
            Body::LostSamples(count) => count,
            other => panic!("{other:?}"),
        }))
    }

    #[test]
    fn records_keep_their_order_across_wraps() {
        let mut ring = RecordRing::new(MemoryRing::new(64, 0));
        let (mut written, mut read) = (0, 0);
        for slice in 1..200 {
            // One to three records, so that some wrap.
            for _ in 0..1 + slice % 3 {
                assert!(ring.memory.write(&lost(written)), "{written}");
                written += 1;
            }
            ring.begin_slice();
            while let Some(count) = next(&mut ring) {
                assert_eq!(count, Ok(read));
                read += 1;
            }
            assert_eq!((read, ring.memory.tail), (written, ring.memory.head));
        }
    }

    #[test]
    fn a_borrowed_record_is_not_returned_to_the_kernel() {
        let mut ring = RecordRing::new(MemoryRing::new(64, 0));
        for count in 0..4 {
            assert!(ring.memory.write(&lost(count)));
        }
        ring.begin_slice();
        for count in 0..4u64 {
            assert_eq!(next(&mut ring), Some(Ok(count)));
            assert!(ring.memory.tail <= 16 * count, "{count}: {}", ring.memory.tail);
        }
        assert_eq!(next(&mut ring), None);
        assert_eq!(ring.memory.tail, 64);
    }

    #[test]
    fn malformed_records_are_errors_and_reading_continues() {
        for size in [0u16, 4, 12, 48] {
            let mut ring = RecordRing::new(MemoryRing::new(64, 0));
            let mut bytes = lost(1);
            bytes[6..8].copy_from_slice(&size.to_ne_bytes());
            assert!(ring.memory.write(&lost(0)) && ring.memory.write(&bytes));
            ring.begin_slice();
            assert_eq!(next(&mut ring), Some(Ok(0)));
            assert_eq!(next(&mut ring), Some(Err(RecordError::Header { available: 16 })));
            assert_eq!(next(&mut ring), None);
            assert!(ring.memory.write(&lost(2)));
            ring.begin_slice();
            assert_eq!(next(&mut ring), Some(Ok(2)));
        }
    }
}
