//! One contender with one load: the medians of what was measured.

use crate::contender::Contender;
use crate::measure::{Case, Latency, Load, Outcome, median};
use crate::rounds::Outcomes;
use serde::Serialize;
use std::collections::BTreeMap;

/// A field is absent where it was not measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) contender: String,
    pub(crate) producers: usize,
    pub(crate) payload: usize,
    /// Nanoseconds that a record costs its producer, one in each run of its program, without the loop around that.
    pub(crate) producer_ns_net: Option<f64>,
    /// The same, many of them in a run.
    pub(crate) producer_burst_ns_net: Option<f64>,
    /// What that loop costs.
    pub(crate) empty_ns: Option<f64>,
    pub(crate) delivered_per_s: Option<f64>,
    /// In all rounds together.
    pub(crate) attempted: Option<u64>,
    pub(crate) lost: Option<u64>,
    /// CPUs that the consumer kept busy.
    pub(crate) consumer_cpu: Option<f64>,
    pub(crate) wakeups_per_s: Option<f64>,
    pub(crate) drain_ns: Option<f64>,
    /// A bare walk over the same bytes.
    pub(crate) walk_ns: Option<f64>,
    pub(crate) resident_kib: Option<f64>,
    /// From emission to handler, by records a second, and at saturation.
    pub(crate) latency_ns: BTreeMap<String, Latency>,
    /// What the consumer cost, by records a second.
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

/// Medians of each figure, over the rounds.
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

/// One row for each contender, number of producers and payload.
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
