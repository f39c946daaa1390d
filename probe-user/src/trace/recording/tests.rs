//! What is recorded is read again, and nothing else is.

use super::header::Header;
use super::{Recorder, Recording, RecordingError};
use crate::consumer::{Consumer, CpuChange, Loss, Malformed, MalformedReason};
use crate::error::OpenError;
use crate::fuzzing;
use crate::trace::event::tests::Hit;
use crate::trace::event::{Addresses, Value};
use crate::trace::ledger::Ledger;
use crate::trace::output::{Format, Printer};
use crate::trace::pieces::tests::Full;
use crate::trace::probe::Probe;
use crate::trace::resolve::PlannedField;
use crate::trace::shape::{Enumeration, Field, Shape};
use crate::trace::symbolize::{Symbols, Whose};
use crate::trace::{Account, Origin};
use probe_common::{BlockError, RawRecord, RecordKind};
use proptest::prelude::*;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What was given, in a line each.
#[derive(Default)]
struct Log {
    given: Vec<String>,
    break_at: Option<usize>,
}

impl Log {
    fn note(&mut self, what: String) -> ControlFlow<()> {
        self.given.push(what);
        if self.break_at == Some(self.given.len()) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl Consumer for Log {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.note(format!("{cpu} {record:?}"))
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.note(format!("{loss:?}"))
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.note(format!("{malformed:?}"))
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        let _ = self.note(change.to_string());
    }
}

fn probes() -> Vec<Probe> {
    let field = |(slot, name, shape): (u8, &str, Shape)| PlannedField {
        field: Field { name: name.to_owned(), shape },
        slot,
    };
    let fields = [(1, "name", Shape::Text), (0, "count", Shape::Unsigned)].map(field);
    vec![Probe::new("vfs_read(name:str, count)/count > 1/".parse().unwrap(), fields.into())]
}

fn hit(number: u64) -> Hit {
    Hit::new(b"cat", 0, &[Value::Integer(number), Value::Bytes(b"/etc/hostname")])
}

fn event(to: &mut impl Consumer, cpu: u32, time: u64) {
    let hit = hit(time);
    let _ = to.record(cpu, RawRecord { time, ..hit.record() });
}

/// Gives a trace: events of two CPUs, in no order of time, and whatever else may happen.
fn give(to: &mut impl Consumer) {
    for time in [10, 11, 15] {
        event(to, 0, time);
    }
    for time in [8, 12] {
        event(to, 1, time);
    }
    let _ = to.lost(Loss { cpu: 1, count: 2, records: Some(9) });
    let _ = to.lost(Loss { cpu: 1, count: 2, records: None });
    let block = MalformedReason::Block;
    for reason in [
        MalformedReason::Positions,
        MalformedReason::RecordSize,
        MalformedReason::RecordBody,
        block(BlockError::NoPrefix { bytes: 3 }),
        block(BlockError::Overlong { claimed: 9, bytes: 8 }),
        block(BlockError::RecordOverlong { at: 1, claimed: 9, bytes: 8 }),
        MalformedReason::Payload { kind: RecordKind::user(1), len: 2, needed: 3 },
    ] {
        let _ = to.malformed(Malformed { cpu: 0, bytes: 8, reason });
    }
    let error = OpenError::Poll { source: io::ErrorKind::OutOfMemory.into() };
    to.cpu_changed(CpuChange::Covered { cpu: 1 });
    to.cpu_changed(CpuChange::Offline { cpu: 1 });
    to.cpu_changed(CpuChange::Uncovered { cpu: 1, error: &error });
    // One of a kind that nobody knows, without payload.
    let _ = to.record(1, RawRecord { kind: RecordKind::user(7), time: 13, payload: &[] });
    event(to, 1, 14);
}

fn ledger() -> Ledger {
    let missed = vec![crate::trace::Missed { by_kernel: Some(3), ..Default::default() }];
    Ledger { not_followed: 2, missed, ..Ledger::default() }
}

fn recorded() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut recorder = Recorder::new(&mut bytes, probes(), Symbols::none());
    recorder.start().unwrap();
    give(&mut recorder);
    assert_eq!(recorder.recorded(), 6);
    recorder.finish(&ledger()).unwrap();
    bytes
}

/// What is given of it, and how it ends.
fn replayed(bytes: &[u8]) -> (Vec<String>, Result<(), RecordingError>) {
    let mut log = Log::default();
    let end = Recording::open(bytes).and_then(|mut recording| recording.replay(&mut log));
    (log.given, end.map(drop))
}

