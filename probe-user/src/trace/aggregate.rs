//! Probes whose hits are added up in the kernel, in place of being told.

use super::attach::Links;
use super::builder::Attached;
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
use zerocopy::{FromBytes, IntoBytes};

/// Attached probes that add something up. To drop it detaches them.
#[derive(Debug)]
pub(super) struct Aggregate {
    // Dropped first: no program counts in what is gone.
    links: Links,
    pub(super) probes: Vec<Probe>,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) object: Object,
    counts: PerCpuArray,
}

impl Aggregate {
    pub(super) fn new(attached: Attached<()>) -> Result<Self, TraceError> {
        let Attached { links, probes, left_out, object, .. } = attached;
        let counts = array::<Count>(&object, COUNTS)?;
        Ok(Self { links, probes, left_out, object, counts })
    }

    /// What each probe has in an array, in the order of their numbers: `add` adds a CPU's.
    pub(super) fn sum<T: Default + FromBytes>(
        &self,
        array: &PerCpuArray,
        add: impl Fn(&mut T, &T),
    ) -> Result<Vec<T>, TraceError> {
        let sum = |number| {
            let mut sum = T::default();
            let add_one = |_, words: &[u64]| {
                // It fails for another size, which array() refuses.
                if let Ok(one) = T::read_from_bytes(words.as_bytes()) {
                    add(&mut sum, &one);
                }
            };
            array
                .read(number..number + 1, add_one)
                .map_err(|source| TraceError::Counts { source })?;
            Ok(sum)
        };
        (0..self.probes.len() as u32).map(sum).collect()
    }

    /// How often each probe was hit, or not timed, so far.
    pub(super) fn counts(&self) -> Result<Vec<Count>, TraceError> {
        self.sum(&self.counts, |sum: &mut Count, Count { hits, unjudged }| {
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

/// A per-CPU array of the programs, of `T` by the number of the probe.
pub(super) fn array<T>(object: &Object, name: &str) -> Result<PerCpuArray, TraceError> {
    let Ok(Map::PerCpuArray(map)) = object.map(name) else {
        return Err(TraceError::load(format!("it has no map {name}")));
    };
    let cpus = cpus::possible().map_err(TraceError::load)?.len();
    let size = size_of::<T>() as u32;
    PerCpuArray::open(map.fd().as_fd(), cpus, |info| info.value_size == size)
        .map_err(TraceError::load)?
        .map_err(|_| TraceError::load(format!("its map {name} is of another type")))
}
