//! Parts that do not belong to a pipe are refused by name before anything is done with them.

use crate::suite::{Log, classifier, emit_on, emit_one_on, load, load_with, map, online};
use aya::EbpfLoader;
use aya::maps::Array;
use aya::programs::RawTracePoint;
use probe_sys::bpf;
use probe_user::common::control::{
    CONTROL_MAP, CpuControl, EAGER_MAP, EVENTS_MAP, FLUSH_PROGRAM, OUTPUTS_MAP, SCRATCH_MAP,
    TALLY_MAP,
};
use probe_user::common::tally::FailureClass;
use probe_user::{EvHandlers, EvPipe, OpenError, Options, PerCpuPipe, PipeParts};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

const MAPS: [&str; 6] = [EVENTS_MAP, EAGER_MAP, CONTROL_MAP, TALLY_MAP, OUTPUTS_MAP, SCRATCH_MAP];

/// Opens a pipe over parts that `find` returns by their names.
fn open<'m>(find: impl Fn(&'static str) -> BorrowedFd<'m>) -> Result<EvPipe, OpenError> {
    let parts = PipeParts::new(find(EVENTS_MAP)).unwrap();
    let parts = parts.adaptive(find(EAGER_MAP), find(CONTROL_MAP), find(FLUSH_PROGRAM)).unwrap();
    let parts = parts.tally(find(TALLY_MAP), find(OUTPUTS_MAP))?.scratch(find(SCRATCH_MAP))?;
    EvPipe::open(parts, &Options::new())
}

