//! Probes whose hits are added up in the kernel, in place of being told.

use super::attach::Links;
use super::builder::Attached;
use super::error::TraceError;
use super::expand::LeftOut;
use super::object::Object;
use super::per_cpu::PerCpu;
use super::probe::Probe;
use crate::sys::membarrier;
use probe_common::count::{COUNTS, Count};

/// Attached probes that add something up. To drop it detaches them.
#[derive(Debug)]
pub(super) struct Aggregate {
    // Dropped first: no program counts in what is gone.
    links: Links,
    pub(super) probes: Vec<Probe>,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) object: Object,
    counts: PerCpu<Count>,
}

impl Aggregate {
    pub(super) fn new(attached: Attached<()>) -> Result<Self, TraceError> {
        let Attached { links, probes, left_out, object, .. } = attached;
        let counts = PerCpu::open(&object, COUNTS)?;
        Ok(Self { links, probes, left_out, object, counts })
    }

    /// How often each probe was hit, or not timed, so far.
    pub(super) fn counts(&self) -> Result<Vec<Count>, TraceError> {
        self.counts.sum(self.probes.len(), |sum, Count { hits, unjudged }| {
            sum.hits += hits;
            sum.unjudged += unjudged;
        })
    }

    /// Detaches the probes. Gives the hits of each that the kernel has not passed on.
    pub(super) fn detach(&mut self) -> Vec<Option<u64>> {
        let missed = self.links.missed(self.probes.len());
        drop(std::mem::take(&mut self.links));
        // A program that has begun may not have counted yet. Where the kernel has no such call, the last
        // of them has ended by the time the counts are read.
        let _ = membarrier::wait_for_programs();
        missed
    }
}
