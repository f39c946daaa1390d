//! Positions in a ring, apart from its memory.
//!
//! The kernel's `data_head` and `data_tail` count bytes since the ring was made and wrap at 2^64;
//! the data area is a power of two, so that a mask turns a position into an offset.

use std::ops::Range;

/// How large a ring's data area is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    size: usize,
}

impl Geometry {
    /// `None` unless `size` is a power of two that holds at least one record header.
    pub(crate) const fn new(size: usize) -> Option<Self> {
        if size.is_power_of_two() && size >= 8 { Some(Self { size }) } else { None }
    }

    #[inline]
    pub(crate) const fn size(self) -> usize {
        self.size
    }

    /// How many bytes there are to read, or `None` if no writer that keeps to the protocol can have
    /// left the positions like this.
    #[inline]
    pub(crate) const fn available(self, tail: u64, head: u64) -> Option<usize> {
        let available = head.wrapping_sub(tail);
        if available <= self.size as u64 && available.is_multiple_of(8) {
            Some(available as usize)
        } else {
            None
        }
    }

    #[inline]
    const fn offset(self, at: u64) -> usize {
        (at & (self.size as u64 - 1)) as usize
    }

    /// Where the first of `len` bytes from position `at` lie, as many as do so in one piece.
    #[inline]
    pub(crate) const fn piece(self, at: u64, len: usize) -> Range<usize> {
        let start = self.offset(at);
        let to_end = self.size - start;
        start..start + if len < to_end { len } else { to_end }
    }

    /// Where `len` bytes from position `at` lie in the data area. `len` is at most the size.
    #[inline]
    pub(crate) const fn span(self, at: u64, len: usize) -> Span {
        let start = self.offset(at);
        let to_end = self.size - start;
        if len <= to_end {
            Span::Whole(start..start + len)
        } else {
            Span::Wrapped { first: start..self.size, second: 0..len - to_end }
        }
    }
}

/// Offsets in a data area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// In one piece.
    Whole(Range<usize>),
    /// In two: up to the end, and from the start.
    Wrapped { first: Range<usize>, second: Range<usize> },
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
                    let piece = data[ring.piece(tail, len)].to_vec();
                    let bytes = match ring.span(tail, len) {
                        Span::Whole(range) => data[range].to_vec(),
                        Span::Wrapped { first, second } => [&data[first], &data[second]].concat(),
                    };
                    let expected: Vec<usize> =
                        (0..len as u64).map(|n| (tail.wrapping_add(n) % 64) as usize).collect();
                    assert_eq!(bytes, expected, "tail {tail}, len {len}");
                    assert!(expected.starts_with(&piece), "tail {tail}, len {len}");
                    let rest = expected.get(piece.len()).copied();
                    assert!(rest.is_none_or(|next| next == 0), "tail {tail}, len {len}");
                }
            }
        }
    }

    #[test]
    fn positions_that_nobody_can_have_left_are_refused() {
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
