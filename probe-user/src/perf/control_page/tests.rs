use super::snapshot::locked;
use super::snapshot::tests::Page;
use super::*;

/// What [`combined`] is given out of a page: with these capabilities, a counter of `width` bits, and a clock
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
fn a_counter_is_its_offset_and_what_the_hardware_has_whatever_its_width() {
    for width in 1..=64u16 {
        let read = |pmc| combined(&snapshot(&page(COUNTER_AND_TIME, width)), pmc, 1_500).unwrap();
        let minus_one = u64::MAX >> (64 - width);
        assert_eq!(read(0).value, 1000, "{width}");
        assert_eq!(read(minus_one).value, 999, "{width}");
        assert_eq!(read(u64::MAX).value, 999, "{width}: what is above is not looked at");
        let largest = minus_one / 2;
        assert_eq!(read(largest).value, 1000u64.wrapping_add(largest), "{width}");
    }
    for width in [0, 65] {
        assert_eq!(combined(&snapshot(&page(COUNTER_AND_TIME, width)), 0, 0), None);
    }
}

#[test]
fn times_go_on_since_the_page_was_written() {
    let read = combined(&snapshot(&page(COUNTER_AND_TIME, 48)), 0, 1_500).unwrap();
    assert_eq!((read.enabled, read.running), (71_000, 51_000));
    let page = snapshot(&page(COUNTER_AND_TIME, 48));
    assert_eq!(page.since_written(1_500), 1_000);
    assert_eq!(page.time(1_500), 503_000);
}

#[test]
fn a_short_clock_is_one_that_wraps() {
    let page = page(COUNTER_AND_TIME | 1 << 5, 48);
    page.set(80, &0xffff_fff0u64.to_ne_bytes()).set(88, &0xffff_ffffu64.to_ne_bytes());
    let at = |ticks| snapshot(&page).time(ticks) - 500_000;
    assert_eq!(at(0xffff_fff8), 2 * 0xffff_fff8);
    assert_eq!(at(0x10), 2 * 0x1_0000_0010, "32 ticks after the page was written");
    page.set(40, &COUNTER_AND_TIME.to_ne_bytes());
    assert_eq!(at(0x10), 0x20, "a clock of 64 bits is believed");
}

#[test]
fn without_time_there_are_no_times_and_so_no_reading() {
    assert_eq!(combined(&snapshot(&page(0b0_0110, 48)), 0, 1_500), None);
}
