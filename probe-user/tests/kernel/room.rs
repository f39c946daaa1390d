//! Records for which a ring has no room even while it is empty.

use crate::pipe::runtime;
use crate::suite::records::Numbered;
use crate::suite::{load, map, online};
use probe_sys::cpus;
use probe_sys::memory::page_size;
use probe_user::common::control::EVENTS_MAP;
use probe_user::common::limits::MAX_EMIT;
use probe_user::common::{Record, RecordKind};
use probe_user::{AsyncEvPipe, EvHandlers, EvPipe, Options, PerCpuPipe, PipeParts, Stop};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn records_without_room_in_any_ring_are_refused_by_size() {
    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    struct Longest([u8; MAX_EMIT]);

    impl Record for Longest {
        const KIND: RecordKind = RecordKind::user(90);
    }

    let object = load();
    let parts = || PipeParts::new(map(&object, EVENTS_MAP)).unwrap();
    let handlers = || {
        let mut handlers = EvHandlers::new();
        handlers.on::<Longest, _>(|_| ()).on::<Numbered, _>(|_| ());
        handlers
    };
    let (stop, soon, runtime) = (Stop::new().unwrap(), Some(Duration::ZERO), runtime());
    stop.stop();
    let every_way = |options: &Options| {
        // Several of them live at the same time.
        let options = &options.clone().take_over();
        let open = || EvPipe::open(parts(), options).unwrap();
        let ordered = || open().ordered(Duration::ZERO).unwrap();
        let mut per_cpu = PerCpuPipe::open(parts(), options, |_| handlers()).unwrap();
        let on_tokio = async {
            let mut pipe = AsyncEvPipe::new(open()).unwrap();
            // This waits forever unless it is refused.
            let limit = Duration::from_millis(100);
            match tokio::time::timeout(limit, pipe.poll(&mut handlers())).await {
                Ok(polled) => polled.map(drop),
                Err(_) => Ok(()),
            }
        };
        [
            open().run(&stop, &mut handlers()),
            open().poll(soon, &mut &mut handlers()).map(drop),
            ordered().run(&stop, &mut handlers()),
            ordered().poll(soon, &mut handlers()).map(drop),
            per_cpu.run(&stop),
            runtime.block_on(on_tokio),
        ]
    };
    for refused in every_way(&Options::new().bytes_per_cpu(8 << 10)) {
        assert_eq!(
            refused.unwrap_err().to_string(),
            "cannot receive records of 8192 bytes: rings of 8192 bytes have no room for them. Open the pipe with \
             Options::bytes_per_cpu(16384)"
        );
    }
    every_way(&Options::new().bytes_per_cpu(16 << 10)).into_iter().for_each(Result::unwrap);
    let recorder = Options::new().bytes_per_cpu(8 << 10).overwrite();
    let mut recorder = EvPipe::open(parts(), &recorder).unwrap();
    assert!(recorder.poll(soon, &mut handlers()).is_err());
}

/// The sizes of the rings that this process has mapped, without their control pages.
fn mapped_rings() -> Vec<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let size = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some(address(end)? - address(start)? - page_size())
    };
    let rings = maps.lines().filter(|line| line.ends_with("anon_inode:[perf_event]"));
    rings.map(|line| size(line).unwrap()).collect()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn all_rings_together_are_within_the_limit() {
    let possible = cpus::possible().unwrap().len();
    let options = Options::new().bytes_per_cpu(1 << 20).total_bytes((64 << 10) * possible);
    let mut object = load();
    let expected = vec![64 << 10; online().len()];
    let pipe = EvPipe::from_object(&mut object, &options).unwrap();
    assert_eq!((pipe.bytes_per_cpu(), mapped_rings()), (64 << 10, expected.clone()));
    drop(pipe);
    let pipe = PerCpuPipe::from_object(&mut object, &options, |_| EvHandlers::new()).unwrap();
    assert_eq!(mapped_rings(), expected);
    drop(pipe);
    let error = EvPipe::from_object(&mut object, &options.total_bytes(page_size() * possible - 1));
    let error = error.map(drop).unwrap_err().to_string();
    assert!(error.contains("leaves less than a page for each of"), "{error}");
}
