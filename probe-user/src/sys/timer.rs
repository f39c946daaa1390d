//! `timerfd_create(2)`.

use super::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A descriptor that becomes readable at regular times.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
}

impl Timer {
    /// A timer that does not tick.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = check(unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK)
        })?;
        // SAFETY: the kernel has just opened it for us.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Ticks every `interval`, from now on.
    pub(crate) fn arm(&self, interval: Duration) -> io::Result<()> {
        // Zero would disarm it.
        self.set(interval.max(Duration::from_micros(1)))
    }

    /// Ticks no more.
    pub(crate) fn disarm(&self) -> io::Result<()> {
        self.set(Duration::ZERO)
    }

    fn set(&self, interval: Duration) -> io::Result<()> {
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(interval.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(interval.subsec_nanos() as i32),
        };
        let setting = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: the kernel reads `setting`; it writes no old one to a null pointer.
        check(unsafe {
            libc::timerfd_settime(self.fd.as_raw_fd(), 0, &setting, std::ptr::null_mut())
        })
        .map(drop)
    }

    /// Takes the ticks that there were, so that the descriptor is not readable until the next one.
    pub(crate) fn clear(&self) {
        let mut ticks = 0u64;
        // It fails with EAGAIN where there was no tick, which is as good.
        // SAFETY: the kernel writes 8 bytes.
        unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut ticks).cast(), size_of::<u64>()) };
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
