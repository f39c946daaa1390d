//! A timer that a loop waits on, and that costs it no system call until it ticks.

use crate::sys::timer::Timer;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Becomes readable every interval, while it runs.
#[derive(Debug)]
pub(crate) struct Ticker {
    timer: Timer,
    interval: Duration,
    /// When it will tick next; `None` while it stands still.
    next: Option<Instant>,
}

impl Ticker {
    /// Stands still.
    pub(crate) fn new(interval: Duration) -> io::Result<Self> {
        Ok(Self { timer: Timer::new()?, interval, next: None })
    }

    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Makes it run, if it does not.
    pub(crate) fn start(&mut self, now: Instant) -> io::Result<()> {
        if self.next.is_none() {
            self.timer.arm(self.interval)?;
            self.next = Some(now + self.interval);
        }
        Ok(())
    }

    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.next = None;
        self.timer.disarm()
    }

    /// Takes the ticks that there were, so that it is not readable until the next one.
    pub(crate) fn clear(&mut self, now: Instant) {
        if let Some(next) = self.next.filter(|next| *next <= now) {
            // None yet, if the timer was armed a little later than we think.
            let ticks = u32::try_from(self.timer.take()).unwrap_or(u32::MAX);
            self.next = Some(next + self.interval.saturating_mul(ticks));
        }
    }
}

impl AsFd for Ticker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
