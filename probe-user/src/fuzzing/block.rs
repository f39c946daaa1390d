//! Iteration over the records of an arbitrary block.

use probe_common::block::record_span;
use probe_common::limits::{MAX_BLOCK, RECORD_ALIGN};
use probe_common::{BlockError, BlockWriter, RawRecord, Records};
use probe_sys::input::Input;
use std::cell::RefCell;
use zerocopy::IntoBytes;

/// Longer inputs find nothing new.
const LONGEST: usize = 4096;

thread_local! {
    /// The block as it lies in a ring, 4 bytes after an aligned address, and the block that a writer builds
    /// from its records.
    static MEMORY: RefCell<[[u64; LONGEST / 8 + 1]; 2]> = const {
        RefCell::new([[0; LONGEST / 8 + 1]; 2])
    };
}

/// The input: the record at which to stop and resume, an arbitrary offset, and the block.
pub fn block(data: &[u8]) {
    let mut input = Input(data);
    let (stop, wild) = (usize::from(input.u8()), usize::from(input.u16()));
    let given = &input.0[..input.0.len().min(LONGEST)];
    MEMORY.with_borrow_mut(|[memory, written]| {
        let block = &mut memory.as_mut_bytes()[4..][..given.len()];
        block.copy_from_slice(given);
        check(block, stop, wild, &mut written.as_mut_bytes()[4..]);
    });
}

fn check(block: &[u8], stop: usize, wild: usize, room: &mut [u8]) {
    let claimed = block.as_chunks::<2>().0.first().map_or(0, |used| u16::from_ne_bytes(*used));
    let claimed = usize::from(claimed) * RECORD_ALIGN;
    let records = match Records::new(block) {
        Ok(records) => records,
        Err(BlockError::NoPrefix { bytes }) => return assert!(bytes == block.len() && bytes < 4),
        Err(error) => {
            let bytes = block.len() - 4;
            assert_eq!(error, BlockError::Overlong { claimed, bytes });
            return assert!(claimed > bytes);
        }
    };
    let mut writer = BlockWriter::new(room, 0).expect("there is room");
    let (mut left, mut at, mut error) = (records.clone(), 0, None);
    let mut stopped = None;
    for n in 0.. {
        assert_eq!(left.offset(), at);
        if n == stop {
            stopped = Some((at, left.clone()));
        }
        let kind = left.next_kind();
        match left.next() {
            Some(Ok(record)) => {
                assert_eq!(kind, Some(record.kind));
                // The payload lies after its header, which is at `at`.
                let from = record.payload.as_ptr().addr() - block.as_ptr().addr();
                assert_eq!(from, 4 + at + 16, "records come one after another");
                assert!(from + record.payload.len() <= 4 + claimed, "a payload is in its block");
                at += record_span(record.payload.len());
                assert!(writer.push(record.kind, record.time, record.payload));
            }
            Some(Err(found)) => {
                let BlockError::RecordOverlong { at: place, claimed: wanted, bytes } = found else {
                    panic!("{found}");
                };
                assert_eq!((place, bytes), (at, claimed - at));
                assert!(wanted > bytes);
                error = Some(found);
                assert!(left.next().is_none() && left.is_empty(), "an error is the end");
                break;
            }
            None => {
                assert!(left.is_empty() && at == claimed);
                break;
            }
        }
    }
    if let Some((at, expected)) = stopped {
        assert!(same(records.clone().resume(at), expected), "it goes on where it was left");
    }
    // With an arbitrary offset, iteration yields other records or none, but it ends.
    let bound = claimed / RECORD_ALIGN / 2 + 1;
    assert!(records.clone().resume(wild).count() <= bound);
    assert!(records.clone().resume(usize::MAX - wild).next().is_none());

    let again = Records::new(writer.finish()).expect("it was written");
    let sound = |record: &Result<RawRecord<'_>, _>| record.is_ok();
    assert!(same(records.take_while(sound), again), "what is written is read");
    assert!(error.is_some() || at == claimed);
}

fn same<'a>(
    one: impl Iterator<Item = Result<RawRecord<'a>, BlockError>>,
    other: impl Iterator<Item = Result<RawRecord<'a>, BlockError>>,
) -> bool {
    one.eq(other)
}

const _: () = assert!(LONGEST <= MAX_BLOCK);
