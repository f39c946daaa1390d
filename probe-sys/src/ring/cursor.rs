//! Positions in a ring, separate from its memory.
//!
//! The kernel's `data_head` and `data_tail` count bytes since the ring was created and wrap at 2^64. The size of the data
//! area is a power of two, so a mask turns a position into an offset.

use std::ops::Range;

/// The size of a ring's data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    size: usize,
}

impl Geometry {
    /// A data area of `size` bytes. `None` unless `size` is a power of two that holds at least one record header.
    pub const fn new(size: usize) -> Option<Self> {
        if size.is_power_of_two() && size >= 8 { Some(Self { size }) } else { None }
    }

    /// The bytes of the data area.
    #[inline]
    pub const fn size(self) -> usize {
        self.size
    }

    /// The number of bytes that can be read. `None` if the positions violate the protocol.
    #[inline]
    pub const fn available(self, tail: u64, head: u64) -> Option<usize> {
        let available = head.wrapping_sub(tail);
        if available <= self.size as u64 && available.is_multiple_of(8) {
            Some(available as usize)
        } else {
            None
        }
    }

    /// The offsets of `len` bytes from position `at`: up to the end of the data area, and from its start. The second range
    /// is empty unless the bytes wrap. `len` is at most the size.
    #[inline]
    pub const fn span(self, at: u64, len: usize) -> (Range<usize>, Range<usize>) {
        let start = (at & (self.size as u64 - 1)) as usize;
        let to_end = self.size - start;
        if len <= to_end { (start..start + len, 0..0) } else { (start..self.size, 0..len - to_end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_of_a_small_ring_has_the_right_bytes() {
        let ring = Geometry::new(64).unwrap();
        let data: Vec<usize> = (0..64).collect();
        for base in [0, 1 << 40, u64::MAX - 100] {
            for tail in (0..64).map(|n| base + n).filter(|at| at % 8 == 0) {
                for len in 0..=64 {
                    let (first, second) = ring.span(tail, len);
                    let (piece, rest) = (&data[first], &data[second]);
                    let expected: Vec<usize> =
                        (0..len as u64).map(|n| (tail.wrapping_add(n) % 64) as usize).collect();
                    assert_eq!([piece, rest].concat(), expected, "tail {tail}, len {len}");
                    assert!(rest.first().is_none_or(|&next| next == 0), "tail {tail}, len {len}");
                }
            }
        }
    }

    #[test]
    fn invalid_positions_are_refused() {
        let ring = Geometry::new(64).unwrap();
        assert_eq!(ring.available(8, 8), Some(0));
        assert_eq!(ring.available(u64::MAX - 7, 56), Some(64));
        assert_eq!(ring.available(0, 72), None, "more than the ring holds");
        assert_eq!(ring.available(8, 0), None, "a head before the tail");
        assert_eq!(ring.available(0, 4), None, "a head inside a word");
        assert_eq!(Geometry::new(48), None);
        assert_eq!(Geometry::new(4), None);
    }
}
