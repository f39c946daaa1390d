//! The drain of a ring with arbitrary bytes, compared with a reader that is as simple as possible.

use super::event::{Event, Received, digest};
use crate::queue::batch::Batch;
use crate::queue::consumer::Consumer;
use crate::queue::counts::{KindCounts, QueueCounts};
use crate::queue::cursor::Seen;
use crate::queue::drain::Drain;
use crate::queue::notices::{Loss, Malformed, MalformedReason};
use probe_common::{BlockError, RawRecord, RecordKind};
use probe_sys::input::Input;
use probe_sys::ring::memory::MemoryRing;
use std::cell::RefCell;
use std::ops::ControlFlow;

/// Rings from 64 bytes to 4 KiB.
const RINGS: usize = 7;
const CPU: u32 = 5;

struct State {
    drains: [Drain<MemoryRing>; RINGS],
    seen: Seen,
    log: Log,
    /// The available bytes, in one piece.
    flat: Vec<u8>,
    expected: Vec<Event>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State {
        drains: std::array::from_fn(|n| Drain::new(CPU, MemoryRing::new(64 << n, 0), 0)),
        seen: Seen::default(),
        log: Log {
            received: Received::new(),
            kinds: KindCounts::default(),
            taking: Taking::Each,
        },
        flat: Vec::new(),
        expected: Vec::new(),
    });
}

/// The input: the choice of the ring, what the consumer does, its budget, the tail, an optional head, and the
/// content of the ring from the tail on.
pub fn drain(data: &[u8]) {
    // In tests, an earlier input may have panicked. The state is still usable then.
    STATE.with_borrow_mut(|state| state.run(Input(data)));
}

impl State {
    fn run(&mut self, mut input: Input<'_>) {
        let shape = input.u8();
        let drain = &mut self.drains[usize::from(shape & 7) % RINGS];
        self.log.restart(input.u8(), shape >> 4);
        let budget = match input.u16() {
            0 => 1 << 30,
            budget => usize::from(budget),
        };
        // Only the drain writes the tail, so it is always aligned.
        let tail = input.u64() & !7;
        let distance = (shape & 8 != 0).then(|| input.u64());

        let ring = drain.restart(tail);
        ring.restart(tail);
        let size = ring.data().len();
        let content = &input.0[..input.0.len().min(size)];
        assert!(ring.write(content));
        let distance = distance.unwrap_or(content.len().next_multiple_of(8) as u64);
        ring.head = tail.wrapping_add(distance);
        let head = ring.head;
        self.expected.clear();
        if distance <= size as u64 && distance.is_multiple_of(8) {
            self.flat.clear();
            self.flat.extend_from_slice(content);
            self.flat.resize(size, 0);
            self.flat.truncate(distance as usize);
            read_all(&self.flat, &mut self.expected);
        } else {
            let reason = MalformedReason::Positions;
            self.expected.push(Event::Malformed { bytes: distance, reason });
        }

        self.seen.counts = QueueCounts::default();
        let mut position = (tail, 0);
        loop {
            let drained = drain.run(&mut self.seen, &mut self.log, budget);
            let now = (drain.memory_mut().tail, self.log.received.events.len());
            assert!(self.log.received.events.len() <= self.expected.len(), "more than there is");
            if !drained.more {
                break;
            }
            assert_ne!(now, position, "no progress");
            assert!(drained.flow.is_break() || now.0.wrapping_sub(position.0) >= budget as u64);
            position = now;
        }
        assert_eq!(self.log.received.events, self.expected);
        assert_eq!(drain.memory_mut().tail, head, "everything is given back");
        assert!(!drain.has_records());
        let counts = counts(&self.expected);
        assert_eq!(self.seen.counts, counts);
        assert_eq!(drain.lost(), counts.lost);
        assert_eq!(self.seen.received.given, self.log.kinds);
    }
}

fn counts(events: &[Event]) -> QueueCounts {
    let mut counts = QueueCounts::default();
    for event in events {
        match *event {
            Event::Record { .. } => counts.records += 1,
            Event::Lost { count } => counts.lost = counts.lost.wrapping_add(count),
            Event::Malformed { bytes, .. } => {
                counts.malformed += 1;
                counts.malformed_bytes += bytes;
            }
        }
    }
    counts
}

