use super::*;
use probe_common::{BlockError, BlockWriter, RecordKind};
use probe_sys::ring::memory::MemoryRing;
use proptest::prelude::*;

const RING: usize = 64;

/// A perf record of `size` bytes that readers ignore. The number tells it apart from others.
fn numbered(number: u32, size: usize) -> Vec<u8> {
    let mut bytes = vec![0xa5; size];
    bytes[..4].copy_from_slice(&(1000 + number).to_ne_bytes());
    bytes[4..6].copy_from_slice(&0u16.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(size as u16).to_ne_bytes());
    bytes
}

/// A perf record whose raw data is `block`, with the kernel's padding.
fn sample(block: &[u8]) -> Vec<u8> {
    let raw = (4 + block.len()).next_multiple_of(8) - 4;
    let size = 12 + raw;
    let mut bytes = 9u32.to_ne_bytes().to_vec();
    bytes.extend(0u16.to_ne_bytes());
    bytes.extend((size as u16).to_ne_bytes());
    bytes.extend((raw as u32).to_ne_bytes());
    bytes.extend(block);
    bytes.resize(size, 0xee);
    bytes
}

/// What a look must find after records of these sizes, oldest first, were written: the whole ones, newest
/// first.
fn expected(sizes: &[usize], head: u64, ring: usize) -> Found {
    let written: usize = sizes.iter().sum();
    let mut found = Found::default();
    let mut whole = 0;
    for &size in sizes.iter().rev() {
        if whole + size > ring {
            break;
        }
        found.outputs.push(Output { at: head.wrapping_add(whole as u64), size });
        whole += size;
    }
    found.overwritten = (written - whole) as u64;
    found
}

/// Every sequence of up to `most` of these sizes.
fn sequences(sizes: &[usize], most: usize) -> Vec<Vec<usize>> {
    let (mut all, mut last) = (vec![Vec::new()], vec![Vec::new()]);
    for _ in 0..most {
        let longer = |sequence: &Vec<usize>| {
            let with = |&size: &usize| [&sequence[..], &[size]].concat();
            sizes.iter().map(with).collect::<Vec<_>>()
        };
        last = last.iter().flat_map(longer).collect();
        all.extend(last.iter().cloned());
    }
    all
}

#[test]
fn the_newest_whole_records_of_every_sequence_are_found_once() {
    let sequences = sequences(&[8, 16, 24, 40, 64], 6);
    for start in [0, 24, u64::MAX - 7 - 40] {
        for sizes in &sequences {
            for looks in 0..sizes.len() {
                let mut backward = Backward::new(MemoryRing::new(RING, start));
                let mut number = 0;
                // The second look does not find what the first one found.
                for part in [&sizes[..looks], &sizes[looks..]] {
                    let first = number;
                    for &size in part {
                        backward.memory_mut().write_before(&numbered(number, size));
                        number += 1;
                    }
                    let head = backward.memory_mut().head;
                    let found = backward.look();
                    assert_eq!(found, expected(part, head, RING), "{sizes:?}, {looks}, {start}");
                    for (output, at) in found.outputs.iter().zip(0u32..) {
                        let bytes =
                            backward.memory.bytes(output.at, output.size, &mut backward.scratch);
                        assert_eq!(bytes, numbered(number - 1 - at, output.size), "{sizes:?}");
                    }
                    assert!(number - first >= found.outputs.len() as u32);
                    assert!(!backward.has_more());
                }
            }
        }
    }
}

#[test]
fn zeroes_are_malformed() {
    let mut backward = Backward::new(MemoryRing::new(RING, 0));
    backward.memory_mut().head = 48u64.wrapping_neg();
    assert_eq!(backward.look(), Found { malformed: 48, ..Found::default() });
    // Zeroes before a record, and after one.
    backward.memory_mut().restart(0);
    backward.seen = 0;
    backward.memory_mut().write_before(&numbered(0, 16));
    backward.memory_mut().head = 32u64.wrapping_neg();
    assert_eq!(backward.look(), Found { malformed: 32, ..Found::default() });
    backward.memory_mut().head = 56u64.wrapping_neg();
    backward.memory_mut().write_before(&numbered(1, 8));
    let found = backward.look();
    assert_eq!((found.outputs.len(), found.malformed, found.overwritten), (1, 24, 0));
}

#[test]
fn impossible_sizes_end_the_walk() {
    for size in [1u16, 7, 12, 0] {
        let mut backward = Backward::new(MemoryRing::new(RING, 0));
        let mut bytes = numbered(0, 16);
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        backward.memory_mut().write_before(&bytes);
        backward.memory_mut().write_before(&numbered(1, 8));
        let found = backward.look();
        assert_eq!((found.outputs.len(), found.malformed), (1, 16), "{size}");
    }
    // A record that is too long, in a ring where nothing was overwritten.
    let mut backward = Backward::new(MemoryRing::new(RING, 0));
    let mut bytes = numbered(0, 16);
    bytes[6..8].copy_from_slice(&24u16.to_ne_bytes());
    backward.memory_mut().write_before(&bytes);
    assert_eq!(backward.look(), Found { malformed: 16, ..Found::default() });
}

