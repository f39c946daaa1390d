//! Hits without an event.

use crate::error::TraceError;
use crate::hook;
use crate::hook::attach::Links;
use crate::object::Object;
use crate::object::per_cpu::PerCpu;
use crate::resolve::probe::Probe;
use crate::session::ledger::is_zero;
use aya::maps::{HashMap, MapError};
use probe_sys::hint::counted;
use probe_tracer_common::call::{CALL_COUNTS, CALLS, CallCounts, CallKey, PART, USER_CALLS};
use probe_tracer_common::sampling::{SAMPLED, Sampled};
use probe_tracer_common::wait::UNDECIDED;
use serde::{Deserialize, Serialize};
use std::fmt;
use zerocopy::transmute;

/// Hits of a probe without an event. The pipe's ledger does not count them, because they never
/// reached the pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Missed {
    /// Hits that the kernel did not pass on: those during a program of the same probe, and returns when
    /// too many calls were under way. Those during another program, and those of a pattern's functions, are counted for
    /// all probes together ([`TraceLedger::skipped`](crate::TraceLedger::skipped)), except where the probe has a
    /// program of its own. The kernel counts them for all tasks, whatever the probe's
    /// condition. `None` if it has no such count: before 6.7, or for this type of link. For
    /// `uretprobe:`, it never counts returns from calls nested more than 64 deep in a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_kernel: Option<u64>,
    /// Calls that were dropped before they returned, because too many were under way.
    pub no_room: u64,
    /// Calls whose return was not seen: they had not returned when the trace ended, never return,
    /// or the kernel did not report it.
    pub no_return: u64,
    /// Hits that were sampled out or exceeded the rate limit.
    #[serde(rename = "withheld")]
    pub sampled_out: u64,
    /// Hits that remained undecided: the probe's condition depends on memory of the process that could not be read, neither
    /// at the hit nor until the call was over, or on the end of a string that is too long to be read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub undecided: u64,
}

impl Missed {
    /// Whether all counts are 0.
    pub fn is_nothing(&self) -> bool {
        self.calls() == 0
            && self.by_kernel.unwrap_or(0) == 0
            && self.sampled_out == 0
            && self.undecided == 0
    }

    /// Calls without an event.
    pub fn calls(&self) -> u64 {
        self.no_room.saturating_add(self.no_return)
    }
}

/// `12 calls missed (no room to keep them 10, return not seen 2); 3 hits not passed on by the kernel;
/// 7 hits sampled out`
impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = [("no room to keep them", self.no_room), ("return not seen", self.no_return)];
        let reasons = reasons.iter().filter(|(_, count)| *count > 0);
        let reasons: Vec<_> = reasons.map(|(why, count)| format!("{why} {count}")).collect();
        let mut parts = Vec::new();
        if !reasons.is_empty() {
            let calls = counted(self.calls(), "call");
            parts.push(format!("{calls} missed ({})", reasons.join(", ")));
        }
        for (hits, what) in [
            (self.by_kernel.unwrap_or(0), "not passed on by the kernel"),
            (self.sampled_out, "sampled out"),
            (self.undecided, "undecided (not everything that the predicate needs could be read)"),
        ] {
            if hits > 0 {
                parts.push(format!("{} {what}", counted(hits, "hit")));
            }
        }
        f.write_str(&parts.join("; "))
    }
}

/// Counts the calls without an event of `probes` probes, once all are detached.
pub(crate) fn calls(object: &Object, probes: usize) -> Result<Vec<Missed>, TraceError> {
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

/// The number of calls of each probe that are still kept.
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

/// The number of hits of all of these probes that the kernel skipped, apart from those in [`Missed::by_kernel`]: because
/// another program was running on the CPU, or at functions that share a link. `None` if the kernel may have skipped
/// some and does not count them.
///
/// Functions of programs are never hit while a program runs; kernels with full preemption from 5.11 to 5.19 nevertheless skip some
/// of their hits in silence. Raw tracepoints and trampolines have a program each.
pub(crate) fn skipped(
    object: &Object,
    probes: &[Probe],
    links: &Links,
) -> Result<Option<u64>, TraceError> {
    let may_be = |probe: &Probe| hook::of(probe.spec().provider()).may_be_skipped();
    match (probes.iter().any(may_be), links.count_skipped()) {
        (false, _) => Ok(Some(0)),
        (true, false) => Ok(None),
        (true, true) => Ok(Some(object.skipped()?.saturating_add(links.missed_together()))),
    }
}

/// The number of hits of each of `probes` probes that were sampled out.
pub(crate) fn sampled_out(object: &Object, probes: usize) -> Result<Vec<u64>, TraceError> {
    let add = |sum: &mut Sampled, cpu: &Sampled| sum.sampled_out += cpu.sampled_out;
    let sums = PerCpu::open(object, SAMPLED)?.sum(probes, add)?;
    Ok(sums.into_iter().map(|sampled| sampled.sampled_out).collect())
}

/// The number of hits of each of `probes` probes that remained undecided.
pub(crate) fn undecided(object: &Object, probes: usize) -> Result<Vec<u64>, TraceError> {
    PerCpu::open(object, UNDECIDED)?.sum(probes, |sum: &mut u64, cpu| *sum += cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_hits_are_printed_with_their_reasons() {
        for (by_kernel, no_room, no_return, [sampled_out, undecided], text) in [
            (None, 10, 2, [0; 2], "12 calls missed (no room to keep them 10, return not seen 2)"),
            (Some(0), 0, 1, [0; 2], "1 call missed (return not seen 1)"),
            (Some(3), 0, 0, [0; 2], "3 hits not passed on by the kernel"),
            (None, 0, 0, [1, 0], "1 hit sampled out"),
            (
                Some(1),
                1,
                0,
                [2, 4],
                "1 call missed (no room to keep them 1); 1 hit not passed on by the kernel; 2 hits sampled out; \
                 4 hits undecided (not everything that the predicate needs could be read)",
            ),
        ] {
            let missed = Missed { by_kernel, no_room, no_return, sampled_out, undecided };
            assert_eq!(missed.to_string(), text);
            assert!(!missed.is_nothing());
        }
        assert!(Missed { by_kernel: Some(0), ..Missed::default() }.is_nothing());
    }
}
