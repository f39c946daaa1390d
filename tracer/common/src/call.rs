//! Calls in progress: what the programs keep of a call until it returns.
//!
//! A call is kept as the record that it will become, header included, in parts of [`PART`] bytes; most calls
//! need one part. Its key is the stack pointer at entry, which differs for every call that is in progress,
//! however deep. In the kernel, that holds across all threads; in user space, the key also has the thread,
//! because processes may have stacks at the same addresses. If a call begins where one is kept already, the
//! earlier one has ended and its return was not seen.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The map of parts, by [`CallKey`]. When it is full, it drops the oldest part.
pub const CALLS: &str = "CALLS";

/// The same map for calls in programs and libraries. It takes the place of [`CALLS`] in the programs that are
/// loaded for uprobes.
pub const USER_CALLS: &str = "USER_CALLS";

/// The per-CPU array of [`CallCounts`], indexed by probe number.
pub const CALL_COUNTS: &str = "CALL_COUNTS";

/// Size of a part in bytes.
pub const PART: usize = 256;

/// The key of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CallKey {
    /// The stack pointer at the function's entry.
    pub stack: u64,
    /// The thread id, or 0 if the stack is the kernel's.
    pub thread: u32,
    /// The number of the probe.
    pub probe: u32,
    /// The index of the part, from 0.
    pub part: u32,
    /// Zero.
    pub reserved: u32,
}

impl CallKey {
    /// The key of a part of a call that began on this stack, in this thread.
    #[inline(always)]
    pub const fn new(stack: u64, thread: u32, probe: u32, part: u32) -> Self {
        // The upper half of all addresses is the kernel's.
        let thread = if stack >> 63 == 0 { thread } else { 0 };
        Self { stack, thread, probe, part, reserved: 0 }
    }
}

/// What became of a probe's calls. A call that was kept, is not counted below and is no longer in the map was
/// dropped by the map.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CallCounts {
    /// Calls that were kept.
    pub kept: u64,
    /// Kept calls that were found when they returned.
    pub returned: u64,
    /// Kept calls that were still there when another call began in their place.
    pub replaced: u64,
    /// Calls that were not kept, because the map refused them or dropped a part of them.
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
