//! Counting how often probes are hit, in the kernel.

use crate::error::TraceError;
use crate::hook::expand::LeftOut;
use crate::resolve::probe::Probe;
use crate::session::attached::{Aggregate, Detaching, Ended};
use probe_tracer_common::count::Count;

/// Attached probes whose hits are counted. Dropping it detaches them.
///
/// No data leaves the kernel until it is [read](Self::read): a hit costs one increment.
#[derive(Debug)]
pub struct HitCounter(pub(super) Aggregate);

/// How often each probe was hit, once they are detached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// The count of each probe, in the order of their numbers.
    pub probes: Vec<(Probe, Count)>,
    /// Processes and threads that should have been followed, but found no room.
    pub not_followed: u64,
    /// Hits that the kernel did not pass on, mostly because another eBPF program was running on the CPU.
    /// It counts them for all tasks, whatever a probe's condition. `None` if it does not count them
    /// (before 6.7).
    pub skipped: Option<u64>,
}

impl HitCounter {
    /// The probes, in the order of their numbers.
    pub fn probes(&self) -> &[Probe] {
        &self.0.probes
    }

    /// What the patterns match but the tracer does not probe: one for each pattern.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.0.left_out
    }

    /// How often each probe was hit so far, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// If the counts cannot be read.
    pub fn read(&self) -> Result<Vec<Count>, TraceError> {
        self.0.counts()
    }

    /// Detaches the probes, and returns how often each was hit.
    ///
    /// # Errors
    ///
    /// If the counts cannot be read.
    pub fn close(self) -> Result<Counts, TraceError> {
        self.finish().map(|(counts, _)| counts)
    }

    /// Like [`close`](Self::close), but leaves it to the caller when the probes are detached. They
    /// count nothing any more.
    ///
    /// # Errors
    ///
    /// If the counts cannot be read.
    pub fn finish(mut self) -> Result<(Counts, Detaching), TraceError> {
        let Ended { missed, skipped, detaching } = self.0.end()?;
        let skipped = skipped.map(|skipped| skipped + missed.into_iter().flatten().sum::<u64>());
        let counts = self.read()?;
        let not_followed = self.0.object.not_followed()?;
        let probes = self.0.probes.into_iter().zip(counts).collect();
        Ok((Counts { probes, not_followed, skipped }, detaching))
    }
}
