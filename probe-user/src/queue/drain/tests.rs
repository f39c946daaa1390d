//! Every byte sequence is drained to its end, once, and nothing outside of it is read.

use super::*;
use crate::queue::notices::{Loss, Malformed};
use probe_common::{BlockError, BlockPrefix, RawRecord, RecordHeader, RecordKind};
use probe_sys::ring::memory::MemoryRing;
use std::panic::{AssertUnwindSafe, catch_unwind};
use zerocopy::IntoBytes;

const SIZE: usize = 64;
const KIND: RecordKind = RecordKind::user(1);

/// What came out of a ring.
#[derive(Debug, Default, PartialEq, Eq)]
struct Log {
    payloads: Vec<Vec<u8>>,
    lost: Vec<u64>,
    malformed: Vec<(u64, MalformedReason)>,
}

impl Consumer for Log {
    fn record(&mut self, _: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.payloads.push(record.payload.to_vec());
        ControlFlow::Continue(())
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.lost.push(loss.count);
        ControlFlow::Continue(())
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.malformed.push((malformed.bytes, malformed.reason));
        ControlFlow::Continue(())
    }
}

/// A perf record with these values in its header, whatever its actual length.
fn perf_record(kind: u32, size: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_ne_bytes()[..], &[0; 2], &size.to_ne_bytes(), body].concat()
}

/// Drains a ring of [`SIZE`] bytes with `bytes` in it, from position `tail` on.
fn drain(tail: u64, bytes: &[u8]) -> (Log, Seen) {
    let mut ring = MemoryRing::new(SIZE, tail);
    assert!(ring.write(bytes));
    drain_ring(ring)
}

fn drain_ring(ring: MemoryRing) -> (Log, Seen) {
    drain_contents(ring, Contents::Blocks)
}

fn drain_contents(ring: MemoryRing, contents: Contents) -> (Log, Seen) {
    let (head, tail) = (ring.head, ring.tail);
    let mut drain = Drain::new(0, ring, tail).of(contents);
    let (mut log, mut seen) = (Log::default(), Seen::default());
    let drained = drain.run(&mut seen, &mut log, usize::MAX >> 1);
    assert!(drained.flow.is_continue() && !drained.more);
    assert_eq!(drain.memory_mut().tail, head, "everything is given back");
    assert_eq!(seen.counts.records, log.payloads.len() as u64);
    assert_eq!(seen.counts.malformed, log.malformed.len() as u64);
    (log, seen)
}

/// Positions at every offset in the ring, and positions that are about to overflow.
fn tails() -> impl Iterator<Item = u64> {
    (0..SIZE as u64).step_by(8).flat_map(|at| [at, 0u64.wrapping_sub(SIZE as u64) + at])
}

#[test]
fn every_size_at_every_position_is_survived() {
    for kind in [0, 2, 9] {
        for tail in tails() {
            for size in 0..=u16::MAX {
                let len = usize::from(size);
                // The rest is zero, which is not a valid record.
                let mut bytes = [0; SIZE];
                bytes[..8].copy_from_slice(&perf_record(kind, size, &[]));
                let (log, _) = drain(tail, &bytes);
                let is_sound = (8..=SIZE).contains(&len) && len % 8 == 0;
                let first = match kind {
                    _ if !is_sound => Err((SIZE as u64, MalformedReason::RecordSize)),
                    // A raw size of 0 leaves no room for a block prefix. Less than 8 bytes leave none for the
                    // raw size.
                    9 if len == 8 => Err((8, MalformedReason::RecordBody)),
                    9 => {
                        let error = BlockError::NoPrefix { bytes: 0 };
                        Err((len as u64, MalformedReason::Block(error)))
                    }
                    2 if len < 24 => Err((len as u64, MalformedReason::RecordBody)),
                    _ => Ok(()),
                };
                let rest = is_sound.then(|| SIZE - len).filter(|&rest| rest > 0);
                let rest = rest.map(|rest| (rest as u64, MalformedReason::RecordSize));
                let expected: Vec<_> = first.err().into_iter().chain(rest).collect();
                assert_eq!(log.malformed, expected, "kind {kind}, tail {tail}, size {size}");
                assert!(log.payloads.is_empty());
                assert_eq!(
                    log.lost,
                    if kind == 2 && is_sound && len >= 24 { vec![0] } else { vec![] }
                );
            }
        }
    }
}

