//! `timerfd_create(2)`.

use super::call;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A descriptor that becomes readable at regular times, or once.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
}

impl Timer {
    /// A timer that does not tick.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = call("timerfd_create", || unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK)
        })?;
        // SAFETY: the kernel has just opened it for us.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Ticks every `interval`, from now on.
    pub(crate) fn arm(&self, interval: Duration) -> io::Result<()> {
        // Zero would disarm it.
        let interval = timespec(interval.max(Duration::from_micros(1)));
        self.set(0, libc::itimerspec { it_interval: interval, it_value: interval })
    }

    /// Ticks once, when `CLOCK_MONOTONIC` is at so many nanoseconds; at once if that has been.
    pub(crate) fn arm_at(&self, time: u64) -> io::Result<()> {
        // Zero would disarm it.
        let time = timespec(Duration::from_nanos(time.max(1)));
        let setting = libc::itimerspec { it_interval: timespec(Duration::ZERO), it_value: time };
        self.set(libc::TFD_TIMER_ABSTIME, setting)
    }

    /// Ticks no more.
    pub(crate) fn disarm(&self) -> io::Result<()> {
        let never = timespec(Duration::ZERO);
        self.set(0, libc::itimerspec { it_interval: never, it_value: never })
    }

    fn set(&self, flags: libc::c_int, setting: libc::itimerspec) -> io::Result<()> {
        // SAFETY: the kernel reads `setting`; it writes no old one to a null pointer.
        call("timerfd_settime", || unsafe {
            libc::timerfd_settime(self.fd.as_raw_fd(), flags, &setting, std::ptr::null_mut())
        })
        .map(drop)
    }

    /// Takes the ticks that there were, so that the descriptor is not readable until the next one.
    pub(crate) fn take(&self) -> u64 {
        let mut ticks = 0u64;
        // It fails with EAGAIN where there was no tick.
        let read = call("read", || {
            // SAFETY: the kernel writes 8 bytes.
            unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut ticks).cast(), size_of::<u64>()) }
        });
        if read.is_ok() { ticks } else { 0 }
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
    }
}
