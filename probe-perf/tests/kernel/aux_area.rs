//! The AUX area, with a software test PMU whose every byte is known.

use crate::common;
use probe_perf::{AuxFlags, AuxMode, AuxTrace, AuxTraces, Event, Flags, Software, Target};
use probe_sys::disturb::in_child;
use probe_testing::aux_module::{MISSING, is_loaded, pattern};
use probe_testing::skip::skip;
use std::time::{Duration, Instant};

const AREA: usize = 32 << 10;
const CPU: u32 = 1;

/// An event that writes `bytes` with these flags at each read. Without the module of this PMU, `None`.
fn event(bytes: u64, flags: u64) -> Option<Event> {
    is_loaded().then(|| common::event(&format!("probe_aux/config={bytes},config1={flags}/")))
}

/// An enabled trace of such an event.
fn open(bytes: u64, flags: u64, mode: AuxMode) -> Option<AuxTrace> {
    let trace = AuxTrace::open(&event(bytes, flags)?, CPU, mode).unwrap();
    trace.enable().unwrap();
    Some(trace)
}

fn expected(from: u64, len: usize) -> Vec<u8> {
    pattern(from).take(len).collect()
}

/// Reads all available pieces, the first of which must start at `at`. Returns their end.
fn drain(trace: &mut AuxTrace, mut at: u64) -> (u64, Vec<AuxFlags>) {
    let mut flags = Vec::new();
    while let Some(piece) = trace.next_piece(|_| ()) {
        assert_eq!(piece.position, Some(at));
        assert_eq!(piece.to_vec(), expected(at, piece.len()), "from {at} on");
        at += piece.len() as u64;
        flags.push(piece.flags);
    }
    (at, flags)
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn every_byte_arrives_once_and_in_order() {
    let Some(mut trace) = open(1000, 0, AuxMode::Full(AREA)) else { return skip(MISSING) };
    let mut at = 0;
    for round in 1..=200 {
        // Reads one piece in some rounds, several in others.
        let count = trace.count().unwrap();
        if round % 3 == 0 {
            let (end, flags) = drain(&mut trace, at);
            assert_eq!(end, count);
            assert!(flags.iter().all(|flags| flags.is_empty()), "{flags:?}");
            at = end;
        }
    }
    let (end, _) = drain(&mut trace, at);
    assert_eq!((end, trace.skipped(), trace.lost_records()), (200_000, 0, 0));
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_full_area_is_reported_as_truncated() {
    let Some(mut trace) = open(10_000, 0, AuxMode::Full(AREA)) else { return skip(MISSING) };
    for _ in 0..4 {
        trace.count().unwrap();
    }
    // The kernel keeps one byte free.
    let room = AREA as u64 - 1;
    let count = trace.count().unwrap();
    assert_eq!(count, room, "an event without room writes nothing");
    let (end, flags) = drain(&mut trace, 0);
    assert_eq!(end, room);
    let whole = AuxFlags::empty();
    assert_eq!(flags[..4], [whole, whole, whole, AuxFlags::TRUNCATED]);
    // The kernel disables the event when the area is full.
    trace.enable().unwrap();
    assert_eq!(trace.count().unwrap(), room + 10_000);
    let (end, flags) = drain(&mut trace, room);
    assert_eq!((end, flags), (room + 10_000, vec![whole]));
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_snapshot_has_the_newest_bytes() {
    let Some(mut trace) = open(5_000, 0, AuxMode::Snapshot(AREA)) else { return skip(MISSING) };
    let mut count = 0;
    for round in 1..=40 {
        count = trace.count().unwrap();
        if round % 3 != 0 {
            continue;
        }
        let len = (count as usize).min(AREA);
        let taken = trace.snapshot(|piece| (piece.position, piece.to_vec()), |_| ()).unwrap();
        let from = count - len as u64;
        assert_eq!(taken.0, Some(from));
        assert_eq!(taken.1, expected(from, len), "round {round}");
        assert!(trace.next_piece(|_| ()).is_none());
    }
    assert_eq!(count, 200_000);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_forked_child_has_no_access_to_an_area() {
    for mode in [AuxMode::Full(AREA), AuxMode::Snapshot(AREA)] {
        let Some(trace) = open(1000, 0, mode) else { return skip(MISSING) };
        assert_eq!(trace.count().unwrap(), 1000);
        let mut trace = Some(trace);
        let child = in_child(|| {
            let mut trace = trace.take().unwrap();
            let snapshot = trace.snapshot(|_| (), |_| ());
            trace.read_records(|_| ());
            let has_none = trace.next_piece(|_| ()).is_none() && trace.undescribed() == 0;
            drop(trace);
            let is_refused = snapshot.is_err_and(|error| error.to_string().contains("forked"));
            u8::from(is_refused && has_none)
        });
        assert_eq!(child.unwrap(), 1, "{mode:?}");
        let mut trace = trace.unwrap();
        let bytes = match mode {
            AuxMode::Full(_) => trace.next_piece(|_| ()).unwrap().to_vec(),
            _ => trace.snapshot(|piece| piece.to_vec(), |_| ()).unwrap(),
        };
        assert_eq!(bytes, expected(0, 1000), "{mode:?}");
    }
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_forked_child_does_not_take_a_wakeup() {
    let Some(event) = event(1000, 0) else { return skip(MISSING) };
    let target = Target::Cpu(CPU);
    let mut traces = AuxTraces::open(&event, &target, AuxMode::Full(AREA), Flags::empty()).unwrap();
    traces.enable().unwrap();
    // More than half of the area, which wakes.
    for _ in 0..20 {
        traces.traces()[0].count().unwrap();
    }
    let child = in_child(|| {
        let waited = traces.wait(&[], Duration::ZERO);
        u8::from(waited.is_err_and(|error| error.to_string().contains("forked")))
    });
    assert_eq!(child.unwrap(), 1);
    let begin = Instant::now();
    assert!(traces.wait(&[], common::LONG).unwrap());
    assert!(begin.elapsed() < common::LONG / 2, "the child has taken the wakeup");
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn pieces_have_the_flags_that_the_kernel_reports() {
    for (wanted, reported) in [
        (1, AuxFlags::PARTIAL),
        (2, AuxFlags::COLLISION),
        (3, AuxFlags::PARTIAL | AuxFlags::COLLISION),
    ] {
        let Some(mut trace) = open(8, wanted, AuxMode::Full(AREA)) else { return skip(MISSING) };
        trace.count().unwrap();
        assert_eq!(drain(&mut trace, 0), (8, vec![reported]));
    }
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_snapshot_has_the_flags_of_its_pieces() {
    let Some(mut trace) = open(5_000, 3, AuxMode::Snapshot(AREA)) else { return skip(MISSING) };
    let flags = |trace: &mut AuxTrace| trace.snapshot(|piece| piece.flags, |_| ()).unwrap();
    assert_eq!(flags(&mut trace), AuxFlags::OVERWRITE);
    let all = AuxFlags::OVERWRITE | AuxFlags::PARTIAL | AuxFlags::COLLISION;
    for _ in 0..20 {
        trace.count().unwrap();
    }
    // Pieces that were looked at keep their flags as long as their bytes are in the area.
    let mut pieces = 0;
    trace.read_records(|_| pieces += 1);
    assert!(pieces >= 20, "{pieces}");
    assert_eq!(flags(&mut trace), all);
    assert_eq!(flags(&mut trace), all);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn bytes_without_a_record_in_the_ring_are_counted() {
    let Some(mut trace) = open(1, 0, AuxMode::Full(AREA)) else { return skip(MISSING) };
    const READINGS: u64 = 6_000;
    for _ in 0..READINGS {
        trace.count().unwrap();
    }
    let (described, flags) = drain(&mut trace, 0);
    assert!(
        described < READINGS && flags.len() as u64 == described,
        "the ring has room for {described}"
    );
    // The next piece comes with the record of the loss.
    assert_eq!(trace.count().unwrap(), READINGS + 1);
    let last = trace.next_piece(|_| ()).unwrap();
    assert_eq!((last.position, last.to_vec()), (Some(READINGS), expected(READINGS, 1)));
    assert_eq!(trace.skipped(), READINGS - described);
    assert_eq!(trace.lost_records(), READINGS - described);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn an_event_is_disabled_until_it_is_enabled() {
    let Some(event) = event(64, 0) else { return skip(MISSING) };
    let mut trace = AuxTrace::open(&event, CPU, AuxMode::Full(AREA)).unwrap();
    assert_eq!(trace.count().unwrap(), 0);
    trace.enable().unwrap();
    assert_eq!(trace.count().unwrap(), 64);
    trace.disable().unwrap();
    assert_eq!(trace.count().unwrap(), 64);
    assert_eq!(drain(&mut trace, 0).0, 64);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn errors_say_that_there_is_no_area_or_that_its_size_is_invalid() {
    let error = |event: &Event, mode| AuxTrace::open(event, 0, mode).unwrap_err().to_string();
    let clock = Event::from(Software::CpuClock);
    let why = error(&clock, AuxMode::Full(AREA));
    assert!(why.contains("cannot map the AUX area of cpu-clock on CPU 0"), "{why}");
    assert!(why.contains("This event has no AUX area"), "{why}");
    if let Some(event) = event(1, 0) {
        let why = error(&event, AuxMode::Full(0));
        assert!(why.contains("Its size must not be 0"), "{why}");
        for bytes in [100, 3 * 4096] {
            AuxTrace::open(&event, 0, AuxMode::Full(bytes)).expect("the size is rounded up");
        }
    }
}
