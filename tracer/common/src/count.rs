//! Counting hits in the kernel, for traces that report totals instead of events.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The per-CPU array of [`Count`]s, indexed by probe number.
pub const COUNTS: &str = "COUNTS";

/// How often a probe was hit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Count {
    /// Hits by traced tasks for which the predicate holds.
    pub hits: u64,
    /// Hits whose predicate could not be evaluated, because too many programs interrupted each other on a CPU,
    /// or because it depends on memory of the process that could not be read.
    /// For calls, those that could not be timed for that reason.
    pub unjudged: u64,
}
