//! The words of a control page, read consistently under its lock. The arithmetic with them is described beside each field
//! in `include/uapi/linux/perf_event.h`.

use super::Reading;
use probe_sys::perf_event::WORDS;
use std::sync::atomic::{AtomicU64, Ordering, fence};

bitflags::bitflags! {
    /// What the kernel allows user space to read without a system call: `capabilities` of a control page. Empty for kernels
    /// before 3.12, whose bits have another meaning (`cap_bit0_is_deprecated`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PageCapabilities: u64 {
        /// `cap_user_rdpmc`: the counter, while it counts.
        const COUNTER = 1 << 2;
        /// `cap_user_time`: how long the event has been enabled and counting.
        const TIME = 1 << 3;
        /// `cap_user_time_zero`: the time of perf's clock.
        const TIME_ZERO = 1 << 4;
        /// `cap_user_time_short`: the CPU's clock has fewer than 64 bits, see [`Snapshot::time_mask`].
        const TIME_SHORT = 1 << 5;
        /// Bits that this version does not know.
        const _ = !0;
    }
}

impl PageCapabilities {
    fn of_page(bits: u64) -> Self {
        const BIT0_IS_DEPRECATED: u64 = 1 << 1;
        if bits & BIT0_IS_DEPRECATED == 0 { Self::empty() } else { Self::from_bits_retain(bits) }
    }
}

/// A control page (`struct perf_event_mmap_page`) at one moment. The fields have the kernel's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The version of the structure.
    pub version: u32,
    /// The lowest version that the structure is compatible with.
    pub compat_version: u32,
    /// The sequence lock: even, and increased by 2 with every change of the page.
    pub lock: u32,
    /// The index of the hardware counter plus 1; 0 while the event does not count in hardware.
    pub index: u32,
    /// The value to add to the hardware counter.
    pub offset: i64,
    /// How long the event had been enabled when the page was written, in nanoseconds.
    pub time_enabled: u64,
    /// How long the event had counted when the page was written, in nanoseconds.
    pub time_running: u64,
    /// What user space may read.
    pub capabilities: PageCapabilities,
    /// The width of the hardware counter, in bits.
    pub pmc_width: u16,
    /// With `time_mult`: nanoseconds are `ticks * time_mult >> time_shift`.
    pub time_shift: u16,
    /// See `time_shift`.
    pub time_mult: u32,
    /// The nanoseconds to add to those of the ticks for the time since the page was written.
    pub time_offset: u64,
    /// The nanoseconds to add to those of the ticks for the time of perf's clock.
    pub time_zero: u64,
    /// The bytes of the structure up to this field.
    pub size: u32,
    /// The ticks of a clock of fewer than 64 bits when the page was written.
    pub time_cycles: u64,
    /// The mask of such a clock's bits.
    pub time_mask: u64,
    /// Where the kernel will write into the ring next. The lock does not cover this and the following fields.
    pub data_head: u64,
    /// The position up to which the reader has read.
    pub data_tail: u64,
    /// The offset of the ring from the page, in bytes.
    pub data_offset: u64,
    /// The bytes of the ring.
    pub data_size: u64,
    /// As `data_head`, for the AUX area.
    pub aux_head: u64,
    /// As `data_tail`, for the AUX area.
    pub aux_tail: u64,
    /// As `data_offset`, for the AUX area; the reader sets it.
    pub aux_offset: u64,
    /// As `data_size`, for the AUX area; the reader sets it.
    pub aux_size: u64,
}

impl Snapshot {
    /// Reads the words without regard to concurrent writes.
    #[inline]
    fn loaded(page: &[AtomicU64; WORDS]) -> Self {
        // ORDERING: the lock around this shows whether the words belong together.
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
            capabilities: PageCapabilities::of_page(word(40)),
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

    /// Combines the page, the hardware counter and the CPU's clock.
    pub(super) fn reading(&self, pmc: u64, ticks: u64) -> Option<Reading> {
        if !self.capabilities.contains(PageCapabilities::TIME) {
            return None;
        }
        let value = self.offset.wrapping_add(extended(pmc, self.pmc_width)?);
        let [enabled, running] = [self.time_enabled, self.time_running]
            .map(|time| time.wrapping_add(self.since_written(ticks)));
        Some(Reading::new(value as u64, enabled, running))
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
        let ticks = if self.capabilities.contains(PageCapabilities::TIME_SHORT) {
            widened(ticks, self.time_cycles, self.time_mask)
        } else {
            ticks
        };
        nanoseconds(ticks, self.time_mult, self.time_shift)
    }
}

/// Sign-extends a counter of `width` bits: the kernel starts counters below 0, so that they overflow after one period.
/// `None` if the width is invalid.
#[inline]
pub(super) const fn extended(pmc: u64, width: u16) -> Option<i64> {
    if width == 0 || width > 64 {
        return None;
    }
    let unused = 64 - width as u32;
    Some((pmc << unused) as i64 >> unused)
}

/// Extends the ticks of a clock of fewer than 64 bits (`cap_user_time_short`), which was at `cycles` some time ago and
/// has wrapped at most once since.
#[inline]
pub(super) const fn widened(ticks: u64, cycles: u64, mask: u64) -> u64 {
    cycles.wrapping_add(ticks.wrapping_sub(cycles) & mask)
}

/// Converts ticks to nanoseconds: `ticks * mult >> shift`, modulo 2^64.
///
/// The header splits the ticks before multiplying, so that 64 bits are enough. The result is the same.
#[inline]
pub(super) const fn nanoseconds(ticks: u64, mult: u32, shift: u16) -> u64 {
    match (ticks as u128 * mult as u128).checked_shr(shift as u32) {
        Some(nanoseconds) => nanoseconds as u64,
        None => 0,
    }
}

/// How often a changing page is read again. The kernel's writes take little time, so a few attempts suffice.
const TRIES: usize = 10_000;

/// The words of a page at one moment, and the result of `read` at the same moment. `None` if the page kept changing.
#[inline]
pub(super) fn locked<T>(
    page: &[AtomicU64; WORDS],
    read: impl Fn(&Snapshot) -> T,
) -> Option<(Snapshot, T)> {
    for _ in 0..TRIES {
        // ORDERING: pairs with the barrier() of perf_event_update_userpage() behind the lock's first step:
        // reads after this load return nothing older.
        let before = lock(page[1].load(Ordering::Acquire));
        if before.is_multiple_of(2) {
            let snapshot = Snapshot::loaded(page);
            let made = read(&snapshot);
            // ORDERING: pairs with the barrier() before the lock's second step: if a read returned something newer,
            // the lock has changed.
            fence(Ordering::Acquire);
            if lock(page[1].load(Ordering::Relaxed)) == before {
                return Some((snapshot, made));
            }
        }
        std::hint::spin_loop();
    }
    None
}

/// The lock, which shares a word with the index.
pub(super) fn lock(word: u64) -> u32 {
    halves(word).0
}

/// Two 32-bit fields, in the order of their addresses.
fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}