#[test]
fn every_raw_size_and_block_at_every_position_is_survived() {
    for tail in tails() {
        for len in (16..=SIZE).step_by(8) {
            for raw in (0..=SIZE as u32 + 8).chain([u32::MAX - 8, u32::MAX, 1 << 31, 65_516]) {
                for used in (0..10).chain([u16::MAX, 1 << 13]) {
                    for claimed in [0, 1, 7, 8, 9, 24, u32::MAX, u32::MAX - 7] {
                        let mut bytes = perf_record(9, len as u16, &raw.to_ne_bytes());
                        bytes.extend(BlockPrefix::new(used, 0, 0).as_bytes());
                        let header = RecordHeader { kind: KIND, len: claimed, time: 0 };
                        bytes.extend(header.as_bytes());
                        bytes.resize(SIZE, 0xa5);
                        bytes.truncate(len);
                        let (log, _) = drain(tail, &bytes);
                        // A payload never extends past its record.
                        let room = (raw as usize).min(len - 12).saturating_sub(4 + 16);
                        for payload in &log.payloads {
                            assert!(payload.len() <= room, "{len} {raw} {used} {claimed}");
                        }
                        let fits = raw as usize <= len - 12 && raw >= 4;
                        let whole = fits && usize::from(used) * 8 <= raw as usize - 4;
                        if !whole {
                            assert_eq!(log.payloads.len(), 0);
                            assert_eq!(log.malformed.len(), 1, "{len} {raw} {used} {claimed}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn raw_samples_are_delivered_whatever_they_contain() {
    for tail in tails() {
        for raw in (0..=SIZE as u32).chain([u32::MAX - 8, u32::MAX]) {
            let data: Vec<u8> = (1..=SIZE as u8 - 12).collect();
            // A block of no records, which is nothing without `raw`, follows if there is room.
            let len = (12 + raw as usize).next_multiple_of(8).min(SIZE);
            let mut bytes = perf_record(9, len as u16, &raw.to_ne_bytes());
            bytes.extend(&data[..len - 12]);
            let follows = len + 16 <= SIZE;
            if follows {
                bytes.extend(perf_record(9, 16, &4u32.to_ne_bytes()));
                bytes.extend([0; 4]);
            }
            let mut ring = MemoryRing::new(SIZE, tail);
            assert!(ring.write(&bytes));
            let (log, seen) = drain_contents(ring, Contents::Raw);
            let whole = data.get(..raw as usize).filter(|_| raw as usize <= len - 12);
            let mut expected: Vec<_> = whole.map(<[u8]>::to_vec).into_iter().collect();
            expected.extend(follows.then(|| vec![0; 4]));
            assert_eq!(log.payloads, expected, "tail {tail}, raw {raw}");
            let malformed = whole.is_none().then_some((len as u64, MalformedReason::RecordBody));
            assert_eq!(log.malformed, Vec::from_iter(malformed), "tail {tail}, raw {raw}");
            assert_eq!(seen.received.given.other(), expected.len() as u64);
        }
    }
}

#[test]
fn a_raw_sample_is_consumed_even_if_the_consumer_panics() {
    struct Panics;
    impl Consumer for Panics {
        fn record(&mut self, _: u32, _: RawRecord<'_>) -> ControlFlow<()> {
            panic!("on purpose")
        }
    }
    let mut ring = MemoryRing::new(SIZE, 0);
    assert!(ring.write(&perf_record(9, 16, &[4u32.to_ne_bytes(), [7; 4]].concat())));
    let (mut drain, mut seen) = (Drain::new(0, ring, 0).of(Contents::Raw), Seen::default());
    let mut run = || drain.run(&mut seen, &mut Panics, usize::MAX >> 1);
    assert!(catch_unwind(AssertUnwindSafe(&mut run)).is_err());
    assert!(!run().more);
    assert_eq!(seen.counts.records, 1);
}

#[test]
fn records_that_the_consumer_does_not_accept_stay_in_the_ring() {
    struct Full;
    impl Consumer for Full {
        fn record(&mut self, _: u32, _: RawRecord<'_>) -> ControlFlow<()> {
            panic!("it does not accept any")
        }

        fn accepts(&mut self) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    let mut bytes = perf_record(9, 32, &20u32.to_ne_bytes());
    bytes.extend(BlockPrefix::new(2, 0, 0).as_bytes());
    bytes.extend(RecordHeader { kind: KIND, len: 0, time: 0 }.as_bytes());
    // The second position makes the record wrap.
    for (tail, contents) in [0, SIZE as u64 - 8]
        .into_iter()
        .flat_map(|tail| [Contents::Blocks, Contents::Raw].map(|contents| (tail, contents)))
    {
        let mut ring = MemoryRing::new(SIZE, tail);
        assert!(ring.write(&bytes));
        let mut drain = Drain::new(0, ring, tail).of(contents);
        let mut seen = Seen::default();
        for _ in 0..2 {
            let drained = drain.run(&mut seen, &mut Full, usize::MAX >> 1);
            assert!(drained.flow.is_break() && drained.more);
            assert_eq!((seen.counts.records, drain.memory_mut().tail), (0, tail));
        }
        let mut log = Log::default();
        assert!(drain.run(&mut seen, &mut log, usize::MAX >> 1).flow.is_continue());
        assert_eq!((log.payloads.len(), seen.counts.records), (1, 1));
    }
}

#[test]
fn impossible_positions_are_skipped() {
    for tail in tails() {
        for distance in (0..=3 * SIZE as u64).chain([u64::MAX, u64::MAX - 7, 1 << 63]) {
            let mut ring = MemoryRing::new(SIZE, tail);
            ring.head = tail.wrapping_add(distance);
            let (log, seen) = drain_ring(ring);
            let expected = match distance {
                0 => vec![],
                1..=64 if distance % 8 == 0 => vec![(distance, MalformedReason::RecordSize)],
                _ => vec![(distance, MalformedReason::Positions)],
            };
            assert_eq!(log.malformed, expected, "{tail} {distance}");
            assert_eq!(seen.counts.malformed_bytes, distance);
        }
    }
}
