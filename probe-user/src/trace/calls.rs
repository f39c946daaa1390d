//! Calls that there is no event of: what the maps of the programs tell of them.

use super::missed::Missed;
use super::object::Object;
use crate::cpus;
use aya::maps::{HashMap, MapData, MapError, PerCpuArray};
use probe_common::call::{CALL_COUNTS, CALLS, CallCounts, CallKey, PART};
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
pub(super) fn missed(object: &Object, probes: usize) -> Result<Vec<Missed>, MapError> {
    let mut left = vec![0; probes];
    for key in calls(object)?.keys() {
        let CallKey { probe, part, .. } = transmute!(key?);
        if let (0, Some(left)) = (part, left.get_mut(probe as usize)) {
            *left += 1;
        }
    }
    let counts = counts(object)?;
    let sum = |(probe, left): (u32, u64)| {
        let mut all = CallCounts::default();
        for cpu in counts.get(&probe, 0)?.iter() {
            let CallCounts { kept, returned, replaced, refused } = transmute!(*cpu);
            all.kept += kept;
            all.returned += returned;
            all.replaced += replaced;
            all.refused += refused;
        }
        let dropped = all.kept.saturating_sub(all.returned + all.replaced + left);
        let (no_room, no_return) = (all.refused + dropped, all.replaced + left);
        Ok(Missed { no_room, no_return, ..Missed::default() })
    };
    (0..).zip(left).map(sum).collect()
}

type Key = [u64; size_of::<CallKey>() / 8];
type Counts = [u64; size_of::<CallCounts>() / 8];

fn calls(object: &Object) -> Result<HashMap<&MapData, Key, [u8; PART]>, MapError> {
    object.map(CALLS)?.try_into()
}

fn counts(object: &Object) -> Result<PerCpuArray<&MapData, Counts>, MapError> {
    object.map(CALL_COUNTS)?.try_into()
}
