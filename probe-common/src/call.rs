//! Calls that have begun: what is kept of them until they return.
//!
//! A call is kept as the record that it will become, header and all, in parts of [`PART`] bytes: most
//! need one. It is known by where the stack was when it began, which is another place for each call that
//! has begun and not returned, however deep: of whatever thread in the kernel, of one thread outside, where
//! processes may have their stacks at the same addresses. If there is a call already where one begins, that
//! one has ended, and its return was not seen.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The map of parts, by [`CallKey`]. It drops what was kept longest when it is full.
pub const CALLS: &str = "CALLS";

/// The same, of calls of programs and libraries: what stands in the place of [`CALLS`] in programs that are
/// loaded for them.
pub const USER_CALLS: &str = "USER_CALLS";

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
    /// The thread, by its number; 0 if the stack is the kernel's.
    pub thread: u32,
    /// The number of the probe.
    pub probe: u32,
    /// Which part it is, from 0.
    pub part: u32,
    /// 0.
    pub reserved: u32,
}

impl CallKey {
    /// That of a part of a call that began on this stack, in a thread of this number.
    #[inline(always)]
    pub const fn new(stack: u64, thread: u32, probe: u32, part: u32) -> Self {
        // The upper half of all addresses is the kernel's.
        let thread = if stack >> 63 == 0 { thread } else { 0 };
        Self { stack, thread, probe, part, reserved: 0 }
    }
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

#[cfg(test)]
mod tests {
    use super::CallKey;

    #[test]
    fn the_same_place_of_two_threads_is_another_one_outside_the_kernel() {
        let key = |stack, thread| CallKey::new(stack, thread, 3, 1);
        let (user, kernel) = (0x7ffd_1234_5678, 0xffff_c900_0123_4567);
        assert_ne!(key(user, 7), key(user, 8));
        assert_eq!(key(kernel, 7), key(kernel, 8));
        assert_ne!(key(kernel, 7), key(user, 7));
    }
}
