use super::snapshot::{extended, lock, locked, nanoseconds, widened};
use super::*;
use probe_sys::perf_event::WORDS;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

/// A page whose kernel is a test.
struct Page(Box<[AtomicU64; WORDS]>);

impl Page {
    fn new() -> Self {
        Self(Box::new([const { AtomicU64::new(0) }; WORDS]))
    }

    /// Writes bytes at the offset of a field in the ABI.
    fn set(&self, at: usize, bytes: &[u8]) -> &Self {
        let word = &self.0[at / 8];
        let mut old = word.load(Ordering::Relaxed).to_ne_bytes();
        old[at % 8..at % 8 + bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_ne_bytes(old), Ordering::Relaxed);
        self
    }

    /// Sets everything under the lock to `n`, as perf_event_update_userpage() writes it.
    fn write(&self, n: u64) {
        let lock = lock(self.0[1].load(Ordering::Relaxed));
        let locked = |lock: u32| {
            let [a, b, c, d] = lock.to_ne_bytes();
            let [e, f, g, h] = (n as u32).to_ne_bytes();
            u64::from_ne_bytes([a, b, c, d, e, f, g, h])
        };
        self.0[1].store(locked(lock.wrapping_add(1)), Ordering::Relaxed);
        fence(Ordering::Release);
        for at in [2, 3, 4, 7, 8, 10, 11] {
            self.0[at].store(n, Ordering::Relaxed);
        }
        self.0[1].store(locked(lock.wrapping_add(2)), Ordering::Release);
    }
}

/// A page with these capabilities, a counter of `width` bits, and a clock
/// of 2 ns a tick.
fn page(capabilities: u64, width: u16) -> Page {
    let page = Page::new();
    page.set(12, &3u32.to_ne_bytes())
        .set(16, &1000i64.to_ne_bytes())
        .set(24, &70_000u64.to_ne_bytes())
        .set(32, &50_000u64.to_ne_bytes())
        .set(40, &capabilities.to_ne_bytes())
        .set(48, &width.to_ne_bytes())
        .set(50, &4u16.to_ne_bytes())
        .set(52, &32u32.to_ne_bytes())
        .set(56, &(0u64.wrapping_sub(2_000)).to_ne_bytes())
        .set(64, &500_000u64.to_ne_bytes());
    page
}

fn snapshot(page: &Page) -> Snapshot {
    locked(&page.0, |_| ()).unwrap().0
}

const COUNTER_AND_TIME: u64 = 0b1_1110;

#[test]
fn a_counter_is_its_offset_plus_the_hardware_counter_of_any_width() {
    for width in 1..=64u16 {
        let read = |pmc| snapshot(&page(COUNTER_AND_TIME, width)).reading(pmc, 1_500).unwrap();
        let minus_one = u64::MAX >> (64 - width);
        assert_eq!(read(0).value, 1000, "{width}");
        assert_eq!(read(minus_one).value, 999, "{width}");
        assert_eq!(read(u64::MAX).value, 999, "{width}: higher bits are ignored");
        let largest = minus_one / 2;
        assert_eq!(read(largest).value, 1000u64.wrapping_add(largest), "{width}");
    }
    for width in [0, 65] {
        assert_eq!(snapshot(&page(COUNTER_AND_TIME, width)).reading(0, 0), None);
    }
}

#[test]
fn times_continue_after_the_page_was_written() {
    let read = snapshot(&page(COUNTER_AND_TIME, 48)).reading(0, 1_500).unwrap();
    let times = [71_000, 51_000].map(Duration::from_nanos);
    assert_eq!([read.enabled, read.running], times);
    let page = snapshot(&page(COUNTER_AND_TIME, 48));
    assert_eq!(page.since_written(1_500), 1_000);
    assert_eq!(page.time(1_500), 503_000);
}

#[test]
fn only_a_short_clock_wraps() {
    let page = page(COUNTER_AND_TIME | 1 << 5, 48);
    page.set(80, &0xffff_fff0u64.to_ne_bytes()).set(88, &0xffff_ffffu64.to_ne_bytes());
    let at = |ticks| snapshot(&page).time(ticks) - 500_000;
    assert_eq!(at(0xffff_fff8), 2 * 0xffff_fff8);
    assert_eq!(at(0x10), 2 * 0x1_0000_0010, "32 ticks after the page was written");
    page.set(40, &COUNTER_AND_TIME.to_ne_bytes());
    assert_eq!(at(0x10), 0x20, "a clock of 64 bits does not wrap");
}

#[test]
fn without_times_there_is_no_reading() {
    assert_eq!(snapshot(&page(0b0_0110, 48)).reading(0, 1_500), None);
}

