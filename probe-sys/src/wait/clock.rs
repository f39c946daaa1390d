//! Clocks, in nanoseconds.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// `CLOCK_MONOTONIC` of the initial time namespace, which stamps every record.
pub fn monotonic() -> u64 {
    let time = nanoseconds(ClockId::Monotonic);
    // A trace refuses to begin if the offset is unknown.
    time.wrapping_sub_signed(namespace_offset().unwrap_or(0))
}

/// `CLOCK_REALTIME`: since 1970, in UTC.
pub fn realtime() -> u64 {
    nanoseconds(ClockId::Realtime)
}

/// For how long the machine has been suspended since it was booted, as a lower and an upper bound. Only differences of
/// this count: a time namespace shifts it.
pub fn suspended() -> [i64; 2] {
    let [before, now, after] =
        [ClockId::Monotonic, ClockId::Boottime, ClockId::Monotonic].map(nanoseconds);
    let now = now.wrapping_add(pretended());
    [after, before].map(|monotonic| now.wrapping_sub(monotonic).cast_signed())
}

/// For how long the machine has been suspended only in the eyes of a test, in nanoseconds.
#[cfg(any(test, feature = "testing"))]
pub(crate) static PRETENDED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

#[cfg(any(test, feature = "testing"))]
fn pretended() -> u64 {
    // ORDERING: see `disturb::pretend_suspension`.
    PRETENDED.load(std::sync::atomic::Ordering::Relaxed)
}

#[cfg(not(any(test, feature = "testing")))]
fn pretended() -> u64 {
    0
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// By how many nanoseconds the `CLOCK_MONOTONIC` of this process is ahead of the one that stamps records
/// (`time_namespaces(7)`). `None` if that cannot be found out: without `/proc`, or in a process that has created a
/// time namespace for its children but is in another one itself.
pub fn namespace_offset() -> Option<i64> {
    static OFFSET: OnceLock<Option<i64>> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        /// `PROC_TIME_INIT_INO` in `include/linux/proc_ns.h`.
        const INITIAL: u64 = 0xEFFF_FFFA;
        let inode = |name| fs::metadata(name).map(|metadata| metadata.ino());
        match (inode("/proc/self/ns/time"), inode("/proc/self/ns/time_for_children")) {
            (Ok(INITIAL), _) => Some(0),
            // The file has the offsets of the children's namespace.
            (Ok(own), Ok(of_children)) if own == of_children => {
                monotonic_offset(&fs::read_to_string("/proc/self/timens_offsets").ok()?)
            }
            (Ok(_), _) => None,
            // A kernel without time namespaces (before 5.6), or no /proc at all.
            (Err(_), _) => fs::exists("/proc/self/ns").ok()?.then_some(0),
        }
    })
}

/// The offset in the contents of `/proc/PID/timens_offsets`.
fn monotonic_offset(offsets: &str) -> Option<i64> {
    let mut fields = offsets
        .lines()
        .map(str::split_ascii_whitespace)
        .find_map(|mut fields| (fields.next()? == "monotonic").then_some(fields))?;
    let seconds: i64 = fields.next()?.parse().ok()?;
    let nanoseconds: i64 = fields.next()?.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::monotonic_offset;

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        let file = "monotonic      100000         7\nboottime           -2         5\n";
        assert_eq!(monotonic_offset(file), Some(100_000_000_000_007));
        assert_eq!(monotonic_offset("monotonic -3 250000000\n"), Some(-2_750_000_000));
        for other in ["", "monotonic 1\n", "boottime 1 2\n", "monotonic a b\n"] {
            assert_eq!(monotonic_offset(other), None, "{other}");
        }
    }
}
