//! One perf ring, read: the mapped pages, the arithmetic of positions in them, and the perf records
//! between those positions.

pub(crate) mod cursor;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod memory;
pub(crate) mod page;
pub(crate) mod perf_record;

use cursor::Geometry;
use page::Scratch;

/// Where a drain finds a ring's bytes: mapped pages, and in tests other memory that a writer of ours
/// fills, so that they run the drain that ships.
///
/// The law is that of [`page`]: bytes between the tail and the head are the reader's to borrow, until
/// the tail moves past them.
pub(crate) trait RingMemory {
    /// How large the data area is.
    fn geometry(&self) -> Geometry;

    /// Up to where has been written: who sees the head sees the data before it.
    fn head(&self) -> u64;

    /// Gives everything before `tail` back to the writer.
    fn publish_tail(&mut self, tail: u64);

    /// `len` bytes from position `at`, where they lie, or, where they wrap, copied into `scratch`,
    /// which holds as many.
    ///
    /// `at .. at + len` has to be within what is [`available`](Geometry::available).
    fn bytes<'r>(&'r self, at: u64, len: usize, scratch: &'r mut Scratch) -> &'r [u8];

    /// The bytes from position `at` that lie in one piece, `available` of them at most.
    ///
    /// As for [`bytes`](Self::bytes), `at .. at + available` has to be available.
    fn piece(&self, at: u64, available: usize) -> &[u8];
}
