//! Recordings are replayed as they were written, and anything else is rejected.

use super::format::{Preamble, Tag};
use super::header::Header;
use super::{Recorder, Recording, RecordingError};
use crate::fuzzing;
use crate::fuzzing::recording::{Log, replayed};
use crate::output::pieces::tests::Full;
use crate::output::tests::{probe, shapes};
use crate::output::{ClockChange, ClockChanges, Format, Printer, Time};
use crate::resolve::PlannedField;
use crate::resolve::event::tests::Hit;
use crate::resolve::event::{Addresses, Value};
use crate::resolve::names::{LONGEST, ValueNames};
use crate::resolve::probe::Probe;
use crate::resolve::shape::{Enumeration, Field, Shape};
use crate::session::ledger::TraceLedger;
use crate::symbolize::{Learnt, SymbolAccess, Symbols};
use crate::{Account, Origin};
use probe_common::tally::FailureClass;
use probe_common::{BlockError, RawRecord, Record, RecordKind};
use probe_tracer_common::trace::ProbeHit;
use probe_user::flight::Dump;
use probe_user::{Consumer, CpuChange, Failure, Loss, Malformed, MalformedReason, OpenError};
use proptest::prelude::*;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

const FORMATS: [Format; 3] = [Format::Table, Format::Jsonl, Format::Perfetto];

fn probes() -> Vec<Probe> {
    let field = |(slot, name, shape): (u8, &str, Shape)| {
        let names = ten().filter(|_| shape != Shape::Text);
        PlannedField::new(Field { name: name.to_owned(), names, shape }, slot)
    };
    let fields = [(1, "name", Shape::Text), (0, "count", Shape::Unsigned)].map(field);
    vec![Probe::new("vfs_read(name:str, count)/count > 1/".parse().unwrap(), fields.into())]
}

/// A field whose value 10 has a name.
fn ten() -> Option<Arc<ValueNames>> {
    let names = vec![(10, "TEN".to_owned())];
    Some(Arc::new(ValueNames::of_enumeration(&Enumeration { is_signed: false, names })))
}

fn hit(number: u64) -> Hit {
    Hit::new(b"cat", 0, &[Value::Integer(number), Value::Bytes(b"/etc/hostname")])
}

fn event(to: &mut impl Consumer, cpu: u32, time: u64) {
    let hit = hit(time);
    let _ = to.record(cpu, RawRecord { time, ..hit.record() });
}

/// Delivers a trace: events of two CPUs out of order, and everything else that may happen.
fn give(to: &mut impl Consumer) {
    to.dump(Dump::new(u64::MAX, 2, None));
    for time in [10, 11, 15] {
        event(to, 0, time);
    }
    for time in [8, 12] {
        event(to, 1, time);
    }
    let _ = to.lost(Loss::new(1, 2, Some(9)));
    let _ = to.lost(Loss::new(1, 2, None));
    for class in FailureClass::ALL {
        let _ = to.failed(Failure::new(1, class, 3));
    }
    let block = MalformedReason::Block;
    for reason in [
        MalformedReason::Positions,
        MalformedReason::RecordSize,
        MalformedReason::RecordBody,
        block(BlockError::NoPrefix { bytes: 3 }),
        block(BlockError::Overlong { claimed: 9, bytes: 8 }),
        block(BlockError::RecordOverlong { at: 1, claimed: 9, bytes: 8 }),
        MalformedReason::Payload { kind: RecordKind::user(1), len: 2, needed: 3 },
        MalformedReason::UnknownProbe { number: 5 },
    ] {
        let _ = to.malformed(Malformed::new(0, 8, reason));
    }
    let error = OpenError::Poll { cause: io::ErrorKind::OutOfMemory.into() };
    to.cpu_changed(CpuChange::Covered { cpu: 1 });
    to.cpu_changed(CpuChange::Offline { cpu: 1 });
    to.cpu_changed(CpuChange::Uncovered { cpu: 1, error: &error });
    event(to, 1, 13);
    event(to, 1, 14);
}

