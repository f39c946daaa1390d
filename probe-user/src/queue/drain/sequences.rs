//! Whatever is written, and however a consumer breaks or panics meanwhile, the drain delivers what a plain
//! queue would deliver.

use super::*;
use crate::queue::batch::Batch;
use crate::queue::counts::{KindCounts, QueueCounts};
use crate::queue::notices::{Loss, Malformed};
use probe_common::{BlockError, BlockWriter, RawRecord, RecordKind};
use probe_sys::ring::memory::MemoryRing;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The drain counts each of these separately: two user kinds, one kind of the toolkit, and one that no
/// program can emit.
const KINDS: [RecordKind; 4] =
    [RecordKind::user(0), RecordKind::user(95), RecordKind(1), RecordKind(u32::MAX)];

#[derive(Clone, Debug)]
enum Step {
    Write(Write),
    Drain { budget: usize, stop: Option<Stop>, taking: Taking },
}

/// One perf record.
#[derive(Clone, Debug)]
enum Write {
    /// A block of records, each an index into [`KINDS`] and a length. If `cut` is set, the block claims one
    /// record more than it has.
    Block {
        records: Vec<(usize, usize)>,
        cut: bool,
    },
    Lost(u64),
    LostSamples(u64),
    /// A perf record that readers ignore, with a body of this many words.
    Other(u16),
    /// A sample whose raw size reaches past its end.
    BadBody,
    /// A sample without a block prefix.
    BadBlock,
    /// An impossible size: nothing shows where the next record starts.
    BadSize(u16),
}

/// Makes a consumer break or panic at the `after`th event.
#[derive(Clone, Copy, Debug)]
struct Stop {
    after: usize,
    panics: bool,
}

/// How a consumer takes records out of a batch.
#[derive(Clone, Copy, Debug, Default)]
enum Taking {
    /// By the method of the trait, for consumers that do not implement it.
    Trait,
    #[default]
    All,
    /// Leaves all but one to `record`.
    One,
    /// Takes every record, even after a break, and then breaks.
    AllAndBreak,
}

/// What a consumer receives.
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
    /// The size is impossible, so everything up to the head is skipped with this record.
    takes_all: bool,
}

/// The plain queue, and the consumer that compares the drain with it.
#[derive(Debug, Default)]
struct Model {
    queue: VecDeque<Entry>,
    counts: QueueCounts,
    by_kind: KindCounts,
    given: usize,
    stop: Option<(usize, bool)>,
    /// The consumer broke in this drain.
    has_broken: bool,
    taking: Taking,
}

impl Model {
    /// Removes and returns the next event.
    fn next(&mut self) -> Option<Event> {
        // Skip perf records without events.
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
            self.by_kind.add(kind, 1);
        }
        event
    }

    fn give(&mut self, event: Event) -> ControlFlow<()> {
        assert!(!self.has_broken || matches!(self.taking, Taking::AllAndBreak), "after a break");
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
                if panics {
                    // Without the message of a panic: there are thousands.
                    resume_unwind(Box::new(ON_PURPOSE));
                }
                self.has_broken = true;
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
        match self.taking {
            Taking::One => batch.take(1).try_for_each(|record| self.record(cpu, record)),
            Taking::AllAndBreak => {
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

/// The same consumer without a method for batches.
struct ByTrait<'m>(&'m mut Model);

impl Consumer for ByTrait<'_> {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.0.record(cpu, record)
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.0.lost(loss)
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.0.malformed(malformed)
    }
}

/// Writes perf records. The time of each record in a block is its serial number.
#[derive(Debug, Default)]
struct Writer {
    serial: u64,
    longest: u64,
}

