//! The words of a control page, taken together under its lock.

use super::arithmetic::{nanoseconds, widened};
use crate::sys::user_page::WORDS;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What the kernel allows user space to read by itself: `capabilities` of a control page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    const fn has(self, bit: u32) -> bool {
        self.0 & 1 << bit != 0
    }

    /// All bits, as they are in the page.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// `cap_bit0_is_deprecated`: the other bits mean what they are called (3.12+).
    pub const fn named(self) -> bool {
        self.has(1)
    }

    /// `cap_user_rdpmc`: the counter, while it counts.
    pub const fn counter(self) -> bool {
        self.named() && self.has(2)
    }

    /// `cap_user_time`: how long the event has been enabled and counting.
    pub const fn time(self) -> bool {
        self.named() && self.has(3)
    }

    /// `cap_user_time_zero`: the time of perf's clock.
    pub const fn time_zero(self) -> bool {
        self.named() && self.has(4)
    }

    /// `cap_user_time_short`: the CPU's clock has fewer than 64 bits, see [`Snapshot::time_mask`].
    pub const fn time_short(self) -> bool {
        self.named() && self.has(5)
    }
}

/// What a control page (`struct perf_event_mmap_page`) said at one moment: the fields have the kernel's
/// names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Of the structure.
    pub version: u32,
    /// The lowest version that it is compatible with.
    pub compat_version: u32,
    /// The sequence lock: even, and higher by 2 whenever the page has changed.
    pub lock: u32,
    /// The hardware counter, and 1; 0 where the event is not counting in hardware.
    pub index: u32,
    /// What is to be added to the hardware counter.
    pub offset: i64,
    /// Nanoseconds that the event had been enabled when the page was written.
    pub time_enabled: u64,
    /// Nanoseconds that it had counted then.
    pub time_running: u64,
    /// What may be read.
    pub capabilities: Capabilities,
    /// Bits of the hardware counter.
    pub pmc_width: u16,
    /// With `time_mult`: nanoseconds are `ticks * time_mult >> time_shift`.
    pub time_shift: u16,
    /// See `time_shift`.
    pub time_mult: u32,
    /// Nanoseconds that give, added to those of the ticks, the time since the page was written.
    pub time_offset: u64,
    /// Nanoseconds that give, added to those of the ticks, the time of perf's clock.
    pub time_zero: u64,
    /// Bytes of the structure up to here.
    pub size: u32,
    /// What a clock of fewer than 64 bits read when the page was written.
    pub time_cycles: u64,
    /// The bits that such a clock has.
    pub time_mask: u64,
    /// Where the kernel will write into the ring next. Not under the lock, nor are those that follow.
    pub data_head: u64,
    /// Up to where the reader has read.
    pub data_tail: u64,
    /// Where the ring begins, in bytes from the page.
    pub data_offset: u64,
    /// Bytes of the ring.
    pub data_size: u64,
    /// As `data_head`, of the second ring, for bulk data of the hardware.
    pub aux_head: u64,
    /// As `data_tail`.
    pub aux_tail: u64,
    /// As `data_offset`, and set by the reader.
    pub aux_offset: u64,
    /// As `data_size`, and set by the reader.
    pub aux_size: u64,
}

impl Snapshot {
    /// The words as they are, whoever writes them meanwhile.
    #[inline]
    fn loaded(page: &[AtomicU64; WORDS]) -> Self {
        // ORDERING: the lock around it says whether they belong together.
        let word = |at: usize| page[at / 8].load(Ordering::Relaxed);
        let pair = |at: usize| halves(word(at));
        let (version, compat_version) = pair(0);
        let (lock, index) = pair(8);
        let (widths, time_mult) = pair(48);
        let [w0, w1, s0, s1] = widths.to_ne_bytes();
        Self {
            version,
            compat_version,
            lock,
            index,
            offset: word(16) as i64,
            time_enabled: word(24),
            time_running: word(32),
            capabilities: Capabilities(word(40)),
            pmc_width: u16::from_ne_bytes([w0, w1]),
            time_shift: u16::from_ne_bytes([s0, s1]),
            time_mult,
            time_offset: word(56),
            time_zero: word(64),
            size: pair(72).0,
            time_cycles: word(80),
            time_mask: word(88),
            data_head: word(1024),
            data_tail: word(1032),
            data_offset: word(1040),
            data_size: word(1048),
            aux_head: word(1056),
            aux_tail: word(1064),
            aux_offset: word(1072),
            aux_size: word(1080),
        }
    }

    /// Nanoseconds since the page was written, by a clock of the CPU that reads `ticks`.
    pub(super) fn since_written(&self, ticks: u64) -> u64 {
        self.time_offset.wrapping_add(self.nanoseconds(ticks))
    }

