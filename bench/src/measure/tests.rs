//! Runs each compiled-in contender briefly, and checks that it receives what is emitted.

use super::*;
use crate::plan::PAYLOAD;

const RATE: u32 = 2_000;
const MILLIS: u64 = 50;

fn contenders() -> impl Iterator<Item = Contender> {
    Contender::value_variants().iter().copied().filter(|one| one.is_built_in())
}

fn measure(contender: Contender, load: Load, producers: usize) -> Outcome {
    let case = Case {
        contender,
        load,
        producers,
        payload: PAYLOAD,
        rate: if load == Load::Paced { RATE } else { 0 },
        random: false,
        phase: None,
        millis: MILLIS,
        ring_kib: 8192,
    };
    case.measure().unwrap_or_else(|error| panic!("{case:?}: {error:#}"))
}

#[test]
#[ignore = "needs BPF"]
fn every_contender_receives_all_records_at_a_rate() {
    for contender in contenders().filter(|one| one.profile().is_timed) {
        let outcome = measure(contender, Load::Paced, 1);
        let emitted = u64::from(RATE) * MILLIS / 1_000;
        assert_eq!((outcome.attempted, outcome.lost), (Some(emitted), Some(0)), "{contender}");
        assert!(outcome.latency_ns.is_some(), "{contender}");
    }
}

#[test]
#[ignore = "needs BPF"]
fn every_contender_is_measured_at_full_speed() {
    for contender in contenders() {
        for (load, producers) in [(Load::Cost, 1), (Load::Saturation, 1), (Load::Saturation, 0)] {
            let outcome = measure(contender, load, producers);
            assert!(outcome.producer_ns_net > Some(0.0), "{contender}");
            assert_eq!(outcome.delivered_per_s > Some(0.0), contender.delivers(), "{contender}");
        }
    }
}

#[test]
#[ignore = "needs BPF"]
fn every_contender_is_drained() {
    for contender in contenders().filter(|one| one.delivers() && one.is_consumed_here()) {
        let outcome = measure(contender, Load::Drain, 1);
        assert!(outcome.drain_ns > Some(0.0), "{contender}");
        // The walk needs access to the ring's event.
        assert_eq!(outcome.walk_ns.is_some(), contender.is_ours(), "{contender}");
    }
}