fn ledger() -> TraceLedger {
    let missed = vec![crate::Missed { by_kernel: Some(3), ..Default::default() }];
    TraceLedger { not_followed: 2, missed, ..TraceLedger::default() }
}

/// A recording of what `give` delivers to the recorder.
fn recording(
    probes: Vec<Probe>,
    symbols: Symbols,
    origin: Origin,
    give: impl FnOnce(&mut Recorder<&mut Vec<u8>>),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut recorder = Recorder::new(&mut bytes, probes, symbols).origin(origin);
    recorder.start().unwrap();
    give(&mut recorder);
    recorder.finish(&ledger()).unwrap();
    bytes
}

fn recorded() -> Vec<u8> {
    recording(probes(), Symbols::none(), Origin::here(), |recorder| {
        give(recorder);
        assert_eq!(recorder.recorded(), 7);
    })
}

/// The output of a replay.
fn printed(bytes: &[u8], format: Format) -> String {
    let mut out = Vec::new();
    let mut recording = Recording::open(bytes).unwrap();
    let mut printer = Printer::new(&mut out, format, recording.probes().to_vec())
        .origin(recording.origin().clone())
        .symbols(recording.symbols());
    printer.start().unwrap();
    assert!(recording.replay(&mut printer).unwrap().is_continue());
    printer.finish(recording.close().unwrap()).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_replay_delivers_what_was_recorded() {
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
    assert_eq!(again.lines, log.lines);
    let account = recording.close().unwrap();
    assert_eq!(account, Account::from(&ledger()));
    assert_eq!(account.to_string(), ledger().to_string());
}

#[test]
fn a_replay_prints_what_the_trace_printed() {
    let origin = Origin { program: "p".into(), kernel: "k".into(), realtime_offset: 7 };
    let bytes = recording(probes(), Symbols::none(), origin.clone(), |recorder| give(recorder));
    for format in FORMATS {
        let mut live = Vec::new();
        let mut printer = Printer::new(&mut live, format, probes()).origin(origin.clone());
        printer.start().unwrap();
        give(&mut printer);
        printer.finish(&ledger()).unwrap();
        assert_eq!(printed(&bytes, format), String::from_utf8(live).unwrap());
    }
}

#[test]
fn a_replay_has_the_wall_clock_of_each_event() {
    let mut bytes = Vec::new();
    let mut recorder = Recorder::new(&mut bytes, probes(), Symbols::none());
    recorder.start().unwrap();
    let (notes, changes) = ClockChanges::channel();
    recorder.follow(changes);
    // The events arrive after the change, like those in a ring that is read late.
    notes.note(ClockChange { since: 150, realtime_offset: 0 });
    event(&mut recorder, 0, 100);
    event(&mut recorder, 0, 200);
    recorder.finish(&ledger()).unwrap();
    let mut recording = Recording::open(&*bytes).unwrap();
    let mut text = Vec::new();
    let mut printer = Printer::new(&mut text, Format::Jsonl, probes())
        .origin(recording.origin().clone())
        .clock_changes(recording.clock_changes())
        .time(Time::Local);
    assert!(recording.replay_by_time(&mut printer).unwrap().is_continue());
    printer.finish(recording.close().unwrap()).unwrap();
    let text = String::from_utf8(text).unwrap();
    let in_1970: Vec<_> = text
        .lines()
        .filter(|line| line.contains("\"local\":\""))
        .map(|line| line.contains("\"local\":\"1970") || line.contains("\"local\":\"1969"))
        .collect();
    assert_eq!(in_1970, [false, true], "{text}");
}

#[test]
fn a_truncated_recording_is_replayed_as_far_as_it_goes() {
    let bytes = recorded();
    let (whole, _) = replayed(&bytes);
    let mut longest = 0;
    for end in 0..bytes.len() {
        let (lines, result) = replayed(&bytes[..end]);
        assert!(whole.starts_with(&lines), "{end} {lines:?}");
        match result {
            Err(RecordingError::NotARecording) => assert_eq!(end, 0),
            Err(RecordingError::Cut { at }) => assert_eq!(at, end as u64),
            result => panic!("the first {end} bytes: {result:?}"),
        }
        // Events arrive record by record, not section by section.
        assert!(lines.len() <= longest + 1, "{end}");
        longest = longest.max(lines.len());
    }
    assert_eq!(longest, whole.len());
}

#[test]
fn any_wrong_byte_is_replayed_or_reported() {
    let bytes = recorded();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut wrong = bytes.clone();
            wrong[at] ^= flip;
            fuzzing::recording(&wrong, |_| ());
        }
    }
}

