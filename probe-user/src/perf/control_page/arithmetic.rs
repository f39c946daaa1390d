//! What the words of a control page and the CPU's own counters come to: arithmetic alone, as
//! `include/uapi/linux/perf_event.h` has it beside each field.

/// A counter of `width` bits, with its sign: the kernel starts counters below 0, so that they overflow in
/// time. `None` if no counter is that wide.
#[inline]
pub(super) const fn extended(pmc: u64, width: u16) -> Option<i64> {
    if width == 0 || width > 64 {
        return None;
    }
    let unused = 64 - width as u32;
    Some((pmc << unused) as i64 >> unused)
}

/// Ticks of a clock that is narrower than 64 bits (`cap_user_time_short`), which read `cycles` at some time
/// in the past, and wrapped at most once since.
#[inline]
pub(super) const fn widened(ticks: u64, cycles: u64, mask: u64) -> u64 {
    cycles.wrapping_add(ticks.wrapping_sub(cycles) & mask)
}

/// Nanoseconds that so many ticks are: `ticks * mult >> shift`, modulo 2^64.
///
/// The header splits the ticks in two before it multiplies, so that 64 bits are enough. It comes to the
/// same.
#[inline]
pub(super) const fn nanoseconds(ticks: u64, mult: u32, shift: u16) -> u64 {
    match (ticks as u128 * mult as u128).checked_shr(shift as u32) {
        Some(nanoseconds) => nanoseconds as u64,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_width_keeps_its_sign() {
        for width in 1..=64u16 {
            let values = 1u128 << width;
            let half = (values / 2) as i128;
            for value in [0, 1, half - 2, half - 1, half, half + 1, values as i128 - 1] {
                let value = value.rem_euclid(values as i128);
                let expected = if value < half { value } else { value - values as i128 };
                for above in [0, u64::MAX, 0x5a5a_5a5a_5a5a_5a5a] {
                    let garbage = if width == 64 { 0 } else { above << width };
                    let pmc = value as u64 | garbage;
                    assert_eq!(extended(pmc, width), Some(expected as i64), "{pmc:#x}, {width}");
                }
            }
        }
        assert_eq!(extended(1, 0), None);
        assert_eq!(extended(1, 65), None);
        assert_eq!(extended(1, u16::MAX), None);
    }

    #[test]
    fn a_short_clock_goes_on_where_it_wraps() {
        for bits in 1..=64u32 {
            let mask = u64::MAX >> (64 - bits);
            for cycles in [0, 1, mask - 1, mask, mask.wrapping_add(7), u64::MAX - 1] {
                for later in [0, 1, 5 & mask, mask / 2, mask] {
                    let now = cycles.wrapping_add(later);
                    let read = now & mask;
                    assert_eq!(widened(read, cycles, mask), now, "{bits} bits, {cycles} + {later}");
                }
            }
        }
    }

    /// As the header has it, for shifts that fit there.
    fn split(ticks: u64, mult: u32, shift: u16) -> u64 {
        let (quotient, rest) = (ticks >> shift, ticks & ((1 << shift) - 1));
        let mult = u64::from(mult);
        quotient.wrapping_mul(mult).wrapping_add((rest * mult) >> shift)
    }

    #[test]
    fn every_shift_of_the_kernel_gives_what_the_header_says() {
        for shift in 0..=32 {
            for mult in [0, 1, 2, 3, 1_000_003, 1 << 31, u32::MAX - 1, u32::MAX] {
                let near = (0..64u32).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
                for ticks in near.chain([u64::MAX, u64::MAX / 3]) {
                    assert_eq!(
                        nanoseconds(ticks, mult, shift),
                        split(ticks, mult, shift),
                        "{ticks} * {mult} >> {shift}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_shift_that_nobody_makes_is_no_panic() {
        assert_eq!(nanoseconds(u64::MAX, u32::MAX, 127), 0);
        assert_eq!(nanoseconds(u64::MAX, u32::MAX, 128), 0);
        assert_eq!(nanoseconds(u64::MAX, u32::MAX, u16::MAX), 0);
    }

    proptest! {
        #[test]
        fn any_ticks_are_what_the_header_says(ticks: u64, mult: u32, shift in 0u16..=32) {
            prop_assert_eq!(nanoseconds(ticks, mult, shift), split(ticks, mult, shift));
        }
    }
}