    /// The time of perf's clock.
    pub(super) fn time(&self, ticks: u64) -> u64 {
        self.time_zero.wrapping_add(self.nanoseconds(ticks))
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        let ticks = if self.capabilities.time_short() {
            widened(ticks, self.time_cycles, self.time_mask)
        } else {
            ticks
        };
        nanoseconds(ticks, self.time_mult, self.time_shift)
    }
}

/// How often a page that changes is read again before it is given up: the kernel writes it with nothing in
/// between that takes time.
const TRIES: usize = 10_000;

/// The words of a page that belong together, and what `read` made of them before they changed. `None` if
/// the page did not come to rest.
#[inline]
pub(super) fn locked<T>(
    page: &[AtomicU64; WORDS],
    read: impl Fn(&Snapshot) -> T,
) -> Option<(Snapshot, T)> {
    for _ in 0..TRIES {
        // ORDERING: pairs with the barrier() of perf_event_update_userpage() behind the lock's first step:
        // what is read after this load is not older.
        let before = lock(page[1].load(Ordering::Acquire));
        if before.is_multiple_of(2) {
            let snapshot = Snapshot::loaded(page);
            let made = read(&snapshot);
            // ORDERING: pairs with the barrier() before the lock's second step: if what was read is newer,
            // the lock has another number.
            fence(Ordering::Acquire);
            if lock(page[1].load(Ordering::Relaxed)) == before {
                return Some((snapshot, made));
            }
        }
        std::hint::spin_loop();
    }
    None
}

/// The lock, which shares its word with the index.
fn lock(word: u64) -> u32 {
    halves(word).0
}

/// Two 32-bit fields, in the order of their addresses.
fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// A page whose kernel is a test.
    pub(in super::super) struct Page(pub(in super::super) Box<[AtomicU64; WORDS]>);

    impl Page {
        pub(in super::super) fn new() -> Self {
            Self(Box::new([const { AtomicU64::new(0) }; WORDS]))
        }

        /// Writes bytes at the place that the ABI gives a field.
        pub(in super::super) fn set(&self, at: usize, bytes: &[u8]) -> &Self {
            let word = &self.0[at / 8];
            let mut old = word.load(Ordering::Relaxed).to_ne_bytes();
            old[at % 8..at % 8 + bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(old), Ordering::Relaxed);
            self
        }

        /// Has everything under the lock be `n`, as perf_event_update_userpage() writes it.
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

    #[test]
    fn every_field_is_where_the_abi_has_it() {
        let page = Page::new();
        let sizes = [
            (0, 4),
            (4, 4),
            (8, 4),
            (12, 4),
            (16, 8),
            (24, 8),
            (32, 8),
            (40, 8),
            (48, 2),
            (50, 2),
            (52, 4),
            (56, 8),
            (64, 8),
            (72, 4),
            (80, 8),
            (88, 8),
            (1024, 8),
            (1032, 8),
            (1040, 8),
            (1048, 8),
            (1056, 8),
            (1064, 8),
            (1072, 8),
            (1080, 8),
        ];
        for (n, (at, size)) in sizes.into_iter().enumerate() {
            // An even lock, and every number but once.
            let value = 2 * (n as u64 + 1);
            let bytes = value.to_ne_bytes();
            page.set(
                at,
                if cfg!(target_endian = "little") { &bytes[..size] } else { &bytes[8 - size..] },
            );
        }
        let (read, ()) = locked(&page.0, |_| ()).unwrap();
        let expected = Snapshot {
            version: 2,
            compat_version: 4,
            lock: 6,
            index: 8,
            offset: 10,
            time_enabled: 12,
            time_running: 14,
            capabilities: Capabilities(16),
            pmc_width: 18,
            time_shift: 20,
            time_mult: 22,
            time_offset: 24,
            time_zero: 26,
            size: 28,
            time_cycles: 30,
            time_mask: 32,
            data_head: 34,
            data_tail: 36,
            data_offset: 38,
            data_size: 40,
            aux_head: 42,
            aux_tail: 44,
            aux_offset: 46,
            aux_size: 48,
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn capabilities_have_their_bits_and_none_before_they_were_named() {
        let names = |bits| {
            let caps = Capabilities(bits);
            [caps.named(), caps.counter(), caps.time(), caps.time_zero(), caps.time_short()]
        };
        assert_eq!(names(0b000010), [true, false, false, false, false]);
        assert_eq!(names(0b000110), [true, true, false, false, false]);
        assert_eq!(names(0b001010), [true, false, true, false, false]);
        assert_eq!(names(0b010010), [true, false, false, true, false]);
        assert_eq!(names(0b100010), [true, false, false, false, true]);
        assert_eq!(names(0b111101), [false; 5], "bit 0 meant both once");
    }

    #[test]
    fn a_page_that_is_being_written_is_never_mixed() {
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
    fn a_page_that_never_comes_to_rest_is_given_up() {
        let page = Page::new();
        page.set(8, &1u32.to_ne_bytes());
        assert_eq!(locked(&page.0, |_| ()), None);
    }
}
