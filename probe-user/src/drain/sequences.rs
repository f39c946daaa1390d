//! Whatever is written, and however a consumer breaks or panics meanwhile: what is given is what a
//! plain queue gives.

use super::*;
use crate::ring::memory::MemoryRing;
use probe_common::{BlockPrefix, BlockWriter, RawRecord, RecordKind};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Any two of them differ in what the drain counts: two users' kinds, one of the toolkit's, and one
/// that nobody can have.
const KINDS: [RecordKind; 4] =
    [RecordKind::user(0), RecordKind::user(191), RecordKind(1), RecordKind(u32::MAX)];

#[derive(Clone, Debug)]
enum Step {
    Write(Write),
    Drain { budget: usize, stop: Option<Stop>, leaves: Leaves },
}

/// One perf record.
#[derive(Clone, Debug)]
enum Write {
    /// A block of records, by index in [`KINDS`] and length. `cut` claims one record more than there
    /// is; `alone` says that their programs have not counted them.
    Block {
        records: Vec<(usize, usize)>,
        cut: bool,
        alone: bool,
    },
    Lost(u64),
    LostSamples(u64),
    Other {
        words: u16,
    },
    /// A sample whose raw size is past its end.
    BadBody,
    /// A sample without a block's prefix.
    BadBlock,
    /// A size that cannot be: nothing tells where the next record starts.
    BadSize {
        size: u16,
    },
}

/// What a consumer does at the event after so many.
#[derive(Clone, Copy, Debug)]
struct Stop {
    after: usize,
    panics: bool,
}

/// What a consumer leaves in a batch for `record`.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    Nothing,
    AllButOne,
    /// Nothing, whether it is to break or not; then it breaks.
    NothingAndBreaks,
}

/// What a consumer is given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Record { kind: RecordKind, serial: u64, payload: Vec<u8> },
    Lost(u64),
    Malformed { bytes: u64, reason: MalformedReason },
}

/// A perf record in the plain queue.
#[derive(Debug)]
struct Entry {
    bytes: u64,
    events: VecDeque<Event>,
    /// Everything up to the head goes with it.
    takes_all: bool,
    /// Its records were emitted alone.
    alone: bool,
}

/// The plain queue, and the consumer that compares.
#[derive(Debug, Default)]
struct Model {
    queue: VecDeque<Entry>,
    counts: QueueCounts,
    by_kind: Given,
    given: usize,
    stop: Option<(usize, bool)>,
    leaves: Option<Leaves>,
}

impl Model {
    /// The next event, once.
    fn next(&mut self) -> Option<Event> {
        // Records that say nothing.
        while self.queue.front().is_some_and(|entry| entry.events.is_empty() && !entry.takes_all) {
            self.queue.pop_front();
        }
        let entry = self.queue.front_mut()?;
        if entry.takes_all {
            let bytes = self.queue.drain(..).map(|entry| entry.bytes).sum();
            return Some(Event::Malformed { bytes, reason: MalformedReason::RecordSize });
        }
        let event = entry.events.pop_front();
        if let Some(Event::Record { kind, .. }) = event {
            self.by_kind.add(kind, 1, entry.alone);
        }
        event
    }

