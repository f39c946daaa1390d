//! The AUX area, by a PMU of our own that the kernel's code drives: every byte that it writes is known.

#[path = "suite/aux_module.rs"]
mod aux_module;
#[path = "suite/child.rs"]
mod child;

use aux_module::{is_loaded, pattern};
use child::in_child;
use probe_user::perf::{AuxFlags, AuxMode, AuxTrace, Event, Software};

const AREA: usize = 32 << 10;
const CPU: u32 = 1;

/// What each reading of the event writes, and what it is flagged as.
#[derive(Clone, Copy)]
struct Writes {
    bytes: u64,
    flags: u64,
}

/// The event, if this kernel has the module.
fn event(Writes { bytes, flags }: Writes) -> Option<Event> {
    let event = format!("probe_aux/config={bytes},config1={flags}/");
    is_loaded().then(|| event.parse().unwrap())
}

fn open(bytes: u64, mode: AuxMode) -> Option<AuxTrace> {
    let trace = AuxTrace::open(&event(Writes { bytes, flags: 0 })?, CPU, mode).unwrap();
    trace.enable().unwrap();
    Some(trace)
}

fn expected(from: u64, len: usize) -> Vec<u8> {
    pattern(from).take(len).collect()
}

/// Reads all pieces that are there, which begin at `at`, and says where they end.
fn drain(trace: &mut AuxTrace, mut at: u64) -> (u64, Vec<AuxFlags>) {
    let mut flags = Vec::new();
    while let Some(piece) = trace.next_piece() {
        assert_eq!(piece.position, at);
        assert_eq!(piece.to_vec(), expected(at, piece.len()), "from {at} on");
        at += piece.len() as u64;
        flags.push(piece.flags);
    }
    (at, flags)
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn every_byte_comes_once_and_in_order() {
    let Some(mut trace) = open(1000, AuxMode::Full(AREA)) else { return };
    let mut at = 0;
    for round in 1..=200 {
        // Now one piece at a time, now several.
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
fn what_there_is_no_room_for_is_told() {
    let Some(mut trace) = open(10_000, AuxMode::Full(AREA)) else { return };
    for _ in 0..4 {
        trace.count().unwrap();
    }
    // The kernel leaves a byte free.
    let room = AREA as u64 - 1;
    let count = trace.count().unwrap();
    assert_eq!(count, room, "an event without room writes nothing");
    let (end, flags) = drain(&mut trace, 0);
    assert_eq!(end, room);
    let whole = AuxFlags::empty();
    assert_eq!(flags[..4], [whole, whole, whole, AuxFlags::TRUNCATED]);
    // It is off until somebody says otherwise.
    trace.enable().unwrap();
    assert_eq!(trace.count().unwrap(), room + 10_000);
    let (end, flags) = drain(&mut trace, room);
    assert_eq!((end, flags), (room + 10_000, vec![whole]));
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_snapshot_has_the_newest_bytes() {
    let Some(mut trace) = open(5_000, AuxMode::Snapshot(AREA)) else { return };
    let mut count = 0;
    for round in 1..=40 {
        count = trace.count().unwrap();
        if round % 3 != 0 {
            continue;
        }
        let len = (count as usize).min(AREA);
        let taken = trace.snapshot(|piece| (piece.position, piece.to_vec())).unwrap();
        let from = count - len as u64;
        assert_eq!(taken.0, from);
        assert_eq!(taken.1, expected(from, len), "round {round}");
        assert!(trace.next_piece().is_none());
    }
    assert_eq!(count, 200_000);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_forked_child_has_nothing_of_an_area() {
    for mode in [AuxMode::Full(AREA), AuxMode::Snapshot(AREA)] {
        let Some(trace) = open(1000, mode) else { return };
        assert_eq!(trace.count().unwrap(), 1000);
        let mut trace = Some(trace);
        let has_nothing = in_child(|| {
            let mut trace = trace.take().unwrap();
            let snapshot = trace.snapshot(|_| ());
            trace.look(|_| ());
            let has_none = trace.next_piece().is_none() && trace.untold() == 0;
            drop(trace);
            snapshot.is_err_and(|error| error.to_string().contains("forked")) && has_none
        });
        assert!(has_nothing, "{mode:?}");
        let mut trace = trace.unwrap();
        let bytes = match mode {
            AuxMode::Full(_) => trace.next_piece().unwrap().to_vec(),
            _ => trace.snapshot(|piece| piece.to_vec()).unwrap(),
        };
        assert_eq!(bytes, expected(0, 1000), "{mode:?}");
    }
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn pieces_have_the_flags_that_the_kernel_says() {
    for (wanted, told) in [
        (1, AuxFlags::PARTIAL),
        (2, AuxFlags::COLLISION),
        (3, AuxFlags::PARTIAL | AuxFlags::COLLISION),
    ] {
        let Some(event) = event(Writes { bytes: 8, flags: wanted }) else { return };
        let mut trace = AuxTrace::open(&event, CPU, AuxMode::Full(AREA)).unwrap();
        trace.enable().unwrap();
        trace.count().unwrap();
        assert_eq!(drain(&mut trace, 0), (8, vec![told]));
    }
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_snapshot_has_the_flags_of_its_pieces() {
    let Some(event) = event(Writes { bytes: 5_000, flags: 3 }) else { return };
    let mut trace = AuxTrace::open(&event, CPU, AuxMode::Snapshot(AREA)).unwrap();
    trace.enable().unwrap();
    let flags = |trace: &mut AuxTrace| trace.snapshot(|piece| piece.flags).unwrap();
    assert_eq!(flags(&mut trace), AuxFlags::OVERWRITE);
    let all = AuxFlags::OVERWRITE | AuxFlags::PARTIAL | AuxFlags::COLLISION;
    for _ in 0..20 {
        trace.count().unwrap();
    }
    // Looked at, or not: they are still of what is there.
    let mut told = 0;
    trace.look(|_| told += 1);
    assert!(told >= 20, "{told}");
    assert_eq!(flags(&mut trace), all);
    assert_eq!(flags(&mut trace), all);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn bytes_that_the_ring_cannot_tell_of_are_counted() {
    let Some(mut trace) = open(1, AuxMode::Full(AREA)) else { return };
    const READINGS: u64 = 6_000;
    for _ in 0..READINGS {
        trace.count().unwrap();
    }
    let (told, flags) = drain(&mut trace, 0);
    assert!(told < READINGS && flags.len() as u64 == told, "the ring has room for {told}");
    // The next one comes with what was lost before it.
    assert_eq!(trace.count().unwrap(), READINGS + 1);
    let last = trace.next_piece().unwrap();
    assert_eq!((last.position, last.to_vec()), (READINGS, expected(READINGS, 1)));
    assert_eq!(trace.skipped(), READINGS - told);
    assert_eq!(trace.lost_records(), READINGS - told);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn an_event_is_off_until_it_is_switched_on() {
    let Some(event) = event(Writes { bytes: 64, flags: 0 }) else { return };
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
fn what_has_no_area_says_so() {
    let told = |event: &Event, mode| AuxTrace::open(event, 0, mode).unwrap_err().to_string();
    let clock = Event::from(Software::CpuClock);
    let why = told(&clock, AuxMode::Full(AREA));
    assert!(why.contains("cannot map the AUX area of cpu-clock on CPU 0"), "{why}");
    assert!(why.contains("This event has none"), "{why}");
    if let Some(event) = event(Writes { bytes: 1, flags: 0 }) {
        for bytes in [0, 100, 3 * 4096] {
            let why = told(&event, AuxMode::Full(bytes));
            assert!(why.contains("Its size has to be a power of two"), "{bytes}: {why}");
        }
    }
}
