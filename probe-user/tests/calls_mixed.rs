//! Calls of functions of the kernel and of a program in one trace, where programs for the former interrupt
//! those for the latter.

#[path = "suite/version.rs"]
mod version;

use probe_user::trace::{Scope, Tracer};
use std::hint::black_box;

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn calls_mixed_fixture(depth: u64) -> u64 {
    // Calls itself, so that many are under way at a time.
    if depth == 0 { 1 } else { black_box(calls_mixed_fixture(black_box(depth - 1))) + 1 }
}

/// The kernel calls this function where it drops what a map has kept longest, and holds a lock of the map.
#[test]
#[ignore = "needs root, BPF, kprobes and uprobes: cargo xtask test"]
fn calls_in_the_kernel_do_not_wait_for_the_map_that_they_interrupt() {
    const ROUNDS: u64 = 200;
    const DEPTH: u64 = 19;
    let own = std::env::current_exe().unwrap();
    let user = format!("uprobe:{}:calls_mixed_fixture", own.display());
    let stopwatch = Tracer::builder()
        .scope(Scope::Process(std::process::id()))
        .probe("kprobe:htab_lru_map_delete_node".parse().unwrap())
        .probe(user.parse().unwrap())
        .keep_calls(4)
        .time_with(|_| {})
        .unwrap();
    for _ in 0..ROUNDS {
        assert_eq!(calls_mixed_fixture(DEPTH), DEPTH + 1);
    }
    let latencies = stopwatch.close().unwrap();
    let [(_, kernel), (_, user)] = &latencies.probes[..] else { panic!("{latencies:?}") };
    let (timed, missed) = (user.histogram.calls(), user.missed);
    assert_eq!(timed + user.untimed + missed.calls(), ROUNDS * (DEPTH + 1), "{missed}");
    assert!(missed.no_room > 0, "{missed}");
    // Before, the kernel runs no program of a kprobe in one of a uprobe.
    if version::kernel() >= (6, 0) {
        assert!(kernel.histogram.calls() > 0, "{}", kernel.missed);
    }
}
