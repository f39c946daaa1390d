//! `clock_gettime(2)`.

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of every record's time.
pub(crate) fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // It cannot fail: the clock exists, and the pointer is good.
    // SAFETY: the kernel writes a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
