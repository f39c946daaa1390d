//! Records that are held back: copied out of the rings once, and removed in time order.

use probe_common::limits::{MAX_PAYLOAD, RECORD_ALIGN};
use probe_common::{RawRecord, RecordKind};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use zerocopy::IntoBytes;

/// The initial memory, in words: room for the longest record, wherever the head is, and as much again.
const FIRST: usize = (256 << 10) / RECORD_ALIGN;

/// The number of words before each payload.
const HEAD: usize = 3;

/// The number of words that the longest record takes.
const LONGEST: usize = HEAD + MAX_PAYLOAD / RECORD_ALIGN;

/// The least number of words of memory per record. It bounds the memory of `order`.
const WORDS_PER_RECORD: usize = 8;

/// Takes the place of the CPU where no record is held any more.
const FREE: u32 = u32::MAX;

/// Records in the order of a key. Records with the same key are in the order of their arrival.
///
/// The memory is a ring of words in the order of arrival, which is nearly the order in which the records leave. So it
/// needs no free lists, and the room of a record that leaves out of order is reused a little later.
#[derive(Debug)]
pub(crate) struct Held {
    /// The number of words is a power of two. Each record is `span | cpu`, `len | kind`, its time, and its payload,
    /// which is 8-aligned, so that handlers may borrow it as their type. No record wraps around.
    words: Vec<u64>,
    /// The most words that there may be.
    most: usize,
    /// Positions of words. They only grow, and the index of a word is the remainder.
    tail: u64,
    head: u64,
    /// Keys and positions. The positions also serve as arrival numbers.
    order: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Held {
    /// Takes at most `bytes` of memory, rounded up to a power of two of at least 256 KiB, and a quarter of that for
    /// the order.
    pub(crate) fn new(bytes: usize) -> Self {
        let mut this =
            Self { words: vec![0; FIRST], most: FIRST, tail: 0, head: 0, order: BinaryHeap::new() };
        this.limit(bytes);
        this
    }

    /// Takes at most `bytes` of memory from now on, unless there is more already.
    pub(crate) fn limit(&mut self, bytes: usize) {
        let words = bytes.div_ceil(RECORD_ALIGN).min(1 << 48).next_power_of_two();
        self.most = words.max(self.words.len());
    }

    /// The number of records held.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The allocated memory in bytes, whether or not records use it.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        self.words.capacity() * RECORD_ALIGN
            + self.order.capacity() * size_of::<Reverse<(u64, u64)>>()
    }

    /// The smallest key.
    pub(crate) fn first(&self) -> Option<u64> {
        self.order.peek().map(|Reverse((key, _))| *key)
    }

    /// Whether there is room for any record.
    pub(crate) fn has_room(&mut self) -> bool {
        self.order.is_empty() || self.skip_for(LONGEST).is_some()
    }

    /// Copies a record. Returns `false` if there is no room for it.
    #[must_use = "a record that has no room is not held"]
    pub(crate) fn push(&mut self, key: u64, cpu: u32, record: RawRecord<'_>) -> bool {
        let RawRecord { kind, time, payload } = record;
        let span = HEAD + payload.len().div_ceil(RECORD_ALIGN);
        let Some(position) = self.reserve(span) else { return false };
        let at = self.index(position);
        let words = &mut self.words[at..at + span];
        words[0] = pair(span as u32, cpu);
        words[1] = pair(payload.len() as u32, kind.0);
        words[2] = time;
        words[HEAD..].as_mut_bytes()[..payload.len()].copy_from_slice(payload);
        self.order.push(Reverse((key, position)));
        true
    }

    /// Removes the record with the smallest key, and returns the key, the CPU and the record. The record is no longer
    /// held, whatever becomes of the borrow.
    pub(crate) fn pop(&mut self) -> Option<(u64, u32, RawRecord<'_>)> {
        let Reverse((key, position)) = self.order.pop()?;
        let at = self.index(position);
        let (span, cpu) = unpair(self.words[at]);
        let (len, kind) = unpair(self.words[at + 1]);
        let time = self.words[at + 2];
        self.words[at] = pair(span, FREE);
        self.advance();
        let payload = &self.words[at + HEAD..at + span as usize].as_bytes()[..len as usize];
        Some((key, cpu, RawRecord { kind: RecordKind(kind), time, payload }))
    }

    /// Moves the tail past free words.
    fn advance(&mut self) {
        while self.tail != self.head {
            let (span, cpu) = unpair(self.words[self.index(self.tail)]);
            if cpu != FREE {
                break;
            }
            self.tail += u64::from(span);
        }
    }

    /// Allocates a record of `span` words behind the head, and returns its position.
    fn reserve(&mut self, span: usize) -> Option<u64> {
        if self.order.is_empty() {
            // The memory that was used last is the fastest.
            (self.tail, self.head) = (0, 0);
        }
        let skipped = self.skip_for(span)?;
        if skipped != 0 {
            let at = self.index(self.head);
            self.words[at] = pair(skipped as u32, FREE);
        }
        let position = self.head + skipped as u64;
        self.head = position + span as u64;
        Some(position)
    }