#[test]
fn every_field_is_at_its_offset_in_the_abi() {
    let page = Page::new();
    let fields = [
        (2, &[48, 50][..]),
        (4, &[0, 4, 8, 12, 52, 72]),
        (8, &[16, 24, 32, 40, 56, 64, 80, 88, 1024, 1032, 1040, 1048, 1056, 1064, 1072, 1080]),
    ];
    for (size, offsets) in fields {
        for &at in offsets {
            // Each field is its offset plus 2: so the lock is even, and the capabilities have their names.
            let value = at as u64 + 2;
            let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
            let is_little = cfg!(target_endian = "little");
            page.set(at, if is_little { &little[..size] } else { &big[8 - size..] });
        }
    }
    let (read, ()) = locked(&page.0, |_| ()).unwrap();
    let expected = Snapshot {
        version: 2,
        compat_version: 6,
        lock: 10,
        index: 14,
        offset: 18,
        time_enabled: 26,
        time_running: 34,
        capabilities: PageCapabilities::from_bits_retain(42),
        pmc_width: 50,
        time_shift: 52,
        time_mult: 54,
        time_offset: 58,
        time_zero: 66,
        size: 74,
        time_cycles: 82,
        time_mask: 90,
        data_head: 1026,
        data_tail: 1034,
        data_offset: 1042,
        data_size: 1050,
        aux_head: 1058,
        aux_tail: 1066,
        aux_offset: 1074,
        aux_size: 1082,
    };
    assert_eq!(read, expected);
}

#[test]
fn capabilities_have_their_bits_and_are_empty_before_they_had_names() {
    let capabilities = |bits: u64| snapshot(Page::new().set(40, &bits.to_ne_bytes())).capabilities;
    let [counter, time, zero, short] = [0b00110, 0b01010, 0b10010, 0b100010].map(capabilities);
    assert!(counter.contains(PageCapabilities::COUNTER) && time.contains(PageCapabilities::TIME));
    assert!(
        zero.contains(PageCapabilities::TIME_ZERO) && short.contains(PageCapabilities::TIME_SHORT)
    );
    let named =
        PageCapabilities::COUNTER | PageCapabilities::TIME_ZERO | PageCapabilities::TIME_SHORT;
    assert!(!time.intersects(named) && !counter.intersects(PageCapabilities::TIME));
    assert_eq!(capabilities(0b111101), PageCapabilities::empty(), "bit 0 once meant two of them");
}

#[test]
fn a_page_that_is_being_written_is_read_consistently() {
    let (page, end) = (Page::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0u64;
            while !end.load(Ordering::Relaxed) {
                n += 1;
                page.write(n);
                // So that the reader has a chance.
                for _ in 0..n % 64 {
                    std::hint::spin_loop();
                }
            }
        });
        let mut last = 0;
        let mut seen = 0;
        let mut mixed = None;
        while seen < 20_000 && mixed.is_none() {
            let Some((page, inside)) = locked(&page.0, |page| page.time_mask) else { continue };
            let n = page.time_enabled;
            let others = [
                page.offset as u64,
                page.time_running,
                page.time_offset,
                page.time_zero,
                page.time_cycles,
                page.time_mask,
                inside,
            ];
            let index = n & u64::from(u32::MAX);
            if others != [n; 7] || u64::from(page.index) != index || n < last {
                mixed = Some((page, inside, last));
            }
            seen += u32::from(n > last);
            last = n;
        }
        end.store(true, Ordering::Relaxed);
        assert_eq!(mixed, None);
    });
}

#[test]
fn reading_a_page_that_never_settles_is_given_up() {
    let page = Page::new();
    page.set(8, &1u32.to_ne_bytes());
    assert_eq!(locked(&page.0, |_| ()), None);
}

#[test]
fn counters_of_every_width_keep_their_sign() {
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
fn a_short_clock_is_extended_across_its_wrap() {
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

/// The formula of the header, for shifts that fit there.
fn split(ticks: u64, mult: u32, shift: u16) -> u64 {
    let (quotient, rest) = (ticks >> shift, ticks & ((1 << shift) - 1));
    let mult = u64::from(mult);
    quotient.wrapping_mul(mult).wrapping_add((rest * mult) >> shift)
}

#[test]
fn nanoseconds_equal_the_formula_of_the_header() {
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
fn impossible_shifts_do_not_panic() {
    assert_eq!(nanoseconds(u64::MAX, u32::MAX, 127), 0);
    assert_eq!(nanoseconds(u64::MAX, u32::MAX, 128), 0);
    assert_eq!(nanoseconds(u64::MAX, u32::MAX, u16::MAX), 0);
}

proptest! {
    #[test]
    fn nanoseconds_of_any_ticks_equal_the_formula_of_the_header(ticks: u64, mult: u32, shift in 0u16..=32) {
        prop_assert_eq!(nanoseconds(ticks, mult, shift), split(ticks, mult, shift));
    }
}
