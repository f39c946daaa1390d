//! Which of a probe's hits are told, where not all are.

use super::error::TraceError;
use super::object::Object;
use super::per_cpu::PerCpu;
use probe_common::sampling::{SAMPLED, Sampled};
use std::num::NonZeroU32;

/// How many hits of each probe are told, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sampling {
    /// One in so many, on each CPU.
    pub(super) one_in: Option<NonZeroU32>,
    /// So many in a second.
    pub(super) per_second: Option<NonZeroU32>,
}

impl Sampling {
    /// Whether all are told.
    pub(super) fn is_all(self) -> bool {
        self == Self::default()
    }
}

/// How many hits of each of `probes` probes were not told.
pub(super) fn withheld(object: &Object, probes: usize) -> Result<Vec<u64>, TraceError> {
    let add = |sum: &mut Sampled, cpu: &Sampled| sum.withheld += cpu.withheld;
    let sums = PerCpu::open(object, SAMPLED)?.sum(probes, add)?;
    Ok(sums.into_iter().map(|sampled| sampled.withheld).collect())
}
