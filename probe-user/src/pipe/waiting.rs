//! When the consumer looks at the rings: wakeups, timers, and the descriptor to wait on.

use crate::error::OpenError;
use crate::pipe::adaptive::Adaptive;
use crate::pipe::due::Due;
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
    /// How long a wait lasts at most where there are no wakeups.
    poll_interval: Option<Duration>,
    /// The next drain may find records that have no wakeup.
    pub(crate) pending: bool,
    /// Whether a drain has delivered records since the last call of `caught_up`.
    pub(crate) has_delivered: bool,
    /// Where the next drain looks.
    pub(crate) due: Due,
    /// Where the current drain looks.
    pub(crate) visited: Due,
    /// The CPU with which a drain begins: the next one after the last that a consumer stopped at, so that every CPU has
    /// its turn.
    pub(crate) from: u32,
}

impl Waiting {
    /// Sets up the wakeups of some queues, whose events `epoll` waits for already.
    pub(crate) fn open(
        epoll: Epoll,
        queues: &mut Queues,
        parts: Result<AdaptiveParts, &str>,
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
            (None, Some(interval)) => Some(started(interval, &epoll).map_err(poll)?),
            _ => None,
        };
        if let Some(adaptive) = &adaptive
            && !options.overwrites()
        {
            epoll.add(adaptive.timer()).map_err(poll)?;
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
            has_delivered: false,
            due: Due::all(queues.as_slice().len()),
            visited: Due::all(queues.as_slice().len()),
            from: 0,
        })
    }

    /// Makes the descriptor readable at the interval at which a wait ends where there are no wakeups.
    pub(crate) fn tick(&mut self) -> io::Result<()> {
        if let (Some(interval), None) = (self.poll_interval, &self.sweep) {
            self.sweep = Some(started(interval, &self.epoll)?);
        }
        Ok(())
    }

    /// Waits until the descriptor is readable. This takes the readiness, so a drain has to follow.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let longest = timeout.into_iter().chain(self.poll_interval).min();
        let timeout = if self.pending { Some(Duration::ZERO) } else { longest };
        self.epoll.wait_for(timeout, |cpu| self.due.add(cpu))?;
        Ok(())
    }

    /// Takes the ticks of the sweep, and moves what is due to `visited`. Until [`end_drain`](Self::end_drain), the next
    /// drain looks at every ring, whatever happens: a consumer may panic.
    pub(crate) fn begin_drain(&mut self) {
        if let Some(sweep) = &mut self.sweep {
            sweep.clear(Instant::now());
        }
        std::mem::swap(&mut self.due, &mut self.visited);
        self.due.clear();
        self.look_at_all();
        match &self.adaptive {
            Some(adaptive) => adaptive.lazy().for_each(|cpu| self.visited.add(cpu)),
            // Records can lie in a ring without a wakeup.
            None => self.visited.add_all(),
        }
    }

    /// Has the next drain look at every ring, without waiting.
    pub(crate) fn look_at_all(&mut self) {
        self.pending = true;
        self.due.add_all();
    }

    /// Ends a drain. The next one looks at the rings that were added to `due` meanwhile.
    pub(crate) fn end_drain(&mut self) {
        self.due.only_added();
        self.sweep_adaptively();
        self.pending = !self.due.is_empty();
    }

    /// Chooses the modes of CPUs, and has old blocks sent.
    fn sweep_adaptively(&mut self) {
        if let Some(adaptive) = &mut self.adaptive
            && adaptive.sweep(|cpu| self.due.add(cpu)).is_err()
        {
            // Without a timer, look again at once.
            self.due.add_all();
        }
    }
}

/// A ticker that runs, and for which `epoll` waits.
fn started(interval: Duration, epoll: &Epoll) -> io::Result<Ticker> {
    let mut ticker = Ticker::new(interval)?;
    ticker.start(Instant::now())?;
    epoll.add(ticker.as_fd())?;
    Ok(ticker)
}