impl Writer {
    /// The perf record, and what must come out of it.
    fn encode(&mut self, write: &Write) -> (Vec<u8>, Entry) {
        let (mut events, mut takes_all) = (VecDeque::new(), false);
        let bytes = match write {
            Write::Block { records, cut } => {
                let (block, mut found) = self.block(records, *cut);
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
            Write::Other(words) => perf_record(4, &vec![0x5a; usize::from(*words) * 8]),
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
            Write::BadSize(size) => {
                takes_all = true;
                let mut bytes = perf_record(9, &[0; 8]);
                bytes[6..8].copy_from_slice(&size.to_ne_bytes());
                bytes
            }
        };
        let entry = Entry { bytes: bytes.len() as u64, events, takes_all };
        (bytes, entry)
    }

    fn block(&mut self, records: &[(usize, usize)], cut: bool) -> (Vec<u8>, VecDeque<Event>) {
        let mut bytes = [0; 1 << 12];
        let mut writer = BlockWriter::new(&mut bytes, 0).unwrap();
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
            // Half a header.
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
    // Records in a row are often of the same kind and length.
    let kind = prop_oneof![Just(0), 0..KINDS.len()];
    let record = (kind, prop_oneof![Just(8usize), 0usize..40]);
    let records = |most| prop::collection::vec(record.clone(), 1..most);
    prop_oneof![
        12 => records(4).prop_map(sound),
        6 => records(12).prop_map(sound),
        2 => (records(4), any::<bool>()).prop_map(|(mut records, empty)| {
            if empty {
                records.clear();
            }
            Write::Block { records, cut: true }
        }),
        2 => (1u64..1000).prop_map(Write::Lost),
        1 => (1u64..1000).prop_map(Write::LostSamples),
        2 => (0u16..5).prop_map(Write::Other),
        1 => Just(Write::BadBody),
        1 => Just(Write::BadBlock),
        1 => prop::sample::select(vec![0, 1, 7, 12, u16::MAX]).prop_map(Write::BadSize),
    ]
}

fn sound(records: Vec<(usize, usize)>) -> Write {
    Write::Block { records, cut: false }
}

fn step() -> impl Strategy<Value = Step> {
    let budget = prop_oneof![Just(1usize << 30), 1usize..200, Just(0)];
    let stop = prop::option::of((1usize..12, any::<bool>()));
    let stop = stop.prop_map(|stop| stop.map(|(after, panics)| Stop { after, panics }));
    let taking = prop_oneof![
        3 => Just(Taking::Trait),
        2 => Just(Taking::All),
        2 => Just(Taking::One),
        1 => Just(Taking::AllAndBreak),
    ];
    prop_oneof![
        3 => write().prop_map(Step::Write),
        2 => (budget, stop, taking)
            .prop_map(|(budget, stop, taking)| Step::Drain { budget, stop, taking }),
    ]
}

/// Starting positions: ordinary ones, ones about to wrap around the ring, and ones about to overflow.
fn starts() -> impl Strategy<Value = u64> {
    let near_zero = 0u64..64;
    prop_oneof![near_zero.clone(), near_zero.prop_map(|n| 0u64.wrapping_sub(n)), any::<u64>()]
        .prop_map(|at| at & !7)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_event_is_delivered_once_and_in_order(
        size in 6u32..=12,
        start in starts(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let size = 1usize << size;
        let mut drain = Drain::new(0, MemoryRing::new(size, start), start);
        let (mut model, mut seen, mut writer) =
            (Model::default(), Seen::default(), Writer::default());
        // Whether the next step may hand back more than a stretch.
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
                Step::Drain { budget, stop, taking } => {
                    model.stop = stop.map(|stop| (model.given + stop.after, stop.panics));
                    (model.taking, model.has_broken) = (taking, false);
                    let before = model.given;
                    let outcome = catch_unwind(AssertUnwindSafe(|| match taking {
                        Taking::Trait => drain.run(&mut seen, &mut ByTrait(&mut model), budget),
                        _ => drain.run(&mut seen, &mut model, budget),
                    }));
                    match outcome {
                        Ok(drained) => {
                            let ring = drain.memory_mut();
                            prop_assert_eq!(drained.more, ring.tail != ring.head);
                            if !matches!(taking, Taking::AllAndBreak) {
                                prop_assert_eq!(drained.flow.is_break(), model.has_broken);
                            }
                            prop_assert!(budget > 0 || model.given == before);
                        }
                        Err(panic) => {
                            if panic.downcast_ref() != Some(&ON_PURPOSE) {
                                resume_unwind(panic);
                            }
                            // The next drain hands back what was consumed.
                            skips = true;
                        }
                    }
                }
            }
            prop_assert_eq!(seen.counts, model.counts);
            prop_assert_eq!(&seen.received.given, &model.by_kind);
            let longest = drain.memory_mut().longest_step;
            prop_assert!(skips || longest < size as u64 / 4 + writer.longest.max(1), "{longest}");
        }
        // A consumer that breaks after every batch reaches the end, too.
        (model.stop, model.taking) = (None, Taking::AllAndBreak);
        let mut drains = 0;
        while drain.run(&mut seen, &mut model, 1 << 30).more {
            drains += 1;
            prop_assert!(drains <= size / 8, "no progress");
        }
        prop_assert!(at_end(&model));
        prop_assert_eq!(seen.counts, model.counts);
        prop_assert_eq!(&seen.received.given, &model.by_kind);
        let ring = drain.memory_mut();
        prop_assert_eq!(ring.tail, ring.head, "everything is given back");
    }
}

/// Whether nothing is left to deliver.
fn at_end(model: &Model) -> bool {
    model.queue.iter().all(|entry| entry.events.is_empty() && !entry.takes_all)
}
