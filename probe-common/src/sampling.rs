//! Telling of some hits only: so many a second, or one in so many.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The hash of hits that were told of in a second, by [`Second`].
pub const SECONDS: &str = "SECONDS";

/// The array of [`Latest`], by the number of the probe.
pub const LATEST: &str = "LATEST";

/// The per-CPU array of [`Sampled`], by the number of the probe.
pub const SAMPLED: &str = "SAMPLED";

/// Of which probe, and when: by `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Second {
    /// Which second.
    pub second: u64,
    /// The number of the probe.
    pub probe: u64,
}

/// The last seconds in which a probe was hit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Latest {
    /// The last one.
    pub last: u64,
    /// The one before that.
    pub before: u64,
}

/// What became of a probe's hits for which the predicate holds, on a CPU.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Sampled {
    /// How many there were.
    pub seen: u64,
    /// How many of them are not told.
    pub withheld: u64,
}

/// How many [`Second`]s there can be at a time, of so many probes: two each, and a third while one of these
/// goes.
pub const fn seconds(probes: u32) -> u32 {
    probes.saturating_mul(3)
}
