//! Counting how often probes are hit, in the kernel.

use super::aggregate::Aggregate;
use super::error::TraceError;
use super::expand::LeftOut;
use super::probe::Probe;
use probe_common::count::Count;

/// Attached probes whose hits are counted. To drop it detaches them.
///
/// Nothing comes out of the kernel before it is [read](Self::read): a hit costs what it takes to add 1.
#[derive(Debug)]
pub struct Counter {
    aggregate: Aggregate,
}

/// How often probes were hit, once they are detached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Of each probe, in the order of their numbers.
    pub probes: Vec<(Probe, Count)>,
    /// Processes and threads that should have been followed, and for which there was no room.
    pub not_followed: u64,
}

impl Counter {
    pub(super) fn new(aggregate: Aggregate) -> Self {
        Self { aggregate }
    }

    /// The probes, in the order of their numbers.
    pub fn probes(&self) -> &[Probe] {
        &self.aggregate.probes
    }

    /// What patterns match, and what is not probed all the same: one for each pattern.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.aggregate.left_out
    }

    /// How often each probe was hit so far, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn read(&self) -> Result<Vec<Count>, TraceError> {
        self.aggregate.counts()
    }

    /// Detaches the probes, and tells how often each was hit.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn close(mut self) -> Result<Counts, TraceError> {
        self.aggregate.detach();
        let counts = self.read()?;
        let not_followed = self.aggregate.object.not_followed()?;
        Ok(Counts { probes: self.aggregate.probes.into_iter().zip(counts).collect(), not_followed })
    }
}