/// What a CPU has packed when it goes offline would be lost without a word.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn without_the_map_of_open_blocks_nothing_is_packed() {
    let mut object = load();
    let flush: &mut RawTracePoint = object.program_mut(FLUSH_PROGRAM).unwrap().try_into().unwrap();
    flush.load().unwrap();
    let flush = object.program(FLUSH_PROGRAM).unwrap().fd().unwrap().as_fd();
    let find = |name| map(&object, name);
    let parts = PipeParts::new(find(EVENTS_MAP)).unwrap();
    let parts = parts.adaptive(find(EAGER_MAP), find(CONTROL_MAP), flush).unwrap();
    let parts = parts.tally(find(TALLY_MAP), find(OUTPUTS_MAP)).unwrap();
    let pipe = EvPipe::open(parts.clone(), &Options::new()).unwrap();
    assert!(pipe.fallback().unwrap().contains("PipeParts::scratch"), "{:?}", pipe.fallback());
    drop(pipe);
    let pipe = EvPipe::open(parts.scratch(find(SCRATCH_MAP)).unwrap(), &Options::new()).unwrap();
    assert_eq!(pipe.fallback(), None);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn no_part_can_be_anything_else() {
    let mut object = load();
    classifier(&mut object, "emit_numbered");
    emit_one_on(&mut object, online()[0]);
    let flush: &mut RawTracePoint = object.program_mut(FLUSH_PROGRAM).unwrap().try_into().unwrap();
    flush.load().unwrap();
    let other = load();
    let program = |name: &str| object.program(name).unwrap().fd().unwrap().as_fd();
    let right = |name| match name {
        FLUSH_PROGRAM => program(name),
        name => map(&object, name),
    };
    let file = File::open("/dev/null").unwrap();
    let parts = || MAPS.into_iter().chain([FLUSH_PROGRAM]);
    let others = ["NEXT", "STACKS"].map(|name| (name, map(&object, name)));
    let programs = ["emit_numbered", "emit_numbered_raw"].map(|name| (name, program(name)));
    let candidates = || {
        let parts = parts().map(|name| (name, right(name)));
        parts.chain(others).chain(programs).chain([("/dev/null", file.as_fd())])
    };
    for part in parts() {
        for (name, wrong) in candidates().filter(|(name, _)| *name != part) {
            let error = open(|of| if of == part { wrong } else { right(of) });
            let error = error.map(drop).expect_err(&format!("{name} as {part}"));
            let OpenError::WrongPart { part: named, .. } = error else { panic!("{error}") };
            assert_eq!(named, part, "{name} as {part}");
        }
    }
    // The flush program of an object does not belong to the maps of another.
    for part in [EVENTS_MAP, EAGER_MAP, CONTROL_MAP] {
        let error = open(|of| if of == part { map(&other, of) } else { right(of) })
            .map(drop)
            .unwrap_err()
            .to_string();
        let begin = format!(
            "the part `pipe_flush` of the pipe is a program that does not use this `{part}`:"
        );
        assert!(error.starts_with(&begin), "{error}");
    }
    let control =
        Array::<_, [u32; size_of::<CpuControl>() / 4]>::try_from(object.map(CONTROL_MAP).unwrap());
    let control = control.unwrap();
    let asked =
        |cpu| control.get(cpu, 0).unwrap()[..offset_of!(CpuControl, lost_records) / 4].to_vec();
    assert!(online().iter().all(|cpu| asked(cpu) == [0; 8]));

    let pipe = open(right).unwrap();
    assert_eq!(pipe.fallback(), None);
    let tally = pipe.tally().unwrap().total().unwrap();
    assert_eq!((tally.sent, tally.failed_for(FailureClass::NoEvent)), (0, 1));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn maps_of_another_layout_are_refused() {
    let refused = |name, entries| {
        let mut object = load_with(EbpfLoader::new().map_max_entries(name, entries));
        let error = EvPipe::from_object(&mut object, &Options::new()).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::WrongPart { part, .. } if part == name), "{error}");
        error.to_string()
    };
    for (name, entries) in
        [(EAGER_MAP, 1), (CONTROL_MAP, 2048), (TALLY_MAP, 4), (OUTPUTS_MAP, 4), (SCRATCH_MAP, 5)]
    {
        refused(name, entries);
    }
    assert_eq!(
        refused(CONTROL_MAP, 1023),
        "the part `PIPE_CONTROL` of the pipe is the map `PIPE_CONTROL`, a BPF_MAP_TYPE_ARRAY of 1023 entries with \
         keys of 4 and values of 64 bytes, with BPF_F_MMAPABLE: it has to be a BPF_MAP_TYPE_ARRAY of 1024 entries \
         with keys of 4 and values of 64 bytes, with BPF_F_MMAPABLE"
    );
    let object = load();
    let not_mappable = EvPipe::open(
        PipeParts::new(map(&object, EVENTS_MAP))
            .unwrap()
            .adaptive(map(&object, EAGER_MAP), map(&object, "STACKS"), map(&object, EVENTS_MAP))
            .unwrap(),
        &Options::new(),
    );
    let error = not_mappable.map(drop).unwrap_err().to_string();
    assert!(error.contains("values of 8 bytes, without BPF_F_MMAPABLE"), "{error}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_map_with_entries_for_one_cpu_covers_that_one_and_reports_the_others() {
    let cpus = online();
    assert!(cpus.len() > 1 && cpus[0] == 0, "this needs CPU 0 and another: {cpus:?}");
    let uncovered: Vec<String> = cpus[1..]
        .iter()
        .map(|cpu| {
            format!(
                "CPU {cpu} is online, and its events are lost: map `PIPE_EVENTS` has too few entries for CPU {cpu} \
                 (1): create it with one for each possible CPU"
            )
        })
        .collect();
    let mut object = load_with(EbpfLoader::new().map_max_entries(EVENTS_MAP, 1));

    let mut pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    assert_eq!(pipe.fallback(), None);
    let mut log = Log::default();
    for _ in 0..2 {
        assert!(pipe.drain_all(&mut log).is_continue());
        assert_eq!(pipe.drain(&mut log).records, 0);
        assert_eq!(log.changes, uncovered);
    }
    emit_on(&mut object, &cpus, 10);
    let summary = pipe.close(&mut log);
    log.received.assert_complete(&[0], 10);
    let ledger = summary.ledger.unwrap();
    assert_eq!((ledger.attempted(), ledger.handled()), (10 * cpus.len() as u64, 10), "{ledger}");
    assert!(ledger.balances(), "{ledger}");

    let pipe = PerCpuPipe::from_object(&mut object, &Options::new(), |_| Log::default()).unwrap();
    let consumers = pipe.close().consumers;
    let [(0, log)] = &consumers[..] else { panic!("{consumers:?}") };
    assert_eq!(log.changes, uncovered);

    let failed = Mutex::new(Vec::new());
    let pipe = PerCpuPipe::from_object(&mut object, &Options::new(), |_| {
        let mut handlers = EvHandlers::new();
        handlers.on_failure(|failure| failed.lock().unwrap().push((failure.cpu, failure.records)));
        handlers
    });
    let pipe = pipe.unwrap();
    emit_on(&mut object, &cpus, 10);
    pipe.close();
    let expected: Vec<_> = cpus[1..].iter().map(|&cpu| (cpu, 10)).collect();
    assert_eq!(failed.into_inner().unwrap(), expected);

    let last = Options::new().cpus([cpus[cpus.len() - 1]]);
    let refused = [
        EvPipe::from_object(&mut object, &last).map(drop),
        PerCpuPipe::from_object(&mut object, &last, |_| Log::default()).map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(OpenError::MapTooSmall { entries: 1, .. })), "{refused:?}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn programs_that_do_not_nest_need_one_slot_and_little_memory() {
    let mut object = load_with(EbpfLoader::new().map_max_entries(SCRATCH_MAP, 1));
    let bytes = [TALLY_MAP, OUTPUTS_MAP, SCRATCH_MAP].map(|name| {
        let info = bpf::map_info(map(&object, name)).unwrap().unwrap();
        info.max_entries * info.value_size
    });
    assert!(bytes.iter().sum::<u32>() <= 32 << 10, "{bytes:?}");
    let mut pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    assert_eq!(pipe.fallback(), None);
    emit_on(&mut object, &online(), 100);
    let mut records = 0;
    let ledger = {
        let mut handlers = EvHandlers::local();
        handlers.on_unknown::<()>(|_, _| records += 1);
        assert!(pipe.drain_all(&mut handlers).is_continue());
        pipe.close(&mut handlers).ledger.unwrap()
    };
    assert_eq!(records, 100 * online().len());
    assert!(ledger.is_complete(), "{ledger}");
}
