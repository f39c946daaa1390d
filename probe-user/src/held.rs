//! Records that wait for their turn: copied out of the rings once, taken out by time.

use probe_common::limits::{MAX_PAYLOAD, RECORD_ALIGN};
use probe_common::{RawRecord, RecordKind};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use zerocopy::IntoBytes;

/// Memory to start with, in words: room for the longest record, wherever the head is, and for as
/// much again.
const FIRST: usize = (256 << 10) / RECORD_ALIGN;

/// Words before each payload.
const HEAD: usize = 3;

/// Words that the longest record takes.
const LONGEST: usize = HEAD + MAX_PAYLOAD / RECORD_ALIGN;

/// So many words of memory for each record at least: it bounds what the order of them takes.
const WORDS_PER_RECORD: usize = 8;

/// Stands for the CPU where nothing is held any more.
const FREE: u32 = u32::MAX;

/// Records in the order of a key, and those with the same key in the order of their arrival.
///
/// Their memory is a ring of words, in the order of arrival, which is nearly the order in which
/// they leave. So it needs no free lists, and a record that leaves out of turn is room a little
/// later.
#[derive(Debug)]
pub(crate) struct Held {
    /// A power of two of them. Each record is `span | cpu`, `len | kind`, its time, and its payload,
    /// which is 8-aligned, so that handlers may borrow it as their type. No record wraps around.
    words: Vec<u64>,
    /// How many words there may be.
    most: usize,
    /// Positions of words: they only grow, and a word's place is the remainder.
    tail: u64,
    head: u64,
    /// Keys, and the positions, which are arrival numbers, too.
    order: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Held {
    /// Takes no more than `bytes`, rounded up to a power of two, 256 KiB at least; and a quarter of
    /// that for the order.
    pub(crate) fn new(bytes: usize) -> Self {
        let mut this =
            Self { words: vec![0; FIRST], most: FIRST, tail: 0, head: 0, order: BinaryHeap::new() };
        this.limit(bytes);
        this
    }

    /// Takes no more than `bytes` from now on, unless it has more already.
    pub(crate) fn limit(&mut self, bytes: usize) {
        let words = bytes.div_ceil(RECORD_ALIGN).min(1 << 48).next_power_of_two();
        self.most = words.max(self.words.len());
    }

    /// How many records are held.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Bytes of memory that records have, whether or not they use it.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        self.words.capacity() * RECORD_ALIGN
            + self.order.capacity() * size_of::<Reverse<(u64, u64)>>()
    }

    /// The least key.
    pub(crate) fn first(&self) -> Option<u64> {
        self.order.peek().map(|Reverse((key, _))| *key)
    }

    /// Whether there is room for any record.
    pub(crate) fn has_room(&mut self) -> bool {
        self.order.is_empty() || self.skip_for(LONGEST).is_some()
    }

    /// Copies a record. `false` if there is no room for it.
    #[must_use = "a record that has no room is not held"]
    pub(crate) fn push(&mut self, key: u64, cpu: u32, record: RawRecord<'_>) -> bool {
        let RawRecord { kind, time, payload } = record;
        let span = HEAD + payload.len().div_ceil(RECORD_ALIGN);
        let Some(position) = self.reserve(span) else { return false };
        let at = self.place(position);
        let words = &mut self.words[at..at + span];
        words[0] = pair(span as u32, cpu);
        words[1] = pair(payload.len() as u32, kind.0);
        words[2] = time;
        words[HEAD..].as_mut_bytes()[..payload.len()].copy_from_slice(payload);
        self.order.push(Reverse((key, position)));
        true
    }

    /// Takes the record with the least key: the key, the CPU and the record. It is no longer held,
    /// whatever becomes of the borrow.
    pub(crate) fn pop(&mut self) -> Option<(u64, u32, RawRecord<'_>)> {
        let Reverse((key, position)) = self.order.pop()?;
        let at = self.place(position);
        let (span, cpu) = unpair(self.words[at]);
        let (len, kind) = unpair(self.words[at + 1]);
        let time = self.words[at + 2];
        self.words[at] = pair(span, FREE);
        self.advance();
        let payload = &self.words[at + HEAD..at + span as usize].as_bytes()[..len as usize];
        Some((key, cpu, RawRecord { kind: RecordKind(kind), time, payload }))
    }

    /// Moves the tail over what is free.
    fn advance(&mut self) {
        while self.tail != self.head {
            let (span, cpu) = unpair(self.words[self.place(self.tail)]);
            if cpu != FREE {
                break;
            }
            self.tail += u64::from(span);
        }
    }

    /// Makes a record of so many words out of what is behind the head, and returns its position.
    fn reserve(&mut self, span: usize) -> Option<u64> {
        if self.order.is_empty() {
            // Memory that was used last is the quickest.
            (self.tail, self.head) = (0, 0);
        }
        let skipped = self.skip_for(span)?;
        if skipped != 0 {
            let at = self.place(self.head);
            self.words[at] = pair(skipped as u32, FREE);
        }
        let position = self.head + skipped as u64;
        self.head = position + span as u64;
        Some(position)
    }

    /// How many words are to be skipped for there to be so many in a row; grows for it. `None` if
    /// there is no room.
    fn skip_for(&mut self, span: usize) -> Option<usize> {
        loop {
            let size = self.words.len();
            let left = size - self.place(self.head);
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

    /// Doubles the memory. Positions stay, and what does not wrap around in it now will not then.
    fn grow(&mut self) {
        let size = self.words.len();
        let mut words = vec![0; size * 2];
        let mut position = self.tail;
        while position != self.head {
            let from = self.place(position);
            let count = (size - from).min((self.head - position) as usize);
            let to = position as usize & (words.len() - 1);
            words[to..to + count].copy_from_slice(&self.words[from..from + count]);
            position += count as u64;
        }
        self.words = words;
    }

    fn place(&self, position: u64) -> usize {
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
    fn what_is_pushed_is_popped_whole_and_aligned() {
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
            // Not much is wasted, either.
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
        /// Against a sorted list, through every way to wrap around and to grow.
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
