//! What a measurement gives.

use serde::{Deserialize, Serialize};

/// What came of it. What a load does not measure is absent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// What the loop costs without a contender.
    pub(crate) empty_ns: Option<f64>,
    /// What a record costs its producer, without that.
    pub(crate) producer_ns_net: Option<f64>,
    pub(crate) delivered_per_s: Option<f64>,
    pub(crate) attempted: Option<u64>,
    pub(crate) lost: Option<u64>,
    /// CPUs that the consumer kept busy: 0.5 is half of one.
    pub(crate) consumer_cpu: Option<f64>,
    pub(crate) wakeups_per_s: Option<f64>,
    /// What a record costs to drain, and to walk over.
    pub(crate) drain_ns: Option<f64>,
    pub(crate) walk_ns: Option<f64>,
    pub(crate) resident_kib: Option<u64>,
    pub(crate) latency_ns: Option<Latency>,
}

/// From emission to the handler, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl Latency {
    pub(super) fn of(mut samples: Vec<u64>) -> Option<Self> {
        samples.sort_unstable();
        let at =
            |percent: usize| samples.get((samples.len() * percent / 100).min(samples.len() - 1));
        let max = *samples.last()?;
        Some(Self { p50: *at(50)?, p99: *at(99)?, max })
    }
}

/// The middle one, or the mean of the two that are.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 })
}
