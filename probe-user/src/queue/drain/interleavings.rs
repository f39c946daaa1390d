//! Runs the drain concurrently with a producer, in every order of their steps and with every value that the
//! memory model allows a load to return. `loom` runs the production code of the drain on a ring whose
//! accesses it checks.
//!
//! The producer does what the kernel does in `__perf_output_begin()` and `perf_output_put_handle()`: load the
//! tail, check for room, write, store the head.

use super::*;
use crate::queue::notices::{Loss, Malformed};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use probe_common::{BlockWriter, RawRecord, RecordKind};
use probe_sys::ring::cursor::Geometry;
use std::cell::OnceCell;
use std::sync::Mutex;

const SIZE: usize = 128;
/// The size in bytes of a perf record that holds one record without payload. Four of them fill the ring.
const SPAN: usize = 32;
const WORD: usize = 8;
const KIND: RecordKind = RecordKind::user(0);

/// What the producer and the consumer share.
struct Shared {
    head: AtomicU64,
    tail: AtomicU64,
    /// One cell per word: `loom` detects when one side reads what the other may be writing. The bytes
    /// themselves are stored elsewhere, because lending a `&[u8]` out of these cells would be unsafe.
    words: [UnsafeCell<()>; SIZE / WORD],
    bytes: Mutex<[u8; SIZE]>,
}

const GEOMETRY: Geometry = Geometry::new(SIZE).expect("a power of two");

impl Shared {
    fn new(start: u64) -> Self {
        Self {
            head: AtomicU64::new(start),
            tail: AtomicU64::new(start),
            words: std::array::from_fn(|_| UnsafeCell::new(())),
            bytes: Mutex::new([0; SIZE]),
        }
    }

    /// The words that hold `len` bytes from position `at` on.
    fn words(&self, at: u64, len: usize) -> impl Iterator<Item = &UnsafeCell<()>> {
        let first = at as usize / WORD;
        (first..first + len / WORD).map(|word| &self.words[word % (SIZE / WORD)])
    }

    /// Marks bytes as being read, which must be safe at this point.
    fn note_read(&self, at: u64, len: usize) {
        self.words(at, len).for_each(|word| word.with(|_| ()));
    }

    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        self.note_read(at, len);
        let bytes = self.bytes.lock().unwrap();
        let (first, second) = GEOMETRY.span(at, len);
        [&bytes[first], &bytes[second]].concat()
    }

    fn write(&self, at: u64, data: &[u8]) {
        self.words(at, data.len()).for_each(|word| word.with_mut(|_| ()));
        let mut bytes = self.bytes.lock().unwrap();
        for (n, byte) in data.iter().enumerate() {
            bytes[(at + n as u64) as usize % SIZE] = *byte;
        }
    }
}

/// Emits `count` records whose times are their numbers. Returns the numbers of the records that found room.
fn produce(ring: &Shared, start: u64, count: u64) -> Vec<u64> {
    let (mut head, mut written) = (start, Vec::new());
    for number in 1..=count {
        // ORDERING: the kernel's writes depend on this load, which pairs with the drain's Release store.
        let tail = ring.tail.load(Ordering::Acquire);
        if head + SPAN as u64 - tail > SIZE as u64 {
            continue;
        }
        ring.write(head, &sample(number));
        head += SPAN as u64;
        // ORDERING: as the kernel's smp_wmb() and store, which pair with the drain's Acquire load.
        ring.head.store(head, Ordering::Release);
        written.push(number);
    }
    written
}

fn sample(number: u64) -> Vec<u8> {
    let mut bytes = [0; SPAN];
    let block = BlockWriter::new(&mut bytes, 0)
        .and_then(|mut writer| writer.push(KIND, number, &[]).then(|| writer.finish()));
    let block = block.expect("there is room");
    let raw = block.len() as u32;
    let size = (12 + block.len()) as u32;
    [&9u32.to_ne_bytes()[..], &(size << 16).to_ne_bytes(), &raw.to_ne_bytes(), block].concat()
}

