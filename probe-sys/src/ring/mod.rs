//! Reading one perf ring: the mapped pages, the arithmetic of positions in them, and the perf records between those
//! positions.

mod aux_pages;
pub mod cursor;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod memory;
pub mod page;
pub mod perf_record;

pub use aux_pages::AuxPages;

use cursor::Geometry;
use page::Scratch;

/// The memory of a ring: mapped pages, or in tests, memory that the test fills. Tests therefore run the code that
/// ships.
///
/// The rule is that of [`page`]: the reader may borrow the bytes between the tail and the head, until the tail moves past
/// them.
pub trait RingMemory {
    /// The size of the data area.
    fn geometry(&self) -> Geometry;

    /// The position up to which the ring is written. A reader that sees the head also sees the data before it.
    fn head(&self) -> u64;

    /// Returns everything before `tail` to the writer.
    fn publish_tail(&mut self, tail: u64);

    /// `len` bytes from position `at`. They are borrowed from the ring, or, where they wrap, copied into `scratch`.
    ///
    /// `at .. at + len` must be [`available`](Geometry::available).
    fn bytes<'r>(&'r self, at: u64, len: usize, scratch: &'r mut Scratch) -> &'r [u8];

    /// The contiguous bytes from position `at`, at most `available`.
    ///
    /// As for [`bytes`](Self::bytes), `at .. at + available` must be available.
    fn piece(&self, at: u64, available: usize) -> &[u8];
}