#[test]
fn what_was_recorded_is_given_again() {
    let mut log = Log::default();
    give(&mut log);
    let bytes = recorded();
    assert_eq!(bytes.len() % 8, 0);
    let mut recording = Recording::open(&*bytes).unwrap();
    assert_eq!(recording.probes(), probes());
    assert_eq!(recording.origin().program, Origin::here().program);
    assert_eq!(recording.origin().kernel, Origin::here().kernel);
    let mut again = Log::default();
    assert!(recording.replay(&mut again).unwrap().is_continue());
    assert_eq!(again.given, log.given);
    let account = recording.close().unwrap();
    assert_eq!(account, Account::from(&ledger()));
    assert_eq!(account.to_string(), ledger().to_string());
}

#[test]
fn what_is_printed_later_is_what_is_printed_at_once() {
    let origin = Origin { program: "p".into(), kernel: "k".into(), realtime_offset: 7 };
    let bytes = {
        let mut bytes = Vec::new();
        let mut recorder = Recorder::new(&mut bytes, probes(), Symbols::none());
        recorder = recorder.origin(origin.clone());
        recorder.start().unwrap();
        give(&mut recorder);
        recorder.finish(&ledger()).unwrap();
        bytes
    };
    for format in [Format::Table, Format::Jsonl, Format::Perfetto] {
        let (mut live, mut later) = (Vec::new(), Vec::new());
        let mut printer = Printer::new(&mut live, format, probes()).origin(origin.clone());
        printer.start().unwrap();
        give(&mut printer);
        printer.finish(&ledger()).unwrap();
        let mut recording = Recording::open(&*bytes).unwrap();
        let mut printer = Printer::new(&mut later, format, recording.probes().to_vec())
            .origin(recording.origin().clone());
        printer.start().unwrap();
        assert!(recording.replay(&mut printer).unwrap().is_continue());
        printer.finish(recording.close().unwrap()).unwrap();
        assert_eq!(String::from_utf8(later), String::from_utf8(live));
    }
}

#[test]
fn every_beginning_is_given_as_far_as_it_goes() {
    let bytes = recorded();
    let (whole, _) = replayed(&bytes);
    let mut longest = 0;
    for end in 0..bytes.len() {
        let (given, how) = replayed(&bytes[..end]);
        assert!(whole.starts_with(&given), "{end} {given:?}");
        match how {
            Err(RecordingError::NotARecording) => assert_eq!(end, 0),
            Err(RecordingError::Cut { at }) => assert_eq!(at, end as u64),
            how => panic!("the first {end} bytes: {how:?}"),
        }
        // Record by record, not section by section.
        assert!(given.len() <= longest + 1, "{end}");
        longest = longest.max(given.len());
    }
    assert_eq!(longest, whole.len());
}

#[test]
fn a_wrong_byte_is_survived() {
    let bytes = recorded();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut wrong = bytes.clone();
            wrong[at] ^= flip;
            fuzzing::recording(&wrong);
        }
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let bytes = recorded();
    let changed = |at: usize, byte: u8| {
        let mut changed = bytes.clone();
        changed[at] = byte;
        replayed(&changed).1.unwrap_err().to_string()
    };
    assert!(changed(0, 0).starts_with("it is no recording"));
    assert!(
        changed(8, 9)
            .starts_with("it has version 9 of the format, and this program reads version 1")
    );
    assert_eq!(changed(16, 99), "it is malformed at byte 16: there is no section of this sort");
    assert_eq!(changed(16, 2), "it is malformed at byte 32: it does not begin with what is traced");
    assert_eq!(changed(23, 1), "it is malformed at byte 16: there is no such CPU");
    assert!(changed(32, b'x').starts_with("it is malformed at byte 32: expected value"));
    assert!(changed(27, 0x7f).starts_with(&format!("it is cut off at byte {}", bytes.len())));
    let mut longer = bytes.clone();
    longer.push(0);
    let told = replayed(&longer).1.unwrap_err().to_string();
    let place = bytes.len();
    assert_eq!(
        told,
        format!("it is malformed at byte {place}: there is something behind the ledger")
    );
}

