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
    /// One round takes them in this order.
    pub(crate) cases: Vec<Case>,
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
        let (contenders, missing): (Vec<_>, Vec<_>) =
            wanted.partition(|one| cfg!(feature = "libbpf") || !one.needs_libbpf());
        let mut cases = Vec::new();
        let mut case = |load, contender, producers, payload, rate, millis| {
            cases.push(Case { contender, load, producers, payload, rate, millis, ring_kib });
        };
        let payloads = if quick { &[PAYLOAD][..] } else { &PAYLOADS };
        for &payload in payloads {
            for producers in [1, 0] {
                for &contender in &contenders {
                    let wanted = payload == PAYLOAD || contender.takes_every_payload();
                    if wanted && (producers == 1 || contender.delivers()) {
                        let millis = if quick { 250 } else { 400 };
                        for load in [Load::Cost, Load::Saturation] {
                            case(load, contender, producers, payload, 0, millis);
                        }
                    }
                }
            }
        }
        for &contender in contenders.iter().filter(|one| one.delivers()) {
            case(Load::Drain, contender, 1, PAYLOAD, 0, 250);
        }
        for rate in RATES {
            let millis = match (rate, quick) {
                (1, true) => 5_000,
                (1, false) => 6_000,
                (_, true) => 400,
                (_, false) => 1_000,
            };
            for &contender in contenders.iter().filter(|one| one.is_timed()) {
                case(Load::Paced, contender, 1, PAYLOAD, rate, millis);
            }
        }
        Self { rounds: rounds.unwrap_or(if quick { 3 } else { 5 }), cases, missing }
    }
}