    /// How many words to skip so that `span` words follow in a row. Grows the memory if necessary. Returns `None` if
    /// there is no room.
    fn skip_for(&mut self, span: usize) -> Option<usize> {
        loop {
            let size = self.words.len();
            let left = size - self.index(self.head);
            let skipped = if span <= left { 0 } else { left };
            let used = (self.head - self.tail) as usize;
            if used + skipped + span <= size && self.order.len() < size / WORDS_PER_RECORD {
                return Some(skipped);
            }
            if size >= self.most {
                return None;
            }
            self.grow();
        }
    }

    /// Doubles the memory. Positions stay the same, and a record that does not wrap around now will not do so
    /// afterwards.
    fn grow(&mut self) {
        let size = self.words.len();
        let mut words = vec![0; size * 2];
        let mut position = self.tail;
        while position != self.head {
            let from = self.index(position);
            let count = (size - from).min((self.head - position) as usize);
            let to = position as usize & (words.len() - 1);
            words[to..to + count].copy_from_slice(&self.words[from..from + count]);
            position += count as u64;
        }
        self.words = words;
    }

    fn index(&self, position: u64) -> usize {
        position as usize & (self.words.len() - 1)
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn unpair(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(time: u64, payload: &[u8]) -> RawRecord<'_> {
        RawRecord { kind: RecordKind(9), time, payload }
    }

    #[test]
    fn records_come_back_whole_and_aligned() {
        let mut held = Held::new(0);
        let payload: Vec<u8> = (0..=255).cycle().take(65_520).collect();
        for len in [0, 1, 7, 8, 9, 63, 4096, 65_520] {
            assert!(held.push(3, 5, record(77, &payload[..len])));
            let (key, cpu, popped) = held.pop().unwrap();
            assert_eq!((key, cpu, popped), (3, 5, record(77, &payload[..len])));
            assert!(popped.payload.as_ptr().cast::<u64>().is_aligned());
        }
        assert!(held.pop().is_none());
    }

    #[test]
    fn equal_keys_leave_as_they_came() {
        let mut held = Held::new(0);
        for cpu in 0..1000 {
            assert!(held.push(1, cpu, record(1, b"")));
        }
        for cpu in 0..1000 {
            assert_eq!(held.pop().unwrap().1, cpu);
        }
    }

    #[test]
    fn memory_stays_within_its_bound_and_does_not_grow_without_need() {
        for len in [0, 40, 1000, 60_000] {
            let mut held = Held::new(1 << 20);
            let payload = vec![1; len];
            let mut key = 0;
            while held.push(key, 0, record(0, &payload)) {
                key += 1;
            }
            assert!(held.memory() <= (1 << 20) + (1 << 18), "{len}: {}", held.memory());
            // Little memory is wasted, too.
            let used = held.len() * (HEAD * 8 + len).max(WORDS_PER_RECORD * 8);
            assert!(used >= (1 << 20) - (64 << 10), "{len}: {used}");

            let mut held = Held::new(1 << 20);
            for key in 0..10_000 {
                assert!(held.push(key, 0, record(0, &payload)));
                if held.len() == 2 {
                    held.pop();
                }
            }
            assert!(held.memory() <= FIRST * 8 + 1024, "{len}: {}", held.memory());
        }
    }

    proptest! {
        /// Compares with a sorted list, through all cases of wrapping around and growing.
        #[test]
        fn it_is_a_stable_sort(
            steps in prop::collection::vec((0u64..40, 0usize..9000, 0u8..5), 1..400)
        ) {
            let mut held = Held::new(1 << 20);
            let mut model: Vec<(u64, u32, Vec<u8>)> = Vec::new();
            let payload: Vec<u8> = (0..=250).cycle().take(9000).collect();
            for (arrival, (key, len, pops)) in steps.into_iter().enumerate() {
                let payload = &payload[arrival % 7..][..len.min(8990)];
                let arrival = arrival as u32;
                if held.push(key, arrival, record(key, payload)) {
                    let behind = model.partition_point(|(other, ..)| *other <= key);
                    model.insert(behind, (key, arrival, payload.to_vec()));
                }
                prop_assert_eq!(held.len(), model.len());
                for _ in 0..pops / 3 {
                    let popped = held.pop().map(|(key, cpu, r)| (key, cpu, r.payload.to_vec()));
                    let expected = (!model.is_empty()).then(|| model.remove(0));
                    prop_assert_eq!(popped, expected);
                }
            }
            while let Some((key, cpu, record)) = held.pop() {
                prop_assert_eq!((key, cpu, record.payload.to_vec()), model.remove(0));
            }
            prop_assert!(model.is_empty());
            prop_assert_eq!(held.tail, held.head);
        }
    }
}
