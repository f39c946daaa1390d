//! Counting hits in the kernel, where a trace is not to tell of each.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The per-CPU array of [`Count`]s, by the number of the probe.
pub const COUNTS: &str = "COUNTS";

/// How often a probe was hit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Count {
    /// Hits of tasks that are traced, for which the predicate holds.
    pub hits: u64,
    /// Hits for which that is not known, since too many programs interrupted each other on a CPU; of
    /// calls, those that are not timed for that.
    pub unjudged: u64,
}