/// A block of `count` records of 8 bytes, numbered from `first` on.
fn block(first: u64, count: u64) -> Vec<u8> {
    let mut bytes = [0; 1024];
    let mut writer = BlockWriter::new(&mut bytes, 0).unwrap();
    for number in first..first + count {
        assert!(writer.push(RecordKind::user(0), number, &number.to_ne_bytes()));
    }
    writer.finish().to_vec()
}

#[test]
fn records_of_a_block_are_in_the_order_of_emission() {
    for start in (0..256).step_by(8) {
        let mut backward = Backward::new(MemoryRing::new(256, start));
        backward.memory_mut().write_before(&sample(&block(0, 3)));
        backward.memory_mut().write_before(&numbered(0, 16));
        backward.memory_mut().write_before(&sample(&block(3, 2)));
        let found = backward.look();
        let (mut taken, mut again) = (Vec::new(), Vec::new());
        for &output in found.outputs.iter().rev() {
            let mut offsets = Vec::new();
            let take = |record: RawRecord<'_>, offset| {
                taken.push(record.time);
                offsets.push(offset);
            };
            backward.records(output, take).unwrap();
            for offset in offsets {
                let record = backward.record(output, offset).unwrap();
                assert_eq!(record.payload, record.time.to_ne_bytes());
                again.push(record.time);
            }
        }
        assert_eq!(taken, [0, 1, 2, 3, 4]);
        assert_eq!(again, taken);
    }
}

#[test]
fn malformed_outputs_are_reported() {
    let mut backward = Backward::new(MemoryRing::new(256, 0));
    let mut overlong = sample(&block(0, 1));
    overlong[12..14].copy_from_slice(&99u16.to_ne_bytes());
    let mut body = sample(&block(0, 1));
    body[8..12].copy_from_slice(&1000u32.to_ne_bytes());
    backward.memory_mut().write_before(&overlong);
    backward.memory_mut().write_before(&body);
    let found = backward.look();
    let results: Vec<_> =
        found.outputs.iter().map(|&output| backward.records(output, |_, _| ())).collect();
    assert_eq!(results[0], Err(MalformedReason::RecordBody));
    assert!(matches!(results[1], Err(MalformedReason::Block(BlockError::Overlong { .. }))));
}

proptest! {
    /// With any record sizes and any number of records between two looks, each record is found once or
    /// overwritten.
    #[test]
    fn every_byte_is_found_or_overwritten(
        start in 0u64..1 << 20,
        looks in prop::collection::vec(prop::collection::vec(1usize..20, 0..60), 1..8),
    ) {
        let mut backward = Backward::new(MemoryRing::new(512, start * 8));
        let mut number = 0;
        for words in &looks {
            let sizes: Vec<usize> = words.iter().map(|words| words * 8).collect();
            for &size in &sizes {
                backward.memory_mut().write_before(&numbered(number, size));
                number += 1;
            }
            let head = backward.memory_mut().head;
            prop_assert_eq!(backward.look(), expected(&sizes, head, 512));
        }
    }

    /// With any content and any head, nothing panics and all bytes are accounted for.
    #[test]
    fn arbitrary_bytes_are_walked_within_their_bounds(
        bytes in prop::collection::vec(any::<u8>(), 512),
        small in prop::collection::vec((0usize..64, 0u16..80), 0..40),
        head in any::<u64>(),
    ) {
        let mut backward = Backward::new(MemoryRing::new(512, 0));
        let data = backward.memory_mut().data_mut();
        data.copy_from_slice(&bytes);
        for (at, size) in small {
            data[at * 8 + 6..at * 8 + 8].copy_from_slice(&size.to_ne_bytes());
        }
        let head = if head % 2 == 0 { head } else { (head % 2048).wrapping_neg() };
        backward.memory_mut().head = head;
        let found = backward.look();
        let mut next = head;
        for output in &found.outputs {
            prop_assert_eq!(output.at, next);
            next = next.wrapping_add(output.size as u64);
        }
        let whole = next.wrapping_sub(head);
        prop_assert!(whole <= 512);
        prop_assert_eq!(whole + found.overwritten + found.malformed, head.wrapping_neg());
        for &output in &found.outputs {
            let mut offsets = Vec::new();
            let _ = backward.records(output, |_, offset| offsets.push(offset));
            for offset in offsets {
                prop_assert!(backward.record(output, offset).is_some());
            }
        }
    }
}
