//! `clock_gettime(2)`.

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of every record's time.
pub(crate) fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_REALTIME` in nanoseconds: since 1970, in UTC.
#[cfg(feature = "trace")]
pub(crate) fn realtime() -> u64 {
    read(libc::CLOCK_REALTIME)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // It cannot fail: both clocks exist, and the pointer is good.
    // SAFETY: the kernel writes a timespec.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
