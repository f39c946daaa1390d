//! Hits that wait: a page of the process's memory was missing when they were read, and the kernel, or the process, may need
//! it a moment later.
//!
//! A waiting hit is kept as the record that it will become, header included, in parts of [`PART`](crate::call::PART)
//! bytes. The word of a field that faulted has the address from which to read on.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The map of parts, by [`key`].
pub const WAITING: &str = "WAITING";

/// The map of places that a program is working on, by the [`key`] of the first part.
pub const WAITING_HELD: &str = "WAITING_HELD";

/// The array with the [`Waits`], in its only entry.
pub const WAITS: &str = "WAITS";

/// The per-CPU array of the number of hits that remained undecided, indexed by probe number.
pub const UNDECIDED: &str = "UNDECIDED_HITS";

/// The program that runs when a page fault of the current thread was resolved.
pub const PAGE_FAULT_PROGRAM: &str = "page_fault";

/// The program that ends the wait of a hit: its arguments are the thread and the place.
pub const END_WAIT_PROGRAM: &str = "end_wait";

/// The most hits of a thread that wait at the same time.
pub const PLACES: u32 = 4;

/// The bit of a waiting hit's probe number that marks a hit whose predicate is undecided.
pub const IS_UNDECIDED: u32 = 1 << 31;

/// The key of a part of the hit in a place of a thread, given by its id in the initial PID namespace.
#[inline(always)]
pub const fn key(thread: u32, place: u32, part: u32) -> u64 {
    thread as u64 | (place as u64) << 32 | (part as u64) << 48
}

/// The thread, the place and the part that a [`key`] is for.
pub const fn of_key(key: u64) -> (u32, u32, u32) {
    (key as u32, (key >> 32) as u32 & 0xffff, (key >> 48) as u32)
}

/// Where the kernel has what tells a waiting hit whether it still may read memory: offsets in the kernel's structures. All are
/// 0 if they are not known, and then no hit waits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Layout {
    /// The pointer to a task's memory (`mm` of `task_struct`).
    pub memory: u32,
    /// The pointer to a task's stack in the kernel (`stack` of `task_struct`).
    pub stack: u32,
    /// The size of such a stack, at whose end are the registers that the process had when it entered the kernel.
    pub stack_size: u32,
    /// The auxiliary vector of the program (`saved_auxv` of `mm_struct`), which says where its own file begins in memory.
    pub auxiliary: u32,
    /// Where the data of that file ends (`end_data` of `mm_struct`).
    pub end_data: u32,
}

/// How many hits wait.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Waits {
    /// Hits that began to wait.
    pub begun: u64,
    /// Hits that have ended their wait.
    pub ended: u64,
}

#[cfg(test)]
mod tests {
    use super::{key, of_key};

    #[test]
    fn a_key_tells_what_it_is_for() {
        assert_eq!(of_key(key(u32::MAX, 7, 30)), (u32::MAX, 7, 30));
        assert_eq!(of_key(key(1, 0, 0)), (1, 0, 0));
    }
}
