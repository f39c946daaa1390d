//! Median figures of one contender under one load.

use crate::contender::Contender;
use crate::measure::{Case, Latency, Load, Outcome, median};
use crate::plan::Outcomes;
use serde::Serialize;
use std::collections::BTreeMap;

/// Fields are absent where nothing was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) contender: String,
    pub(crate) producers: usize,
    pub(crate) payload: usize,
    /// Producer cost per record in nanoseconds, with one record per run of the program, net of the
    /// loop.
    pub(crate) producer_ns_net: Option<f64>,
    /// What was lost of these records, which makes the rest cheaper. Summed over all rounds.
    pub(crate) cost_attempted: Option<u64>,
    pub(crate) cost_lost: Option<u64>,
    /// The same cost with many records per run.
    pub(crate) producer_burst_ns_net: Option<f64>,
    /// Cost of the empty loop in nanoseconds.
    pub(crate) empty_ns: Option<f64>,
    pub(crate) delivered_per_s: Option<f64>,
    /// Summed over all rounds.
    pub(crate) attempted: Option<u64>,
    pub(crate) lost: Option<u64>,
    /// Consumer CPU utilization: 1.0 is one full CPU.
    pub(crate) consumer_cpu: Option<f64>,
    pub(crate) wakeups_per_s: Option<f64>,
    pub(crate) drain_ns: Option<f64>,
    /// Nanoseconds per record for a bare walk over the same bytes.
    pub(crate) walk_ns: Option<f64>,
    pub(crate) resident_kib: Option<f64>,
    /// Latency from emission to handler, by records per second and at saturation.
    pub(crate) latency_ns: BTreeMap<String, Latency>,
    /// Consumer cost, by records per second.
    pub(crate) paced: BTreeMap<String, Paced>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Paced {
    pub(crate) consumer_cpu: Option<f64>,
    pub(crate) wakeups_per_s: Option<f64>,
    pub(crate) lost: Option<u64>,
}

impl Row {
    fn new(case: &Case, producers: usize) -> Self {
        Self {
            contender: case.contender.to_string(),
            producers,
            payload: case.payload,
            ..Self::default()
        }
    }

    pub(crate) fn is_of(&self, contender: Contender) -> bool {
        self.contender == contender.to_string()
    }

    fn take(&mut self, case: &Case, outcomes: &[Outcome]) {
        let middle =
            |of: fn(&Outcome) -> Option<f64>| median(outcomes.iter().filter_map(of).collect());
        let sum = |of: fn(&Outcome) -> Option<u64>| outcomes.iter().map(of).sum();
        let latency = latency(outcomes);
        match case.load {
            Load::Cost => {
                self.producer_ns_net = middle(|one| one.producer_ns_net);
                self.cost_attempted = sum(|one| one.attempted);
                self.cost_lost = sum(|one| one.lost);
                self.empty_ns = middle(|one| one.empty_ns);
            }
            Load::Saturation => {
                self.producer_burst_ns_net = middle(|one| one.producer_ns_net);
                self.delivered_per_s = middle(|one| one.delivered_per_s);
                self.attempted = sum(|one| one.attempted);
                self.lost = sum(|one| one.lost);
                self.consumer_cpu = middle(|one| one.consumer_cpu);
                self.wakeups_per_s = middle(|one| one.wakeups_per_s);
                self.resident_kib = middle(|one| one.resident_kib.map(|kib| kib as f64));
                self.latency_ns.extend(latency.map(|latency| ("saturation".to_owned(), latency)));
            }
            Load::Drain => {
                self.drain_ns = middle(|one| one.drain_ns);
                self.walk_ns = middle(|one| one.walk_ns);
            }
            Load::Paced => {
                let rate = case.rate.to_string();
                self.latency_ns.extend(latency.map(|latency| (rate.clone(), latency)));
                let paced = Paced {
                    consumer_cpu: middle(|one| one.consumer_cpu),
                    wakeups_per_s: middle(|one| one.wakeups_per_s),
                    lost: sum(|one| one.lost),
                };
                self.paced.insert(rate, paced);
            }
        }
    }
}

/// The median of each figure over the rounds.
fn latency(outcomes: &[Outcome]) -> Option<Latency> {
    let middle = |of: fn(&Latency) -> u64| {
        let all = outcomes.iter().filter_map(|one| one.latency_ns.as_ref());
        median(all.map(|latency| of(latency) as f64).collect()).map(|ns| ns as u64)
    };
    Some(Latency {
        p50: middle(|latency| latency.p50)?,
        p99: middle(|latency| latency.p99)?,
        max: middle(|latency| latency.max)?,
    })
}

/// One row per contender, producer count and payload.
pub(crate) fn rows(outcomes: Outcomes, cpus: usize, failures: &mut Vec<String>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (case, results) in outcomes {
        let producers = if case.producers == 0 { cpus } else { case.producers };
        let mut good = Vec::new();
        for result in results {
            match result {
                Ok(outcome) => good.push(outcome),
                Err(error) => {
                    let Case { contender, load, payload, .. } = case;
                    failures.push(format!(
                        "{contender}, {load:?}, {producers} producers, {payload} bytes: {error:#}"
                    ));
                }
            }
        }
        let of_case = |row: &Row| {
            row.is_of(case.contender) && row.producers == producers && row.payload == case.payload
        };
        let at = rows.iter().position(of_case).unwrap_or_else(|| {
            rows.push(Row::new(&case, producers));
            rows.len() - 1
        });
        rows[at].take(&case, &good);
    }
    rows
}