#[test]
fn faults_are_reported_with_their_position() {
    let bytes = recorded();
    let changed = |at: usize, byte: u8| {
        let mut changed = bytes.clone();
        changed[at] = byte;
        replayed(&changed).1.unwrap_err().to_string()
    };
    assert!(changed(0, 0).starts_with("not a recording"));
    assert!(
        changed(8, 9)
            .starts_with("format version 9 is not supported (this program reads version 1)")
    );
    assert_eq!(changed(16, 99), "malformed at byte 16: unknown type of section");
    assert_eq!(changed(16, 2), "malformed at byte 32: the first section is not a header");
    assert_eq!(changed(23, 1), "malformed at byte 16: the CPU number is out of range");
    assert!(changed(32, b'x').starts_with("malformed at byte 32: expected value"));
    assert!(changed(26, 0x7f).starts_with(&format!("truncated at byte {}", bytes.len())));
    let mut longer = bytes.clone();
    longer.push(0);
    let error = replayed(&longer).1.unwrap_err().to_string();
    let end = bytes.len();
    assert_eq!(error, format!("malformed at byte {end}: there is data after the ledger"));
}

#[test]
fn a_replay_continues_where_the_consumer_broke() {
    let bytes = recorded();
    let (whole, _) = replayed(&bytes);
    for at in 1..whole.len() {
        // A consumer cannot break at a note about a CPU or a dump.
        if whole[at - 1].starts_with("CPU") || whole[at - 1].starts_with("Dump") {
            continue;
        }
        let mut recording = Recording::open(&*bytes).unwrap();
        let mut log = Log { break_at: Some(at), ..Log::default() };
        assert!(recording.replay(&mut log).unwrap().is_break());
        assert_eq!(log.lines, whole[..at]);
        assert!(recording.replay(&mut log).unwrap().is_continue());
        assert_eq!(log.lines, whole);
    }
}

#[test]
fn dumps_are_merged_one_by_one() {
    let bytes = recording(probes(), Symbols::none(), Origin::here(), |recorder| {
        for number in [0, 1] {
            recorder.dump(Dump::new(number, 2, Some(0)));
            for (cpu, time) in [(0, 12 + number), (1, 11 + number)] {
                event(recorder, cpu, time);
            }
        }
    });
    let mut log = Log::default();
    let mut recording = Recording::open(&*bytes).unwrap();
    assert!(recording.replay_by_time(&mut log).unwrap().is_continue());
    let order: Vec<_> = log
        .lines
        .iter()
        .map(|line| match line.split_once("time: ") {
            Some((_, rest)) => &rest[..2],
            None => "dump",
        })
        .collect();
    // An event of the second dump may be as old as the last one of the first.
    assert_eq!(order, ["dump", "11", "12", "dump", "12", "13"]);
    assert_eq!(recording.close().unwrap().late, 0);
}

