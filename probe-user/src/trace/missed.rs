//! Hits that there is no event of.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Hits of a probe that there is no event of, and that are not in the pipe's ledger: they never got that
/// far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Missed {
    /// What the kernel has not passed on, of whatever task, and whatever the probe's condition says:
    /// hits in the middle of another probe's, and returns, where more calls were under way than it can
    /// tell of at a time. `None` if it does not tell (before 6.7), or there was no such probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_kernel: Option<u64>,
    /// Calls that were dropped before they returned: more were under way than are kept.
    pub no_room: u64,
    /// Calls whose return was not seen: they had not returned when the trace ended, or never do, or the
    /// kernel did not tell of it.
    pub no_return: u64,
    /// Hits that are not told, as was asked for: by the rate, or by sampling.
    pub withheld: u64,
}

impl Missed {
    /// Whether there is nothing to tell.
    pub fn is_nothing(&self) -> bool {
        self.calls() == 0 && self.by_kernel.unwrap_or(0) == 0 && self.withheld == 0
    }

    /// Calls that there is no event of.
    pub fn calls(&self) -> u64 {
        self.no_room.saturating_add(self.no_return)
    }
}

/// `12 calls missed (no room to keep them 10, return not seen 2); 3 hits not passed on by the kernel; 7
/// hits withheld`
impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = if self.calls() == 1 { "call" } else { "calls" };
        let reasons = [("no room to keep them", self.no_room), ("return not seen", self.no_return)];
        let told = reasons.iter().filter(|(_, count)| *count > 0);
        let told: Vec<_> = told.map(|(why, count)| format!("{why} {count}")).collect();
        let mut parts = Vec::new();
        if !told.is_empty() {
            parts.push(format!("{} {calls} missed ({})", self.calls(), told.join(", ")));
        }
        for (hits, what) in [
            (self.by_kernel.unwrap_or(0), "not passed on by the kernel"),
            (self.withheld, "withheld"),
        ] {
            if hits > 0 {
                let s = if hits == 1 { "" } else { "s" };
                parts.push(format!("{hits} hit{s} {what}"));
            }
        }
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_told_with_its_reasons() {
        for (by_kernel, no_room, no_return, withheld, told) in [
            (None, 10, 2, 0, "12 calls missed (no room to keep them 10, return not seen 2)"),
            (Some(0), 0, 1, 0, "1 call missed (return not seen 1)"),
            (Some(3), 0, 0, 0, "3 hits not passed on by the kernel"),
            (None, 0, 0, 1, "1 hit withheld"),
            (
                Some(1),
                1,
                0,
                2,
                "1 call missed (no room to keep them 1); 1 hit not passed on by the kernel; 2 hits withheld",
            ),
        ] {
            let missed = Missed { by_kernel, no_room, no_return, withheld };
            assert_eq!(missed.to_string(), told);
            assert!(!missed.is_nothing());
        }
        assert!(Missed { by_kernel: Some(0), ..Missed::default() }.is_nothing());
    }
}