    fn give(&mut self, event: Event) -> ControlFlow<()> {
        let expected = self.next();
        assert_eq!(Some(&event), expected.as_ref());
        match event {
            Event::Record { .. } => self.counts.records += 1,
            Event::Lost(count) => self.counts.lost += count,
            Event::Malformed { bytes, .. } => {
                self.counts.malformed += 1;
                self.counts.malformed_bytes += bytes;
            }
        }
        self.given += 1;
        match self.stop {
            Some((at, panics)) if at == self.given => {
                assert!(!panics, "{ON_PURPOSE}");
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

const ON_PURPOSE: &str = "on purpose";

impl Consumer for Model {
    fn record(&mut self, _: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        let RawRecord { kind, time: serial, payload } = record;
        self.give(Event::Record { kind, serial, payload: payload.to_vec() })
    }

    fn batch(&mut self, cpu: u32, batch: &mut Batch<'_>) -> ControlFlow<()> {
        match self.leaves {
            Some(Leaves::AllButOne) => {
                batch.take(1).try_for_each(|record| self.record(cpu, record))
            }
            Some(Leaves::NothingAndBreaks) => {
                batch.for_each(|record| {
                    let _ = self.record(cpu, record);
                });
                ControlFlow::Break(())
            }
            _ => batch.try_for_each(|record| self.record(cpu, record)),
        }
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.give(Event::Lost(loss.count))
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        let Malformed { bytes, reason, .. } = malformed;
        self.give(Event::Malformed { bytes, reason })
    }
}

/// Writes perf records: each record of a block has a serial number for its time.
#[derive(Debug, Default)]
struct Writer {
    serial: u64,
    longest: u64,
}

impl Writer {
    /// The perf record, and what is to come out of it.
    fn encode(&mut self, write: &Write) -> (Vec<u8>, Entry) {
        let (mut events, mut takes_all) = (VecDeque::new(), false);
        let alone = matches!(write, Write::Block { alone: true, .. });
        let bytes = match write {
            Write::Block { records, cut, .. } => {
                let seq = if alone { BlockPrefix::alone(0).seq } else { 0 };
                let (block, mut found) = self.block(records, *cut, seq);
                let bytes = sample(block.len() as u32, &block);
                if *cut {
                    let at = block.len() - 4 - 8;
                    let error = BlockError::RecordOverlong { at, claimed: 16, bytes: 8 };
                    found.push_back(malformed(&bytes, MalformedReason::Block(error)));
                }
                events = found;
                bytes
            }
            Write::Lost(count) => {
                events.push_back(Event::Lost(*count));
                perf_record(2, &[[0; 8], count.to_ne_bytes()].concat())
            }
            Write::LostSamples(count) => {
                events.push_back(Event::Lost(*count));
                perf_record(13, &count.to_ne_bytes())
            }
            Write::Other { words } => perf_record(4, &vec![0x5a; usize::from(*words) * 8]),
            Write::BadBody => {
                let bytes = sample(13, &[0; 12]);
                events.push_back(malformed(&bytes, MalformedReason::RecordBody));
                bytes
            }
            Write::BadBlock => {
                let bytes = sample(3, &[0; 4]);
                let error = BlockError::NoPrefix { bytes: 3 };
                events.push_back(malformed(&bytes, MalformedReason::Block(error)));
                bytes
            }
            Write::BadSize { size } => {
                takes_all = true;
                let mut bytes = perf_record(9, &[0; 8]);
                bytes[6..8].copy_from_slice(&size.to_ne_bytes());
                bytes
            }
        };
        let entry = Entry { bytes: bytes.len() as u64, events, takes_all, alone };
        (bytes, entry)
    }

    fn block(
        &mut self,
        records: &[(usize, usize)],
        cut: bool,
        seq: u16,
    ) -> (Vec<u8>, VecDeque<Event>) {
        let mut bytes = [0; 1 << 12];
        let mut writer = BlockWriter::new(&mut bytes, seq).unwrap();
        let mut events = VecDeque::new();
        for &(kind, len) in records {
            self.serial += 1;
            let (kind, serial) = (KINDS[kind], self.serial);
            let payload: Vec<u8> = (0..len as u64).map(|n| (serial * 31 + n) as u8).collect();
            assert!(writer.push(kind, serial, &payload));
            events.push_back(Event::Record { kind, serial, payload });
        }
        let mut block = writer.finish().to_vec();
        if cut {
            // Half of a header.
            block.extend([0; 8]);
            let words = ((block.len() - 4) / 8) as u16;
            block[..2].copy_from_slice(&words.to_ne_bytes());
        }
        (block, events)
    }
}

fn malformed(bytes: &[u8], reason: MalformedReason) -> Event {
    Event::Malformed { bytes: bytes.len() as u64, reason }
}

fn sample(raw: u32, data: &[u8]) -> Vec<u8> {
    let mut body = [&raw.to_ne_bytes(), data].concat();
    // The kernel pads with stale bytes.
    body.resize(body.len().next_multiple_of(8), 0xa5);
    perf_record(9, &body)
}

fn perf_record(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = (8 + body.len()) as u16;
    [&kind.to_ne_bytes()[..], &[0; 2], &size.to_ne_bytes(), body].concat()
}

fn write() -> impl Strategy<Value = Write> {
    let records = |most| prop::collection::vec((0..KINDS.len(), 0usize..40), 1..most);
    prop_oneof![
        12 => (records(4), any::<bool>()).prop_map(|(records, alone)| sound(records, alone)),
        6 => (records(12), any::<bool>()).prop_map(|(records, alone)| sound(records, alone)),
        2 => (records(4), any::<bool>(), any::<bool>()).prop_map(|(mut records, empty, alone)| {
            if empty {
                records.clear();
            }
            Write::Block { records, cut: true, alone }
        }),
        2 => (1u64..1000).prop_map(Write::Lost),
        1 => (1u64..1000).prop_map(Write::LostSamples),
        2 => (0u16..5).prop_map(|words| Write::Other { words }),
        1 => Just(Write::BadBody),
        1 => Just(Write::BadBlock),
        1 => prop::sample::select(vec![0, 1, 7, 12, u16::MAX]).prop_map(|size| Write::BadSize { size }),
    ]
}

fn sound(records: Vec<(usize, usize)>, alone: bool) -> Write {
    Write::Block { records, cut: false, alone }
}

fn step() -> impl Strategy<Value = Step> {
    let budget = prop_oneof![Just(1usize << 30), 1usize..200, Just(0)];
    let stop = prop::option::of((1usize..12, any::<bool>()));
    let stop = stop.prop_map(|stop| stop.map(|(after, panics)| Stop { after, panics }));
    let leaves = prop_oneof![
        3 => Just(Leaves::Nothing),
        2 => Just(Leaves::AllButOne),
        1 => Just(Leaves::NothingAndBreaks),
    ];
    prop_oneof![
        3 => write().prop_map(Step::Write),
        2 => (budget, stop, leaves)
            .prop_map(|(budget, stop, leaves)| Step::Drain { budget, stop, leaves }),
    ]
}

/// Places at which positions are ordinary, wrap around the ring, and wrap themselves.
fn starts() -> impl Strategy<Value = u64> {
    let near_zero = 0u64..64;
    prop_oneof![near_zero.clone(), near_zero.prop_map(|n| 0u64.wrapping_sub(n)), any::<u64>()]
        .prop_map(|at| at & !7)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_event_is_given_once_and_in_order(
        size in 6u32..=12,
        start in starts(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let size = 1usize << size;
        let mut drain = Drain::new(0, MemoryRing::new(size, start), start);
        let (mut model, mut seen, mut writer) =
            (Model::default(), Seen::default(), Writer::default());
        // Whether the next step may give back more than a stretch.
        let mut skips = false;
        for step in steps {
            match step {
                Step::Write(write) => {
                    let (bytes, entry) = writer.encode(&write);
                    if drain.memory_mut().write(&bytes) {
                        writer.longest = writer.longest.max(entry.bytes);
                        skips |= entry.takes_all;
                        model.queue.push_back(entry);
                    }
                }
                Step::Drain { budget, stop, leaves } => {
                    model.stop = stop.map(|stop| (model.given + stop.after, stop.panics));
                    model.leaves = Some(leaves);
                    let before = model.given;
                    let outcome = catch_unwind(AssertUnwindSafe(|| {
                        drain.run(&mut seen, &mut model, budget)
                    }));
                    match outcome {
                        Ok(drained) => {
                            let ring = drain.memory_mut();
                            prop_assert_eq!(drained.more, ring.tail != ring.head);
                            prop_assert!(budget > 0 || model.given == before);
                        }
                        Err(panic) => {
                            let why = panic.downcast_ref::<String>().map(String::as_str);
                            prop_assert_eq!(why, Some(ON_PURPOSE));
                            // What was consumed is given back by the next drain.
                            skips = true;
                        }
                    }
                }
            }
            prop_assert_eq!(seen.counts, model.counts);
            prop_assert_eq!(&seen.given, &model.by_kind);
            let longest = drain.memory_mut().longest_step;
            prop_assert!(skips || longest < size as u64 / 4 + writer.longest.max(1), "{longest}");
        }
        (model.stop, model.leaves) = (None, None);
        let drained = drain.run(&mut seen, &mut model, 1 << 30);
        prop_assert!(drained.flow.is_continue() && !drained.more);
        prop_assert!(at_end(&model));
        prop_assert_eq!(seen.counts, model.counts);
        prop_assert_eq!(seen.given, model.by_kind);
        let ring = drain.memory_mut();
        prop_assert_eq!(ring.tail, ring.head, "everything is given back");
    }
}

/// Whether nothing is to be given any more.
fn at_end(model: &Model) -> bool {
    model.queue.iter().all(|entry| entry.events.is_empty() && !entry.takes_all)
}