#[test]
fn losses_stay_between_the_events_of_their_cpu() {
    let bytes = recording(probes(), Symbols::none(), Origin::here(), |recorder| {
        event(recorder, 0, 11);
        let _ = recorder.lost(Loss::new(0, 1, Some(3)));
        event(recorder, 0, 14);
        for time in [12, 13] {
            event(recorder, 1, time);
        }
        let _ = recorder.lost(Loss::new(1, 1, Some(4)));
    });
    let mut log = Log::default();
    let mut recording = Recording::open(&*bytes).unwrap();
    assert!(recording.replay_by_time(&mut log).unwrap().is_continue());
    let order = log.lines.iter().map(|line| match line.split_once("time: ") {
        Some((_, rest)) => rest[..2].to_owned(),
        None => format!("lost on {}", &line.split_once("cpu: ").unwrap().1[..1]),
    });
    assert_eq!(order.collect::<Vec<_>>(), ["11", "lost on 0", "12", "13", "lost on 1", "14"]);
}

#[test]
fn events_of_all_cpus_are_merged_by_time() {
    let bytes = recorded();
    let times = |log: &Log| {
        let time = |line: &String| line.split_once("time: ")?.1.split(',').next()?.parse().ok();
        log.lines.iter().filter_map(time).collect::<Vec<u64>>()
    };
    let mut log = Log::default();
    let mut recording = Recording::open(&*bytes).unwrap();
    assert!(recording.replay_by_time(&mut log).unwrap().is_continue());
    assert_eq!(times(&log), [8, 10, 11, 12, 13, 14, 15]);
    assert_eq!(recording.close().unwrap().late, 0);
    // The records before a cut are merged, too.
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
    // They follow the dump.
    assert_eq!(replayed(&bytes).0.len(), 5);
}

