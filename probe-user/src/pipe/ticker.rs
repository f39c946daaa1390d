//! A timer for a loop to wait on. It costs no system call until it ticks.

use probe_sys::timer::Timer;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A longer interval is as good as none.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A timer that becomes readable once per interval while it runs.
#[derive(Debug)]
pub(crate) struct Ticker {
    timer: Timer,
    interval: Duration,
    /// When it ticks next; `None` while it is stopped.
    next: Option<Instant>,
}

impl Ticker {
    /// Creates a stopped ticker.
    pub(crate) fn new(interval: Duration) -> io::Result<Self> {
        Ok(Self { timer: Timer::new()?, interval: interval.min(LONGEST), next: None })
    }

    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Starts the ticker, unless it runs already.
    pub(crate) fn start(&mut self, now: Instant) -> io::Result<()> {
        if self.next.is_none() {
            self.timer.arm(self.interval)?;
            self.next = Some(now + self.interval);
        }
        Ok(())
    }

    /// Stops the ticker, unless it is stopped already.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        if self.next.is_some() {
            self.timer.disarm()?;
            self.next = None;
        }
        Ok(())
    }

    /// Takes the ticks so far, so that the ticker is not readable until the next one. Returns whether there were any.
    pub(crate) fn clear(&mut self, now: Instant) -> bool {
        let Some(next) = self.next.filter(|next| *next <= now) else { return false };
        // There is no tick yet if the timer was armed a little later than `next` assumes.
        let ticks = u32::try_from(self.timer.take()).unwrap_or(u32::MAX);
        self.next = Some(next + self.interval.saturating_mul(ticks));
        ticks > 0
    }
}

impl AsFd for Ticker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
