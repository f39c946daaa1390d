//! `timerfd_create(2)`.

use crate::{attempt, clock};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use rustix::time::{timerfd_create, timerfd_settime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A descriptor that becomes readable at regular intervals, or once.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
}

impl Timer {
    /// Creates a timer that does not tick.
    pub fn new() -> io::Result<Self> {
        Self::of(TimerfdClockId::Monotonic)
    }

    /// Creates a timer that never ticks. It becomes readable when somebody sets `CLOCK_REALTIME`, and when the machine has
    /// been suspended, which sets that clock, too.
    pub fn of_clock_changes() -> io::Result<Self> {
        let this = Self::of(TimerfdClockId::Realtime)?;
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        this.set(flags, Duration::MAX, Duration::ZERO)?;
        Ok(this)
    }

    fn of(clock: TimerfdClockId) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = attempt("timerfd_create", || timerfd_create(clock, flags))?;
        Ok(Self { fd })
    }

    /// Ticks every `interval`, beginning one interval from now.
    pub fn arm(&self, interval: Duration) -> io::Result<()> {
        // Zero would disarm the timer.
        let interval = interval.max(Duration::from_micros(1));
        self.set(TimerfdTimerFlags::empty(), interval, interval)
    }

    /// Ticks once, when [`monotonic`](clock::monotonic) reaches `time`, in nanoseconds. Ticks at once if that time has passed.
    pub fn arm_at(&self, time: u64) -> io::Result<()> {
        // The kernel takes times of the process's time namespace.
        let time = time.saturating_add_signed(clock::namespace_offset().unwrap_or(0));
        // Zero would disarm the timer.
        self.set(TimerfdTimerFlags::ABSTIME, Duration::from_nanos(time.max(1)), Duration::ZERO)
    }

    /// Stops ticking.
    pub fn disarm(&self) -> io::Result<()> {
        self.set(TimerfdTimerFlags::empty(), Duration::ZERO, Duration::ZERO)
    }

    fn set(&self, flags: TimerfdTimerFlags, first: Duration, interval: Duration) -> io::Result<()> {
        let forever = Timespec { tv_sec: i64::MAX, tv_nsec: 0 };
        let [it_value, it_interval] =
            [first, interval].map(|time| time.try_into().unwrap_or(forever));
        let setting = Itimerspec { it_interval, it_value };
        attempt("timerfd_settime", || timerfd_settime(&self.fd, flags, &setting)).map(drop)
    }

    /// Takes the ticks since the last call, so that the descriptor is not readable until the next one.
    pub fn take(&self) -> u64 {
        let mut ticks = [0; size_of::<u64>()];
        // This fails with EAGAIN if there was no tick, and with ECANCELED, once, if the clock has changed.
        match attempt("read", || rustix::io::read(&self.fd, &mut ticks)) {
            Ok(_) => u64::from_ne_bytes(ticks),
            Err(_) => 0,
        }
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