/// How a consumer takes records out of a batch.
#[derive(Debug)]
enum Taking {
    /// One after another, like consumers that look at each record.
    Each,
    /// Takes a few, and leaves the others to `record`.
    Some,
    /// Takes all of them even after a break, and then breaks.
    All,
    /// Looks at the kind first, as [`EvHandlers`](crate::EvHandlers) does.
    ByKind,
}

#[derive(Debug)]
struct Log {
    received: Received<Event>,
    /// Counts over all inputs, like the drain's own counts.
    kinds: KindCounts,
    taking: Taking,
}

impl Log {
    fn restart(&mut self, every: u8, taking: u8) {
        self.received.restart(every);
        self.taking = match taking & 3 {
            0 => Taking::Each,
            1 => Taking::Some,
            2 => Taking::All,
            _ => Taking::ByKind,
        };
    }
}

impl Consumer for Log {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        assert_eq!(cpu, CPU);
        assert!(record.payload.as_ptr().addr().is_multiple_of(8), "payloads are 8-aligned");
        self.kinds.add(record.kind, 1);
        self.received.add(Event::of(record))
    }

    fn batch(&mut self, cpu: u32, batch: &mut Batch<'_>) -> ControlFlow<()> {
        match self.taking {
            Taking::Each => batch.try_for_each(|record| self.record(cpu, record)),
            Taking::Some => batch.take(2).try_for_each(|record| self.record(cpu, record)),
            Taking::All => {
                let mut flow = ControlFlow::Continue(());
                for record in batch {
                    let this = self.record(cpu, record);
                    flow = if flow.is_break() { flow } else { this };
                }
                flow
            }
            Taking::ByKind => {
                while let Some(kind) = batch.next_kind()
                    && let Some(record) = batch.next()
                {
                    assert_eq!(record.kind, kind);
                    self.record(cpu, record)?;
                }
                ControlFlow::Continue(())
            }
        }
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.received.add(Event::Lost { count: loss.count })
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        let Malformed { bytes, reason, .. } = malformed;
        self.received.add(Event::Malformed { bytes, reason })
    }
}

/// Reads contiguous perf records to the end.
fn read_all(mut bytes: &[u8], events: &mut Vec<Event>) {
    while !bytes.is_empty() {
        let kind = u32_at(bytes, 0);
        let size = usize::from(bytes[6]) | usize::from(bytes[7]) << 8;
        if size < 8 || !size.is_multiple_of(8) || size > bytes.len() {
            let (bytes, reason) = (bytes.len() as u64, MalformedReason::RecordSize);
            events.push(Event::Malformed { bytes, reason });
            return;
        }
        let (record, rest) = bytes.split_at(size);
        if let Err(reason) = read_one(kind, record, events) {
            events.push(Event::Malformed { bytes: size as u64, reason });
        }
        bytes = rest;
    }
}

fn read_one(kind: u32, record: &[u8], events: &mut Vec<Event>) -> Result<(), MalformedReason> {
    let count_at = match kind {
        2 => 16,
        13 => 8,
        9 => {
            if record.len() < 12 || u32_at(record, 8) as usize > record.len() - 12 {
                return Err(MalformedReason::RecordBody);
            }
            let block = &record[12..12 + u32_at(record, 8) as usize];
            return read_block(block, events).map_err(MalformedReason::Block);
        }
        _ => return Ok(()),
    };
    if record.len() < count_at + 8 {
        return Err(MalformedReason::RecordBody);
    }
    events.push(Event::Lost { count: u64_at(record, count_at) });
    Ok(())
}

fn read_block(block: &[u8], events: &mut Vec<Event>) -> Result<(), BlockError> {
    if block.len() < 4 {
        return Err(BlockError::NoPrefix { bytes: block.len() });
    }
    let total = (usize::from(block[0]) | usize::from(block[1]) << 8) * 8;
    let records = &block[4..];
    if total > records.len() {
        return Err(BlockError::Overlong { claimed: total, bytes: records.len() });
    }
    let mut at = 0;
    while at < total {
        let left = total - at;
        let len = if left < 16 { 0 } else { u32_at(records, at + 4) as usize };
        let claimed = 16 + len.next_multiple_of(8);
        if claimed > left {
            return Err(BlockError::RecordOverlong { at, claimed, bytes: left });
        }
        let payload = &records[at + 16..at + 16 + len];
        events.push(Event::Record {
            kind: RecordKind(u32_at(records, at)),
            time: u64_at(records, at + 8),
            len,
            bytes: digest(payload),
        });
        at += claimed;
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("it is as long"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("it is as long"))
}
