//! Sampling of hits: at most so many a second, or one in a given number.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The hash of hits reported in a second, by [`Second`].
pub const SECONDS: &str = "SECONDS";

/// The array of [`Latest`], indexed by probe number.
pub const LATEST: &str = "LATEST";

/// The per-CPU array of [`Sampled`], indexed by probe number.
pub const SAMPLED: &str = "SAMPLED";

/// A probe and a second of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Second {
    /// The second.
    pub second: u64,
    /// The number of the probe.
    pub probe: u64,
}

/// The last two seconds in which a probe was hit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Latest {
    /// The last second.
    pub last: u64,
    /// The second before that one.
    pub before: u64,
}

/// What became of a probe's hits for which the predicate holds, on one CPU.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Sampled {
    /// All such hits.
    pub seen: u64,
    /// Hits that were sampled out.
    pub sampled_out: u64,
}

/// The most [`Second`]s that exist at a time for a number of probes: two each, a third while one of them is being removed, and
/// one that was not noted (`forget` of the tracer's eBPF crate).
pub const fn seconds(probes: u32) -> u32 {
    probes.saturating_mul(4)
}
