//! With how large a ring `probe` loses nothing, if it does with its own.

use super::flood;
use super::round::{Outcomes, Plan};
use super::tool::{Tool, Tools};
use anyhow::Result;
use serde::Serialize;

/// Bytes for each CPU: what `probe` takes by itself, and more than that.
const OWN: u64 = 1 << 20;
const LARGEST: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Enough {
    /// Bytes for each CPU (`-B`).
    pub(super) bytes: u64,
    /// In so many floods in a row, nothing was missing.
    pub(super) floods: usize,
}

/// The smallest ring with which nothing is missing in as many floods as there are rounds; nothing, if
/// none was missing anyway, or no ring is large enough.
pub(super) fn enough(plan: &Plan, outcomes: &[Outcomes]) -> Result<Option<Enough>> {
    let mut floods =
        outcomes.iter().filter(|one| one.tool == Tool::Probe).flat_map(|one| &one.floods);
    if floods.all(flood::Flood::is_whole) {
        return Ok(None);
    }
    let sizes = std::iter::successors(Some(OWN * 2), |bytes| Some(bytes * 2));
    for bytes in sizes.take_while(|bytes| *bytes <= LARGEST) {
        let tools = Tools { ring: Some(bytes), ..plan.tools.clone() };
        let mut whole = 0;
        while whole < plan.rounds
            && flood::measure(&tools, Tool::Probe, plan.writes, &plan.scratch)?.is_whole()
        {
            whole += 1;
        }
        if whole == plan.rounds {
            return Ok(Some(Enough { bytes, floods: whole }));
        }
    }
    Ok(None)
}
