//! Calls that there is no event of: what the maps of the programs tell of them.

use super::error::TraceError;
use super::missed::Missed;
use super::object::Object;
use super::per_cpu::PerCpu;
use crate::cpus;
use aya::maps::{HashMap, MapError};
use probe_common::call::{CALL_COUNTS, CALLS, CallCounts, CallKey, PART, USER_CALLS};
use zerocopy::transmute;

/// Parts of calls that are kept, unless told otherwise, for each CPU, and at least: 3 MiB. The kernel sets
/// some aside for each CPU, which others may find it hard to get.
const PARTS_PER_CPU: u32 = 1 << 9;
const LEAST_PARTS: u32 = 1 << 13;

/// How many parts of calls are kept, if nobody says.
pub(super) fn default_parts() -> u32 {
    let cpus = cpus::possible().map_or(1, |cpus| cpus.len() as u32);
    cpus.saturating_mul(PARTS_PER_CPU).max(LEAST_PARTS)
}

/// What became of the calls of `probes` probes, once all are detached.
pub(super) fn missed(object: &Object, probes: usize) -> Result<Vec<Missed>, TraceError> {
    let left = left(object, probes).map_err(TraceError::load)?;
    let add = |all: &mut CallCounts, cpu: &CallCounts| {
        let &CallCounts { kept, returned, replaced, refused } = cpu;
        all.kept += kept;
        all.returned += returned;
        all.replaced += replaced;
        all.refused += refused;
    };
    let counts = PerCpu::open(object, CALL_COUNTS)?.sum(probes, add)?;
    let missed = |(all, left): (CallCounts, u64)| {
        let dropped = all.kept.saturating_sub(all.returned + all.replaced + left);
        let (no_room, no_return) = (all.refused + dropped, all.replaced + left);
        Missed { no_room, no_return, ..Missed::default() }
    };
    Ok(counts.into_iter().zip(left).map(missed).collect())
}

/// How many calls of each probe are kept, still.
fn left(object: &Object, probes: usize) -> Result<Vec<u64>, MapError> {
    let mut left = vec![0; probes];
    for name in [CALLS, USER_CALLS] {
        let calls: HashMap<_, Key, [u8; PART]> = object.map(name)?.try_into()?;
        for key in calls.keys() {
            let CallKey { probe, part, .. } = transmute!(key?);
            if let (0, Some(left)) = (part, left.get_mut(probe as usize)) {
                *left += 1;
            }
        }
    }
    Ok(left)
}

type Key = [u64; size_of::<CallKey>() / 8];
