//! When the consumer looks at the rings: wakeups, timers, and the descriptor to wait on.

use crate::error::OpenError;
use crate::pipe::adaptive::{Adaptive, Sweep};
use crate::pipe::options::{Options, Wakeup};
use crate::pipe::parts::AdaptiveParts;
use crate::pipe::queues::Queues;
use crate::pipe::ticker::Ticker;
use probe_sys::epoll::Epoll;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// What a pipe waits for.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) adaptive: Option<Adaptive>,
    pub(crate) epoll: Epoll,
    /// Ticks where records can lie in a ring without a wakeup.
    sweep: Option<Ticker>,
    pub(crate) wakeup: Wakeup,
    /// Why `wakeup` is not the one that was requested.
    pub(crate) fallback: Option<String>,
    /// How long a wait without a timeout lasts where there are no wakeups.
    poll_interval: Option<Duration>,
    /// The next drain may find records that have no wakeup.
    pub(crate) pending: bool,
}

impl Waiting {
    /// Sets up the wakeups of some queues, whose events `epoll` waits for already.
    pub(crate) fn open(
        epoll: Epoll,
        queues: &mut Queues,
        parts: Option<AdaptiveParts>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let poll = |cause| OpenError::Poll { cause };
        let mut wakeup = options.policy();
        let (mut adaptive, mut fallback) = (None, None);
        if let Wakeup::Adaptive { max_latency } = wakeup {
            match queues.open_adaptive(parts, max_latency) {
                Ok(opened) => adaptive = Some(opened),
                Err(why) => {
                    wakeup = match options.overwrites() {
                        false => Wakeup::Watermark(options.watermark()),
                        true => Wakeup::PollOnly,
                    };
                    fallback = Some(why);
                }
            }
        }
        let sweep = match (&adaptive, options.sweep_interval()) {
            (None, Some(interval)) => {
                let mut ticker = Ticker::new(interval).map_err(poll)?;
                ticker.start(Instant::now()).map_err(poll)?;
                epoll.add(ticker.as_fd()).map_err(poll)?;
                Some(ticker)
            }
            _ => None,
        };
        if let Some(adaptive) = &mut adaptive {
            match options.overwrites() {
                false => epoll.add(adaptive.timer()).map_err(poll)?,
                true => adaptive.never_sweep().map_err(poll)?,
            }
        }
        Ok(Self {
            adaptive,
            epoll,
            sweep,
            wakeup,
            fallback,
            poll_interval: options.poll_interval(),
            // Records that were in the rings before the pipe was opened have no wakeup any more.
            pending: !options.overwrites(),
        })
    }

    /// Waits until the descriptor is readable. This takes the readiness, so a drain has to follow.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout =
            if self.pending { Some(Duration::ZERO) } else { timeout.or(self.poll_interval) };
        self.epoll.wait(timeout)?;
        Ok(())
    }

    /// Takes the ticks of the sweep, and ends a sleep. Returns `false` if the consumer sleeps and nothing has woken
    /// it: there is nothing to drain.
    pub(crate) fn begin_drain(&mut self, queues: &Queues) -> bool {
        if let Some(sweep) = &mut self.sweep {
            sweep.clear(Instant::now());
        }
        if let Some(adaptive) = &mut self.adaptive {
            if adaptive.sleeps_on() && !self.pending && !queues.have_records() {
                return false;
            }
            adaptive.wake();
        }
        true
    }

    /// Has old blocks sent, and falls asleep when no more records arrive. Returns whether there is something to drain
    /// now.
    pub(crate) fn sweep_adaptively(&mut self, records: u64, queues: &Queues) -> bool {
        let Some(adaptive) = &mut self.adaptive else { return false };
        match adaptive.sweep(records > 0) {
            Ok(Sweep::Nothing) => false,
            // Without a timer, look again at once.
            Ok(Sweep::Sent) | Err(_) => true,
            Ok(Sweep::Idle) => {
                let asleep = adaptive.fall_asleep(|| queues.have_records());
                // If it is still awake, a record has arrived.
                !asleep.unwrap_or(false)
            }
        }
    }
}
