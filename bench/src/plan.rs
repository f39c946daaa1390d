//! What a run measures, and how often.

use crate::contender::Contender;
use crate::measure::{Case, Load};
use clap::ValueEnum;

/// The payload that all contenders have, in bytes.
pub(crate) const PAYLOAD: usize = 64;
const PAYLOADS: [usize; 5] = [16, PAYLOAD, 256, 1024, 4096];
/// Records a second.
pub(crate) const RATES: [u32; 3] = [1, 1_000, 100_000];

pub(crate) struct Plan {
    pub(crate) rounds: u32,
    /// One round takes them in this order. What is in one turn is measured at the same time.
    pub(crate) turns: Vec<Vec<Case>>,
    /// Contenders that are not built in.
    pub(crate) missing: Vec<Contender>,
}

impl Plan {
    pub(crate) fn new(
        quick: bool,
        rounds: Option<u32>,
        only: &[Contender],
        ring_kib: usize,
    ) -> Self {
        let wanted = Contender::value_variants().iter().copied();
        let wanted = wanted.filter(|one| only.is_empty() || only.contains(one));
        let (contenders, missing): (Vec<_>, Vec<_>) = wanted.partition(|one| one.is_built_in());
        let case = |load, contender, producers, payload, millis| Case {
            contender,
            load,
            producers,
            payload,
            millis,
            ring_kib,
            rate: 0,
            phase: None,
        };
        let mut turns = Vec::new();
        let payloads = if quick { &[PAYLOAD][..] } else { &PAYLOADS };
        for &payload in payloads {
            for producers in [1, 0] {
                for &contender in &contenders {
                    let wanted = payload == PAYLOAD || contender.takes_every_payload();
                    if wanted && (producers == 1 || contender.delivers()) {
                        let millis = if quick { 250 } else { 400 };
                        for load in [Load::Cost, Load::Saturation] {
                            turns.push(vec![case(load, contender, producers, payload, millis)]);
                        }
                    }
                }
            }
        }
        let drained = contenders.iter().filter(|one| one.delivers() && one.is_consumed_here());
        for &contender in drained {
            turns.push(vec![case(Load::Drain, contender, 1, PAYLOAD, 250)]);
        }
        let timed = || contenders.iter().copied().filter(|one| one.is_timed());
        let paced = |contender, rate, millis| {
            let phase = None;
            Case { rate, phase, ..case(Load::Paced, contender, 1, PAYLOAD, millis) }
        };
        for rate in &RATES[1..] {
            let millis = if quick { 400 } else { 1_000 };
            turns.extend(timed().map(|contender| vec![paced(contender, *rate, millis)]));
        }
        let millis = if quick { 15_000 } else { 25_000 };
        let idle = |contender| paced(contender, RATES[0], millis);
        let (woken, looking): (Vec<_>, Vec<_>) = timed().partition(|one| one.is_woken());
        turns.extend([woken, looking].map(|those| spread(those.into_iter().map(idle).collect())));
        Self { rounds: rounds.unwrap_or(if quick { 3 } else { 5 }), turns, missing }
    }
}

/// Has contenders with few records a second emit these in turns, at the same distance from each other: how long
/// it takes to wake a CPU changes by the minute, and so it is the same for all.
fn spread(mut cases: Vec<Case>) -> Vec<Case> {
    let count = cases.len();
    for (at, case) in cases.iter_mut().enumerate() {
        case.phase = Some(1_000 * at as u64 / count as u64);
    }
    cases
}