/// The consumer's side of the ring.
struct Ring {
    shared: Arc<Shared>,
    published: u64,
    pieces: Pieces,
}

/// Copies of the bytes that were lent, kept for as long as a borrow of the ring can last.
#[derive(Default)]
struct Pieces {
    bytes: OnceCell<Vec<u8>>,
    next: OnceCell<Box<Pieces>>,
}

impl Pieces {
    fn keep(&self, bytes: Vec<u8>) -> &[u8] {
        match self.bytes.get() {
            Some(_) => self.next.get_or_init(Box::default).keep(bytes),
            None => self.bytes.get_or_init(|| bytes),
        }
    }
}

impl RingMemory for Ring {
    fn geometry(&self) -> Geometry {
        GEOMETRY
    }

    fn head(&self) -> u64 {
        // ORDERING: as RingPages::head().
        self.shared.head.load(Ordering::Acquire)
    }

    fn publish_tail(&mut self, tail: u64) {
        // The consumer could read the lent bytes until now.
        self.shared.note_read(self.published, (tail - self.published) as usize);
        self.published = tail;
        self.pieces = Pieces::default();
        // ORDERING: as RingPages::publish_tail().
        self.shared.tail.store(tail, Ordering::Release);
    }

    fn bytes<'r>(&'r self, at: u64, len: usize, scratch: &'r mut Scratch) -> &'r [u8] {
        scratch.join(&self.shared.read(at, len), &[])
    }

    fn piece(&self, at: u64, available: usize) -> &[u8] {
        let len = GEOMETRY.span(at, available).0.len();
        self.pieces.keep(self.shared.read(at, len))
    }
}

/// Collects the numbers of the records.
#[derive(Default)]
struct Numbers {
    given: Vec<u64>,
    breaks: bool,
}

impl Consumer for Numbers {
    fn record(&mut self, _: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        assert_eq!(record.kind, KIND);
        self.given.push(record.time);
        if self.breaks { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        panic!("{loss}")
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        panic!("{malformed}")
    }
}

/// Tries all interleavings of a producer of `count` records with `drains` drains, starting at position
/// `start`.
fn try_all(start: u64, count: u64, drains: usize, breaks: bool) {
    loom::model(move || {
        let shared = Arc::new(Shared::new(start));
        let producer = thread::spawn({
            let shared = Arc::clone(&shared);
            move || produce(&shared, start, count)
        });
        let pieces = Pieces::default();
        let mut drain = Drain::new(0, Ring { shared, published: start, pieces }, start);
        let (mut seen, mut numbers) = (Seen::default(), Numbers { given: Vec::new(), breaks });
        for _ in 0..drains {
            let _ = drain.run(&mut seen, &mut numbers, usize::MAX >> 1);
        }
        let written = producer.join().unwrap();
        numbers.breaks = false;
        let drained = drain.run(&mut seen, &mut numbers, usize::MAX >> 1);
        assert!(drained.flow.is_continue() && !drained.more);
        assert_eq!(numbers.given, written, "each once, in order, whole");
        assert_eq!(seen.counts.records, written.len() as u64);
        assert!(written.len() as u64 >= count.min((SIZE / SPAN) as u64), "there was room");
    });
}

/// More records than the ring holds, so that the producer overwrites what was handed back.
#[test]
fn no_record_is_torn_or_overwritten_in_any_order() {
    try_all(0, 5, 2, false);
}

/// A record begins at the end of the ring and ends at its start.
#[test]
fn no_record_that_wraps_is_torn_or_overwritten_in_any_order() {
    try_all(SIZE as u64 - 8, 5, 2, false);
}

/// Space is not handed back until the consumer has taken its records.
#[test]
fn no_record_is_lost_by_breaking_in_any_order() {
    try_all(SIZE as u64 - 24, 4, 2, true);
}
