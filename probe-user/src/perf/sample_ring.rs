//! A ring whose records are lent one by one.

use super::record::RecordError;
use crate::ring::RingMemory;
use crate::ring::page::{RingPages, Scratch};
use crate::ring::perf_record::Header;

/// A ring, and how far it was read.
#[derive(Debug)]
pub(super) struct SampleRing<R = RingPages> {
    memory: R,
    scratch: Scratch,
    /// Up to where everything was read.
    at: u64,
    /// Up to where there is something to read in this turn.
    head: u64,
    /// Up to where it was given back.
    tail: u64,
}

impl SampleRing {
    /// Its pages, for what they have besides the ring.
    pub(super) fn pages_mut(&mut self) -> &mut RingPages {
        &mut self.memory
    }
}

/// A record of a ring, which was taken out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) header: Header,
    at: u64,
    len: usize,
}

impl<R: RingMemory> SampleRing<R> {
    /// A ring that nobody has read from.
    pub(super) fn new(memory: R) -> Self {
        Self { memory, scratch: Scratch::new(), at: 0, head: 0, tail: 0 }
    }

    /// Looks how much there is to read.
    pub(super) fn begin_turn(&mut self) {
        self.head = self.memory.head();
    }

    /// Whether all that is in it now was read.
    pub(super) fn is_read(&self) -> bool {
        self.at == self.memory.head()
    }

    /// Takes the next record of this turn out: it is there until the next one is taken. `None` at its end.
    pub(super) fn take(&mut self) -> Option<Result<Place, RecordError>> {
        let geometry = self.memory.geometry();
        if self.at == self.head {
            self.give_back();
            return None;
        }
        if self.at.wrapping_sub(self.tail) >= geometry.size() as u64 / 4 {
            self.give_back();
        }
        let read = geometry.available(self.at, self.head).and_then(|available| {
            let bytes = self.memory.bytes(self.at, Header::LEN.min(available), &mut self.scratch);
            Header::read(bytes, available)
        });
        let Some((header, len)) = read else {
            let available = self.head.wrapping_sub(self.at) as usize;
            // Nothing tells where the next record is.
            self.at = self.head;
            return Some(Err(RecordError::Header { available }));
        };
        let place = Place { header, at: self.at, len };
        self.at = self.at.wrapping_add(len as u64);
        Some(Ok(place))
    }

    /// The bytes of a record that was just taken out.
    pub(super) fn bytes(&mut self, place: Place) -> &[u8] {
        self.memory.bytes(place.at, place.len, &mut self.scratch)
    }

    /// Gives everything back that was read.
    fn give_back(&mut self) {
        if self.tail != self.at {
            self.tail = self.at;
            self.memory.publish_tail(self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::{Body, Layout, Record};
    use crate::ring::memory::MemoryRing;

    /// A record of type 13: so many samples were lost.
    fn lost(count: u64) -> Vec<u8> {
        let header = [&13u32.to_ne_bytes()[..], &[0; 2], &16u16.to_ne_bytes()].concat();
        [header, count.to_ne_bytes().to_vec()].concat()
    }

    fn next(ring: &mut SampleRing<MemoryRing>) -> Option<Result<u64, RecordError>> {
        let place = match ring.take()? {
            Ok(place) => place,
            Err(error) => return Some(Err(error)),
        };
        let read = Record::with_header(place.header, ring.bytes(place), &Layout::default());
        Some(read.map(|record| match record.body {
            Body::LostSamples(count) => count,
            other => panic!("{other:?}"),
        }))
    }

    #[test]
    fn records_come_in_their_order_round_after_round() {
        let mut ring = SampleRing::new(MemoryRing::new(64, 0));
        let (mut written, mut read) = (0, 0);
        for turn in 1..200 {
            // One to three records, so that some wrap.
            for _ in 0..1 + turn % 3 {
                assert!(ring.memory.write(&lost(written)), "{written}");
                written += 1;
            }
            ring.begin_turn();
            while let Some(count) = next(&mut ring) {
                assert_eq!(count, Ok(read));
                read += 1;
            }
            assert_eq!((read, ring.memory.tail), (written, ring.memory.head));
        }
    }

    #[test]
    fn a_record_is_not_given_back_while_it_is_lent() {
        let mut ring = SampleRing::new(MemoryRing::new(64, 0));
        for count in 0..4 {
            assert!(ring.memory.write(&lost(count)));
        }
        ring.begin_turn();
        for count in 0..4u64 {
            assert_eq!(next(&mut ring), Some(Ok(count)));
            assert!(ring.memory.tail <= 16 * count, "{count}: {}", ring.memory.tail);
        }
        assert_eq!(next(&mut ring), None);
        assert_eq!(ring.memory.tail, 64);
    }

    #[test]
    fn what_is_no_record_is_passed_over() {
        for size in [0u16, 4, 12, 48] {
            let mut ring = SampleRing::new(MemoryRing::new(64, 0));
            let mut bytes = lost(1);
            bytes[6..8].copy_from_slice(&size.to_ne_bytes());
            assert!(ring.memory.write(&lost(0)) && ring.memory.write(&bytes));
            ring.begin_turn();
            assert_eq!(next(&mut ring), Some(Ok(0)));
            assert_eq!(next(&mut ring), Some(Err(RecordError::Header { available: 16 })));
            assert_eq!(next(&mut ring), None);
            assert!(ring.memory.write(&lost(2)));
            ring.begin_turn();
            assert_eq!(next(&mut ring), Some(Ok(2)));
        }
    }
}