#[test]
fn a_replay_goes_on_where_the_consumer_broke() {
    let bytes = recorded();
    let (whole, _) = replayed(&bytes);
    for at in 1..whole.len() {
        // Nothing can break when a CPU comes or goes.
        if whole[at - 1].starts_with("CPU") {
            continue;
        }
        let mut recording = Recording::open(&*bytes).unwrap();
        let mut log = Log { break_at: Some(at), ..Log::default() };
        assert!(recording.replay(&mut log).unwrap().is_break());
        assert_eq!(log.given, whole[..at]);
        assert!(recording.replay(&mut log).unwrap().is_continue());
        assert_eq!(log.given, whole);
    }
}

#[test]
fn events_of_all_cpus_are_merged_by_time() {
    let bytes = recorded();
    let times = |log: &Log| {
        let time = |line: &String| line.split_once("time: ")?.1.split(',').next()?.parse().ok();
        log.given.iter().filter_map(time).collect::<Vec<u64>>()
    };
    let mut log = Log::default();
    let mut recording = Recording::open(&*bytes).unwrap();
    assert!(recording.replay_by_time(&mut log).unwrap().is_continue());
    assert_eq!(times(&log), [8, 10, 11, 12, 13, 14, 15]);
    assert_eq!(recording.close().unwrap().late, 0);
    // What a cut leaves is merged, too.
    let mut log = Log::default();
    let mut recording = Recording::open(&bytes[..bytes.len() - 8]).unwrap();
    assert!(recording.replay_by_time(&mut log).is_err());
    assert_eq!(times(&log), [8, 10, 11, 12, 13, 14, 15]);
}

#[test]
fn the_limit_is_the_number_of_events() {
    let mut bytes = Vec::new();
    let mut recorder = Recorder::new(&mut bytes, probes(), Symbols::none()).limit(Some(4));
    recorder.start().unwrap();
    give(&mut recorder);
    assert_eq!(recorder.recorded(), 4);
    recorder.finish(&ledger()).unwrap();
    assert_eq!(replayed(&bytes).0.len(), 4);
}

#[test]
fn a_full_disk_ends_it_and_only_what_is_there_counts() {
    let mut recorder = Recorder::new(Full(200 << 10), probes(), Symbols::none());
    recorder.start().unwrap();
    let hit = hit(1);
    let given = (0..100_000).take_while(|_| recorder.record(0, hit.record()).is_continue()).count();
    let counted = recorder.recorded();
    assert!(0 < counted && counted < given as u64, "{counted} of {given}");
    assert!(recorder.record(0, hit.record()).is_break() && recorder.caught_up().is_break());
    assert_eq!(recorder.finish(&ledger()).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(recorder.recorded(), counted);
}

#[test]
fn more_than_a_block_has_room_for_is_in_several() {
    let mut bytes = Vec::new();
    let mut recorder = Recorder::new(&mut bytes, probes(), Symbols::none());
    recorder.start().unwrap();
    let hit = hit(1);
    (0..5000).for_each(|_| assert!(recorder.record(3, hit.record()).is_continue()));
    recorder.finish(&ledger()).unwrap();
    let (given, end) = replayed(&bytes);
    assert!(given.len() == 5000 && end.is_ok() && given.iter().all(|one| *one == given[0]));
}

#[inline(never)]
extern "C" fn here() -> u64 {
    std::hint::black_box(7)
}

#[test]
fn names_are_those_of_the_recording() {
    assert_eq!(here(), 7);
    let at = here as extern "C" fn() -> u64 as usize as u64;
    let addresses = at.to_ne_bytes();
    let mut hit = Hit::new(b"self", 0, &[Value::Stack(Addresses::new(&addresses))]);
    hit.set_pid(std::process::id());
    let fields = vec![PlannedField {
        field: Field { name: "ustack".into(), shape: Shape::UserStack },
        slot: 0,
    }];
    let probes = vec![Probe::new("f".parse().unwrap(), fields)];
    let mut bytes = Vec::new();
    let symbols = Symbols::start(Whose::Processes).unwrap();
    let mut recorder = Recorder::new(&mut bytes, probes, symbols);
    recorder.start().unwrap();
    (0..3).for_each(|_| assert!(recorder.record(0, hit.record()).is_continue()));
    recorder.finish(&ledger()).unwrap();
    let mut recording = Recording::open(&*bytes).unwrap();
    let mut out = Vec::new();
    let mut printer = Printer::new(&mut out, Format::Table, recording.probes().to_vec())
        .symbols(recording.symbols());
    assert!(recording.replay(&mut printer).unwrap().is_continue());
    printer.finish(recording.close().unwrap()).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("here")).count(), 3, "{text}");
    // It is there once, however often it is needed.
    let name = b"is_return";
    assert_eq!(bytes.windows(name.len()).filter(|bytes| bytes == name).count(), 1);
}

