//! Calls that have begun: what is kept of them until they return.
//!
//! A call is kept as the record that it will become, header and all, in parts of [`PART`] bytes: most
//! need one. It is known by where the stack was when it began, which is another place for each call that
//! has begun and not returned, of whatever thread, however deep. If there is a call already where one
//! begins, that one has ended, and its return was not seen.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The map of parts, by [`CallKey`]. It drops what was kept longest when it is full.
pub const CALLS: &str = "CALLS";

/// The per-CPU array of [`CallCounts`], by the number of the probe.
pub const CALL_COUNTS: &str = "CALL_COUNTS";

/// Bytes of a part.
pub const PART: usize = 256;

/// What a part is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CallKey {
    /// The stack pointer where the function was entered.
    pub stack: u64,
    /// The number of the probe.
    pub probe: u32,
    /// Which part it is, from 0.
    pub part: u32,
}

/// What became of a probe's calls. Those that were kept, and are neither among the others here nor in the
/// map, it has dropped.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CallCounts {
    /// How many were kept.
    pub kept: u64,
    /// How many of these were found when they returned.
    pub returned: u64,
    /// How many of them were still there when another call began in their place.
    pub replaced: u64,
    /// How many were not kept, since the map did not take them, or dropped a part of them.
    pub refused: u64,
}
