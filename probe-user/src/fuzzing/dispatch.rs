//! Dispatch of the records of an arbitrary block to handlers of several types.

use super::event::{Received, digest};
use crate::consume::evhandler::{Emitted, EvHandlers};
use crate::queue::cursor::Seen;
use crate::queue::drain::Drain;
use crate::queue::notices::MalformedReason;
use probe_common::{RawRecord, Record, RecordKind, Records};
use probe_sys::input::Input;
use probe_sys::ring::memory::MemoryRing;
use std::cell::RefCell;
use std::ops::ControlFlow;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const RING: usize = 1024;
/// The longest block: the whole ring except for the perf record around the block.
const LONGEST: usize = RING - 12;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Short(u32);

impl Record for Short {
    const KIND: RecordKind = RecordKind::user(0);
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Long([u64; 3]);

impl Record for Long {
    const KIND: RecordKind = RecordKind::user(1);
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Empty;

impl Record for Empty {
    const KIND: RecordKind = RecordKind::user(95);
}

/// Which handler was called, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Handler { which: u8, time: u64, record: u64, tail: u64, len: usize },
    Unknown { kind: RecordKind, time: u64, bytes: u64, len: usize },
    Malformed { bytes: u64, reason: MalformedReason },
}

struct State {
    drain: Drain<MemoryRing>,
    seen: Seen,
    handlers: EvHandlers<'static>,
    expected: Received<Call>,
}

thread_local! {
    static CALLS: RefCell<Received<Call>> = const { RefCell::new(Received::new()) };
    static STATE: RefCell<State> = RefCell::new(State {
        drain: Drain::new(0, MemoryRing::new(RING, 0), 0),
        seen: Seen::default(),
        handlers: handlers(),
        expected: Received::new(),
    });
}

fn called(call: Call) -> ControlFlow<()> {
    CALLS.with_borrow_mut(|calls| calls.add(call))
}

/// One handler each for [`Short`] and [`Empty`], two for [`Long`].
fn handlers() -> EvHandlers<'static> {
    fn handle<T: Record>(which: u8, event: &Emitted<'_, T>) -> ControlFlow<()> {
        let (record, tail) = (digest(event.record.as_bytes()), digest(event.tail));
        let len = size_of::<T>() + event.tail.len();
        called(Call::Handler { which, time: event.time, record, tail, len })
    }
    let mut handlers = EvHandlers::new();
    handlers
        .on::<Short, _>(|event| handle(0, &event))
        .on::<Long, _>(|event| handle(1, &event))
        .on::<Long, _>(|event| handle(2, &event))
        .on::<Empty, _>(|event| handle(3, &event))
        .on_unknown(|_, record| called(unknown(record)))
        .on_malformed(|malformed| {
            called(Call::Malformed { bytes: malformed.bytes, reason: malformed.reason })
        });
    handlers
}

fn unknown(record: RawRecord<'_>) -> Call {
    let RawRecord { kind, time, payload } = record;
    Call::Unknown { kind, time, bytes: digest(payload), len: payload.len() }
}

/// The input: the number of calls after which a handler breaks, and a block.
pub fn dispatch(data: &[u8]) {
    let mut input = Input(data);
    let breaks = input.u8();
    let block = &input.0[..input.0.len().min(LONGEST)];
    CALLS.with_borrow_mut(|calls| calls.restart(breaks));
    STATE.with_borrow_mut(|state| state.run(block, breaks));
}

impl State {
    fn run(&mut self, block: &[u8], breaks: u8) {
        // Start near the end of the ring, so that some perf records wrap.
        let start = 0u64.wrapping_sub(RING as u64 / 4);
        let size = (12 + block.len()).next_multiple_of(8);
        let ring = self.drain.restart(start);
        ring.restart(start);
        let header = [9u32.to_ne_bytes(), ((size as u32) << 16).to_ne_bytes()];
        assert!(ring.write(header.as_bytes()));
        assert!(ring.write(&(block.len() as u32).to_ne_bytes()));
        assert!(ring.write(block));
        assert!(ring.write(&[0; 8][..size - 12 - block.len()]));

        let before = self.seen.counts;
        let mut rounds = 0;
        while self.drain.run(&mut self.seen, &mut self.handlers, RING).more {
            rounds += 1;
            assert!(rounds <= RING / 8, "no progress");
        }
        let records = self.expect(block, size, breaks);
        CALLS.with_borrow(|calls| assert_eq!(calls.events, self.expected.events));
        assert_eq!(self.seen.counts.records - before.records, records);
    }

    /// Fills in the expected calls, and returns the expected number of records.
    fn expect(&mut self, block: &[u8], size: usize, breaks: u8) -> u64 {
        let expected = &mut self.expected;
        expected.restart(breaks);
        let mut count = 0;
        let error = match Records::new(block) {
            Ok(records) => {
                let mut error = None;
                for record in records {
                    match record {
                        Ok(record) => {
                            count += 1;
                            // A break ends the calls for this record and the current drain. The next drain
                            // goes on with the next record.
                            let _ = dispatch_one(expected, record);
                        }
                        Err(found) => error = Some(found),
                    }
                }
                error
            }
            Err(error) => Some(error),
        };
        if let Some(error) = error {
            let reason = MalformedReason::Block(error);
            let _ = expected.add(Call::Malformed { bytes: size as u64, reason });
        }
        count
    }
}

fn dispatch_one(expected: &mut Received<Call>, record: RawRecord<'_>) -> ControlFlow<()> {
    let RawRecord { kind, time, payload } = record;
    let (handlers, needed): (&[u8], _) = match kind {
        Short::KIND => (&[0], 4),
        Long::KIND => (&[1, 2], 24),
        Empty::KIND => (&[3], 0),
        _ => return expected.add(unknown(record)),
    };
    let len = payload.len();
    let Some((record, tail)) = payload.split_at_checked(needed) else {
        let reason = MalformedReason::Payload { kind, len, needed };
        return expected.add(Call::Malformed { bytes: len as u64, reason });
    };
    let (record, tail) = (digest(record), digest(tail));
    for &which in handlers {
        expected.add(Call::Handler { which, time, record, tail, len })?;
    }
    ControlFlow::Continue(())
}