#[test]
fn names_in_a_header_do_nothing_to_a_terminal() {
    let evil = "\u{1b}[2J";
    let enumeration =
        Enumeration { is_signed: false, names: vec![(1, evil.into()), (0, "A".into())] };
    let field = Field { name: evil.into(), shape: Shape::Enum(Arc::new(enumeration)) };
    let probe = Probe::new("f".parse().unwrap(), vec![PlannedField { field, slot: 0 }]);
    let evil_origin = Origin { program: evil.into(), kernel: evil.into(), realtime_offset: 0 };
    let mut bytes = Vec::new();
    let mut recorder = Recorder::new(&mut bytes, vec![probe], Symbols::none()).origin(evil_origin);
    recorder.start().unwrap();
    let event = Hit::new(b"a", 0, &[Value::Integer(1)]);
    assert!(recorder.record(0, event.record()).is_continue());
    recorder.finish(&ledger()).unwrap();
    for format in [Format::Table, Format::Jsonl, Format::Perfetto] {
        let mut recording = Recording::open(&*bytes).unwrap();
        let mut out = Vec::new();
        let mut printer = Printer::new(&mut out, format, recording.probes().to_vec())
            .origin(recording.origin().clone());
        printer.start().unwrap();
        assert!(recording.replay(&mut printer).unwrap().is_continue());
        printer.finish(recording.close().unwrap()).unwrap();
        assert!(!out.contains(&0x1b), "{}", String::from_utf8_lossy(&out));
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let names = prop::collection::btree_map(any::<u64>(), "[A-Z_]{1,9}", 0..4);
    let enumeration = (any::<bool>(), names).prop_map(|(is_signed, names)| {
        Shape::Enum(Arc::new(Enumeration { is_signed, names: names.into_iter().collect() }))
    });
    let others = prop::sample::select(vec![
        Shape::Unsigned,
        Shape::Signed,
        Shape::Hex,
        Shape::Bool,
        Shape::Char,
        Shape::Duration,
        Shape::Pointer,
        Shape::Symbol,
        Shape::Text,
        Shape::Bytes,
        Shape::KernelStack,
        Shape::UserStack,
        Shape::Result,
    ]);
    prop_oneof![1 => enumeration, 3 => others]
}

fn any_probe() -> impl Strategy<Value = Probe> {
    let spec = prop::sample::select(vec![
        "fuse:f+0x10",
        "kr:fuse:f/retval < 0/",
        "t:sched:sched_switch(a=prev_comm, b.c[3]:x32)/comm == \"\\xff\\\"\"/",
        "rt:x(arg0->a.b:str, bytes=arg1:bytes[16])",
        "uprobe:/usr/bin/a-b:main",
        "ksyscall:openat",
    ]);
    let names = prop::sample::select(vec!["f", "a:b", "main.(*T).Method", "f<u8>::g", "x/y/"]);
    let fields = prop::collection::vec(("[ -~]{1,9}", any::<u8>(), shapes()), 0..5);
    (spec, prop::option::of(names), fields, any::<bool>()).prop_map(
        |(spec, name, fields, is_call)| {
            let spec: crate::trace::ProbeSpec = spec.parse().unwrap();
            let spec = name.map_or(spec.clone(), |name| spec.named(name));
            let field = |(name, slot, shape)| PlannedField { field: Field { name, shape }, slot };
            let fields = fields.into_iter().map(field).collect();
            if is_call { Probe::call(spec, fields) } else { Probe::new(spec, fields) }
        },
    )
}

proptest! {
    #[test]
    fn any_probes_come_back_as_they_were(probes in prop::collection::vec(any_probe(), 0..4)) {
        let text = serde_json::to_string(&Header::new(Origin::here(), &probes)).unwrap();
        let header: Header = serde_json::from_str(&text).unwrap();
        let again = header.probes().unwrap();
        for (one, other) in again.iter().zip(&probes) {
            prop_assert_eq!(one.spec().to_string(), other.spec().to_string());
        }
        prop_assert_eq!(again, probes);
    }
}
