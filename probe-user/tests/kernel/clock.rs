//! The clock of records, chosen when the object is loaded.

use crate::suite::records::Numbered;
use crate::suite::{
    BURST, Loaded, adaptive, emit_on, load_with, make_lazy, now, on_numbered, online,
};
use aya::EbpfLoader;
use aya::programs::SchedClassifier;
use probe_testing::version::kernel;
use probe_user::common::Record;
use probe_user::common::control::{CLOCK_GLOBAL, Clock};
use probe_user::{EvPipe, Options};
use rustix::time::ClockId;
use std::time::Duration;

/// Records emitted by each test.
const RECORDS: u32 = 5000;

fn load(clock: Clock) -> Loaded {
    load_with(EbpfLoader::new().override_global(CLOCK_GLOBAL, &(clock as u32), true))
}

/// Records of 80 bytes per block.
const BLOCK: usize = 102;

/// Timestamps of packed records emitted on one CPU.
fn times(clock: Clock) -> Vec<u64> {
    times_of(load(clock))
}

/// The same for any object.
fn times_of(mut object: Loaded) -> Vec<u64> {
    let wakeup = adaptive(Duration::from_secs(60));
    let options = Options::new().bytes_per_cpu(4 << 20).wakeup(wakeup);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    make_lazy(&mut object, &mut pipe, &online()[..1]);
    let mut times = Vec::new();
    let mut handlers = on_numbered(|event| times.push(event.time));
    emit_on(&mut object, &online()[..1], RECORDS);
    assert!(pipe.drain_all(&mut handlers).is_continue());
    let sent = pipe.tally().unwrap().of(Numbered::KIND).unwrap();
    assert_eq!(sent.iter().map(|cpu| cpu.tally.sent).sum::<u64>(), u64::from(BURST + RECORDS));
    drop(handlers);
    assert_eq!(times.len(), RECORDS as usize);
    times
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn each_record_has_its_own_time() {
    let before = now(ClockId::Monotonic);
    let times = times(Clock::PerRecord);
    let after = now(ClockId::Monotonic);
    // Records are further apart than the clock's resolution.
    assert!(times.is_sorted_by(|one, next| one < next));
    assert!(before < times[0] && times[times.len() - 1] < after);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn all_records_of_a_block_have_the_time_of_its_first() {
    check_block_times(load(Clock::PerBlock));
}

/// Checks the times of an object that was loaded with [`Clock::PerBlock`].
pub(crate) fn check_block_times(object: Loaded) {
    let before = now(ClockId::Monotonic);
    let times = times_of(object);
    let after = now(ClockId::Monotonic);
    let blocks: Vec<&[u64]> = times.chunks(BLOCK).collect();
    for times in &blocks {
        assert!(times.iter().all(|time| *time == times[0]), "one block: {times:?}");
    }
    assert!(blocks.is_sorted_by(|one, next| one[0] < next[0]));
    assert!(before < times[0] && times[times.len() - 1] < after);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_coarse_time_is_that_of_the_last_tick() {
    // Kernel 5.11 introduced `bpf_ktime_get_coarse_ns`.
    if kernel() < (5, 11) {
        let mut object = load(Clock::Coarse);
        let program: &mut SchedClassifier =
            object.program_mut("emit_numbered").unwrap().try_into().unwrap();
        let error = format!("{:?}", program.load().unwrap_err());
        assert!(error.contains("invalid func"), "{error}");
        return;
    }
    // Uses the same coarse clock, so the length of a tick does not matter.
    let before = now(ClockId::MonotonicCoarse);
    let times = times(Clock::Coarse);
    let after = now(ClockId::MonotonicCoarse);
    assert!(after <= now(ClockId::Monotonic), "ahead of the exact time");
    assert!(times.is_sorted());
    assert!(
        before <= times[0] && times[times.len() - 1] <= after,
        "{before} to {after}: {times:?}"
    );
    // Many records share a tick.
    let mut ticks = times.clone();
    ticks.dedup();
    assert!(ticks.len() < times.len() / 2, "{} different times", ticks.len());
}
