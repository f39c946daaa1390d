//! Counting how often probes are hit, in the kernel.

use super::attach::Links;
use super::error::TraceError;
use super::expand::LeftOut;
use super::object::Object;
use super::probe::Probe;
use crate::cpus;
use crate::sys::bpf::PerCpuArray;
use crate::sys::membarrier;
use aya::maps::Map;
use probe_common::count::{COUNTS, Count};
use std::os::fd::AsFd;

/// Attached probes whose hits are counted. To drop it detaches them.
///
/// Nothing comes out of the kernel before it is [read](Self::read): a hit costs what it takes to add 1.
#[derive(Debug)]
pub struct Counter {
    // Dropped first: no program counts in what is gone.
    links: Links,
    probes: Vec<Probe>,
    left_out: Vec<LeftOut>,
    counts: PerCpuArray,
    object: Object,
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
    pub(super) fn new(
        links: Links,
        probes: Vec<Probe>,
        left_out: Vec<LeftOut>,
        object: Object,
    ) -> Result<Self, TraceError> {
        let Some(Map::PerCpuArray(map)) = object.ebpf.map(COUNTS) else {
            return Err(TraceError::load(format!("it has no map {COUNTS}")));
        };
        let cpus = cpus::possible().map_err(TraceError::load)?.len();
        let words = size_of::<Count>() as u32;
        let counts = PerCpuArray::open(map.fd().as_fd(), cpus, |info| info.value_size == words)
            .map_err(TraceError::load)?
            .map_err(|_| TraceError::load(format!("its map {COUNTS} is of another type")))?;
        Ok(Self { links, probes, left_out, counts, object })
    }

    /// The probes, in the order of their numbers.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// What patterns match, and what is not probed all the same: one for each pattern.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// How often each probe was hit so far, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn read(&self) -> Result<Vec<Count>, TraceError> {
        let mut counts = Vec::with_capacity(self.probes.len());
        for number in 0..self.probes.len() as u32 {
            let mut sum = Count::default();
            let add = |_, words: &[u64]| {
                if let [hits, unjudged] = words {
                    sum.hits += hits;
                    sum.unjudged += unjudged;
                }
            };
            self.counts
                .read(number..number + 1, add)
                .map_err(|source| TraceError::Counts { source })?;
            counts.push(sum);
        }
        Ok(counts)
    }

    /// Detaches the probes, and tells how often each was hit.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn close(mut self) -> Result<Counts, TraceError> {
        drop(std::mem::take(&mut self.links));
        // A program that has begun may not have counted yet. Where the kernel has no such call, the last
        // of them has ended by the time the counts are read.
        let _ = membarrier::wait_for_programs();
        let counts = self.read()?;
        let not_followed = self.object.not_followed()?;
        Ok(Counts { probes: self.probes.into_iter().zip(counts).collect(), not_followed })
    }
}