#[test]
fn a_full_disk_ends_a_recording_and_only_written_events_count() {
    let mut recorder = Recorder::new(Full(200 << 10), probes(), Symbols::none());
    recorder.start().unwrap();
    let hit = hit(1);
    let sent = (0..100_000).take_while(|_| recorder.record(0, hit.record()).is_continue()).count();
    let counted = recorder.recorded();
    assert!(0 < counted && counted < sent as u64, "{counted} of {sent}");
    assert!(recorder.record(0, hit.record()).is_break() && recorder.caught_up().is_break());
    assert_eq!(recorder.finish(&ledger()).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(recorder.recorded(), counted);
}

#[test]
fn records_that_exceed_a_block_are_in_several() {
    let bytes = recording(probes(), Symbols::none(), Origin::here(), |recorder| {
        let hit = hit(1);
        (0..5000).for_each(|_| assert!(recorder.record(3, hit.record()).is_continue()));
    });
    let (lines, end) = replayed(&bytes);
    assert!(lines.len() == 5000 && end.is_ok() && lines.iter().all(|line| *line == lines[0]));
}

#[inline(never)]
extern "C" fn here() -> u64 {
    std::hint::black_box(7)
}

#[test]
fn a_replay_has_the_names_of_the_recording() {
    assert_eq!(here(), 7);
    let at = here as extern "C" fn() -> u64 as usize as u64;
    let addresses = at.to_ne_bytes();
    let mut hit = Hit::new(b"self", 0, &[Value::Stack(Addresses::new(&addresses))]);
    hit.set_pid(std::process::id());
    let probes = vec![probe("f", &[("ustack", Shape::UserStack)])];
    let symbols =
        Symbols::start_for(SymbolAccess::Processes, &probe_perf::Target::ThisProcess).unwrap();
    let bytes = recording(probes, symbols, Origin::here(), |recorder| {
        let record = RawRecord { time: probe_sys::clock::monotonic(), ..hit.record() };
        (0..3).for_each(|_| assert!(recorder.record(0, record).is_continue()));
    });
    let text = printed(&bytes, Format::Table);
    assert_eq!(text.lines().filter(|line| line.contains("here")).count(), 3, "{text}");
    // Each name is recorded once, however often it is needed.
    let name = b"is_return";
    assert_eq!(bytes.windows(name.len()).filter(|bytes| bytes == name).count(), 1);
}

#[test]
fn names_in_a_header_are_escaped() {
    let evil = "\u{1b}[2J";
    let names = vec![(1, evil.into()), (0, "A".into())];
    let shape = Shape::Enum(Arc::new(Enumeration { is_signed: false, names }));
    let origin = Origin { program: evil.into(), kernel: evil.into(), realtime_offset: 0 };
    let bytes =
        recording(vec![probe("f", &[(evil, shape)])], Symbols::none(), origin, |recorder| {
            let event = Hit::new(b"a", 0, &[Value::Integer(1)]);
            assert!(recorder.record(0, event.record()).is_continue());
        });
    for format in FORMATS {
        let text = printed(&bytes, format);
        assert!(!text.contains('\x1b'), "{text}");
    }
}

/// A file that claims a section of this length, of which it has the beginning, zeros.
fn claiming(tag: Tag, claimed: u32, has: usize) -> Vec<u8> {
    let mut bytes = recorded();
    bytes.truncate(size_of::<Preamble>());
    if tag != Tag::Header {
        let header = recording(probes(), Symbols::none(), Origin::here(), |_| {});
        bytes = header[..header.len() - ledger_section(&header)].to_vec();
    }
    for word in [tag as u32, 0, claimed, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.resize(bytes.len() + has, 0);
    bytes
}

/// The length of the last section of a recording without events.
fn ledger_section(bytes: &[u8]) -> usize {
    let header = size_of::<Preamble>() + 16;
    let len = u32::from_le_bytes(bytes[header - 8..header - 4].try_into().unwrap()) as usize;
    bytes.len() - header - len.next_multiple_of(8)
}

/// Reads a file to its end, and returns the error.
fn error_of(reader: impl io::Read) -> String {
    let recording = match Recording::open(reader) {
        Ok(recording) => recording,
        Err(error) => return error.to_string(),
    };
    recording.close().unwrap_err().to_string()
}

#[test]
fn a_section_is_no_longer_than_its_type_allows() {
    for tag in [
        Tag::Header,
        Tag::Symbols,
        Tag::Records,
        Tag::Lost,
        Tag::Malformed,
        Tag::Cpu,
        Tag::Ledger,
        Tag::Clock,
    ] {
        let longest = tag.longest() as u32;
        for claimed in [longest + 1, u32::MAX] {
            // More zeros follow than any file could have: nothing of them is read.
            let bytes = claiming(tag, claimed, 0);
            let error = error_of(io::Read::chain(&bytes[..], io::repeat(0)));
            assert!(error.contains(&format!("a section of {claimed} bytes")), "{tag:?}: {error}");
        }
        let error = error_of(&claiming(tag, longest, 100)[..]);
        assert!(error.contains("truncated"), "{tag:?}: {error}");
    }
}

/// One long name, for a stack of many addresses.
#[test]
fn a_small_file_has_no_huge_output() {
    let name = "x".repeat(1 << 20);
    let learnt = serde_json::json!([{"process": null, "since": 0, "names": [
        [{"at": 7, "is_return": false}, [{"name": name, "offset": 0, "module": null, "source": null}]],
        [{"at": 7, "is_return": true}, [{"name": name, "offset": 0, "module": null, "source": null}]],
    ]}]);
    let addresses: Vec<u8> = [7_u64; 1000].iter().flat_map(|at| at.to_ne_bytes()).collect();
    let hit = Hit::new(b"a", 0, &[Value::Stack(Addresses::new(&addresses))]);
    let probes = vec![probe("f", &[("kstack", Shape::KernelStack)])];
    let bytes = recording(probes, Symbols::none(), Origin::here(), |recorder| {
        assert!(recorder.note(Tag::Symbols, 0, &learnt).is_continue());
        assert!(recorder.record(0, hit.record()).is_continue());
    });
    let text = printed(&bytes, Format::Table);
    assert!(text.contains("0x7") && text.len() < 1 << 20, "{} bytes", text.len());
    // No program writes a longer stack.
    assert_eq!(text.matches("0x7").count(), 128);
    let many = (0..33).map(|n| (format!("f{n}"), Shape::Text)).collect::<Vec<_>>();
    let many: Vec<_> = many.iter().map(|(name, shape)| (&**name, shape.clone())).collect();
    let bytes = recording(vec![probe("f", &many)], Symbols::none(), Origin::here(), |_| ());
    let error = Recording::open(&*bytes).unwrap_err().to_string();
    assert!(error.contains("a probe has too many fields"), "{error}");
}

/// Names that the kernel's address 7 has had since a time.
fn names(since: u64, name: &str) -> Vec<Learnt> {
    let frame = serde_json::json!({"name": name, "offset": 0, "module": null, "source": null});
    let address = serde_json::json!({"at": 7, "is_return": false});
    let learnt =
        serde_json::json!([{"process": null, "since": since, "names": [[address, [frame]]]}]);
    serde_json::from_value(learnt).unwrap()
}

/// An earlier name would be that of another function.
#[test]
fn an_address_whose_name_is_too_long_has_none() {
    let addresses = 7_u64.to_ne_bytes();
    let hit = Hit::new(b"a", 0, &[Value::Stack(Addresses::new(&addresses))]);
    let probes = vec![probe("f", &[("kstack", Shape::KernelStack)])];
    // What a replay does not use, and what the recorder cannot write.
    for length in [LONGEST + 1, 5 << 20] {
        let bytes = recording(probes.clone(), Symbols::none(), Origin::here(), |recorder| {
            for (since, name) in [(5, "earlier"), (10, &*"x".repeat(length)), (15, "later")] {
                assert!(recorder.names(names(since, name)).is_continue());
                let record = RawRecord { time: since + 1, ..hit.record() };
                assert!(recorder.record(0, record).is_continue());
            }
        });
        let text = printed(&bytes, Format::Table);
        let stacks: Vec<_> = text.lines().filter(|line| line.contains("kstack ")).collect();
        assert_eq!(stacks.len(), 3, "{text}");
        for (stack, name) in stacks.iter().zip(["earlier", "0x7", "later"]) {
            assert!(stack.contains(name), "{length}: {text}");
        }
    }
}

#[test]
fn records_that_belong_to_no_probe_are_errors() {
    let hit = hit(1);
    let record = hit.record();
    let other_kind = RawRecord { kind: RecordKind::user(7), ..record };
    let short = RawRecord { payload: &record.payload[..8], ..record };
    let mut number = record.payload.to_vec();
    let at = std::mem::offset_of!(ProbeHit, probe);
    number[at..at + 4].copy_from_slice(&1_u32.to_ne_bytes());
    let other_probe = RawRecord { payload: &number, ..record };
    for wrong in [other_kind, short, other_probe] {
        // What is recorded instead, and printed of a trace.
        let bytes = recording(probes(), Symbols::none(), Origin::here(), |recorder| {
            assert!(recorder.record(0, wrong).is_continue());
            assert_eq!(recorder.recorded(), 0);
        });
        assert!(printed(&bytes, Format::Jsonl).contains("\"malformed\""));
        let mut live = Vec::new();
        let mut printer = Printer::new(&mut live, Format::Jsonl, probes());
        assert!(printer.record(0, wrong).is_continue());
        printer.finish(&ledger()).unwrap();
        assert!(String::from_utf8(live).unwrap().contains("\"malformed\""));
    }
    let bytes = recorded();
    let kind = ProbeHit::KIND.0.to_ne_bytes();
    let is_third = |at: &usize| bytes[*at..].starts_with(&kind) && bytes[at + 8] == 15;
    let at = (0..bytes.len() - 8).step_by(8).find(is_third).unwrap();
    let mut damaged = bytes.clone();
    damaged[at] ^= 0xff;
    let (lines, end) = replayed(&damaged);
    let expected = format!("malformed at byte {at}: a record that belongs to no probe");
    assert_eq!(end.unwrap_err().to_string(), expected);
    // A dump, and two events.
    assert_eq!(lines, replayed(&bytes).0[..3]);
}

/// A consumer that notes when it has caught up.
#[derive(Default)]
struct Followed(Vec<u64>);

impl Consumer for Followed {
    fn record(&mut self, _: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.0.push(record.time);
        ControlFlow::Continue(())
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        self.0.push(0);
        ControlFlow::Continue(())
    }
}

#[test]
fn a_consumer_of_a_live_recording_catches_up_with_each_section() {
    let bytes = recording(probes(), Symbols::none(), Origin::here(), |recorder| {
        for time in [1, 2] {
            event(recorder, 0, time);
        }
        assert!(recorder.caught_up().is_continue());
        event(recorder, 0, 3);
    });
    for (is_live, expected) in [(false, &[1, 2, 3, 0][..]), (true, &[1, 2, 0, 3, 0, 0])] {
        let mut followed = Followed::default();
        let mut recording = Recording::open(&*bytes).unwrap().live(is_live);
        assert!(recording.replay(&mut followed).unwrap().is_continue());
        assert_eq!(followed.0, expected);
    }
    // By time, all of them are needed first.
    let mut followed = Followed::default();
    let mut recording = Recording::open(&*bytes).unwrap().live(true);
    assert!(recording.replay_by_time(&mut followed).unwrap().is_continue());
    assert_eq!(followed.0, [1, 2, 3, 0]);
}

#[test]
fn numbers_with_too_many_names_are_refused() {
    let names = |count| {
        let names = vec![(1, "A".to_owned()); count];
        let names = ValueNames::of_enumeration(&Enumeration { is_signed: false, names });
        let (name, shape) = ("n".to_owned(), Shape::Unsigned);
        let field = Field { name, shape, names: Some(Arc::new(names)) };
        vec![Probe::new("f(n=arg0)".parse().unwrap(), vec![PlannedField::new(field, 0)])]
    };
    let opened = |count| {
        let bytes = recording(names(count), Symbols::none(), Origin::here(), |_| ());
        Recording::open(&*bytes).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(opened(1 << 14), Ok(()));
    assert!(opened((1 << 14) + 1).unwrap_err().contains("too many names"));
}

fn enumerations() -> impl Strategy<Value = Enumeration> {
    let names = prop::collection::btree_map(any::<u64>(), "[A-Z_]{1,9}", 0..4);
    (any::<bool>(), names).prop_map(|(is_signed, names)| Enumeration {
        is_signed,
        names: names.into_iter().collect(),
    })
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
    let any_names = prop::option::of(prop::sample::select(vec![
        ten(),
        Some(Arc::new(ValueNames::Function)),
        Some(Arc::new(ValueNames::SocketAddress)),
    ]));
    let fields = prop::collection::vec(
        (("[ -~]{1,9}", shapes(enumerations()), any_names), any::<u8>(), any::<Option<u8>>()),
        0..5,
    );
    (spec, prop::option::of(names), fields, any::<bool>()).prop_map(
        |(spec, name, fields, is_call)| {
            let spec: crate::ProbeSpec = spec.parse().unwrap();
            let spec = name.map_or(spec.clone(), |name| spec.named(name));
            let field = |((name, shape, names), slot, nameless)| {
                let field = Field { name, shape, names: Option::flatten(names) };
                PlannedField::new(field, slot).unless(nameless)
            };
            let fields = fields.into_iter().map(field).collect();
            if is_call { Probe::call(spec, fields) } else { Probe::new(spec, fields) }
        },
    )
}

proptest! {
    #[test]
    fn any_probes_are_equal_after_a_header(probes in prop::collection::vec(any_probe(), 0..4)) {
        let text = serde_json::to_string(&Header::new(Origin::here(), &probes)).unwrap();
        let header: Header = serde_json::from_str(&text).unwrap();
        let again = header.probes().unwrap();
        for (one, other) in again.iter().zip(&probes) {
            prop_assert_eq!(one.spec().to_string(), other.spec().to_string());
        }
        prop_assert_eq!(again, probes);
    }
}
