//! The pipe in the order of time: records of all CPUs, merged.

use crate::consumer::Consumer;
use crate::error::{OpenError, PollError};
use crate::evpipe::{EvPipe, Progress, Summary};
use crate::merge::Merge;
use crate::options::Wakeup;
use crate::stop::{Stop, Waits, Watching};
use crate::sys::clock;
use crate::sys::epoll::Epoll;
use crate::sys::timer::Timer;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// Bytes of memory for records that are held, unless the user says otherwise.
const MEMORY: usize = 16 << 20;

/// What a good window has beyond the latency of the wakeups: for programs that are held up in the
/// middle of a record.
const MARGIN: Duration = Duration::from_millis(10);

/// A pipe that gives the records of all CPUs in one order: that of their time.
///
/// Each record is copied once, and held until it is older than the *window*. Then all that is as
/// old has arrived, and it is given; records of the same time, in the order of their arrival. To
/// consume is as with the [`EvPipe`]: [`run`](Self::run), [`poll`](Self::poll), or
/// [`drain`](Self::drain) when the descriptor is readable.
///
/// ```no_run
/// # use probe_user::{EvHandlers, EvPipe, Stop};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pipe: EvPipe = todo!();
/// # let mut handlers = EvHandlers::new();
/// let window = pipe.good_window();
/// let mut pipe = pipe.ordered(window)?;
/// pipe.run(&Stop::new()?, &mut handlers)?;
/// let summary = pipe.close(&mut handlers);
/// assert_eq!((summary.late, summary.early), (0, 0));
/// # Ok(())
/// # }
/// ```
///
/// # What it promises
///
/// - **Order.** A record is given after all that are older, but for those that come too late: they
///   are counted ([`late`](Self::late)) and given at once.
/// - **Delay.** A record is given when the window is over, scheduling apart, even if no other
///   follows it; or as soon as it arrives, if that is later. Where nothing is held, no timer runs.
///   A time that lies further ahead than a window is taken for a window ahead.
/// - **Memory.** It is bounded ([`memory`](Self::memory)). Where there is no room, the oldest
///   records are given before their time, and counted ([`early`](Self::early)); what is older than
///   they and comes afterwards is late.
/// - **Once.** No record is lost or given twice, whether the consumer breaks or panics.
///
/// Losses and malformed bytes have no time. They are given as soon as they are found: before the
/// records that follow them on their CPU, and perhaps before some that precede them.
///
/// # The window
///
/// It has to be as long as a record can take from its time, which is when it was reserved, into its
/// ring. With [`Wakeup::Adaptive`], records are packed, and wait for up to `max_latency`: a window
/// that is shorter makes late records likely. Otherwise it is the time that a program takes to fill
/// in its record, interrupts included. [`EvPipe::good_window`] knows both. When the consumer is
/// held up, packed records wait for longer; it takes account of that, and holds the others for as
/// long.
#[derive(Debug)]
pub struct OrderedPipe {
    pipe: EvPipe,
    merge: Merge,
    window: u64,
    /// Ticks when the oldest record is due.
    timer: Timer,
    /// When it will have ticked.
    armed: Option<u64>,
    /// What has a time up to this one may be given.
    releasable: u64,
    round: Option<Round>,
    /// The consumer slept, and no drain has looked at all CPUs since.
    waking: bool,
    /// A drain has left something behind that has no wakeup to come.
    pending: bool,
}

/// Drains that together consume all that was in the rings before the first of them.
#[derive(Debug)]
struct Round {
    /// What was emitted a window before this time has been consumed when the round ends.
    until: u64,
    drains: usize,
}

/// What a closed [`OrderedPipe`] has seen.
#[derive(Debug)]
#[non_exhaustive]
pub struct OrderedSummary {
    /// What the pipe has seen.
    pub pipe: Summary,
    /// Records that came too late to be ordered: [`OrderedPipe::late`].
    pub late: u64,
    /// Records that were given before their time: [`OrderedPipe::early`].
    pub early: u64,
}

impl EvPipe {
    /// Makes a pipe of it that gives the records of all CPUs by time. Each is held until it is older
    /// than `window`.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left, or the pipe is a flight recorder, whose dumps are in this order
    /// already.
    pub fn ordered(self, window: Duration) -> Result<OrderedPipe, OpenError> {
        if self.trigger().is_some() {
            let what = "a flight recorder wakes nobody, and gives records by time as it is";
            return Err(OpenError::Wakeup { what });
        }
        let poll = |source| OpenError::Poll { source };
        let timer = Timer::new().map_err(poll)?;
        self.epoll().add(timer.as_fd()).map_err(poll)?;
        let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        Ok(OrderedPipe {
            pipe: self,
            merge: Merge::new(window, MEMORY, clock::monotonic),
            window,
            timer,
            armed: None,
            releasable: 0,
            round: None,
            waking: false,
            pending: false,
        })
    }

    /// A window for [`ordered`](Self::ordered) with which no record should be late: the
    /// `max_latency` of [`Wakeup::Adaptive`], if this is what the pipe has, and 10 ms.
    pub fn good_window(&self) -> Duration {
        match self.wakeup() {
            Wakeup::Adaptive { max_latency } => max_latency.saturating_add(MARGIN),
            _ => MARGIN,
        }
    }
}

impl OrderedPipe {
    /// Holds no more than so many bytes, rounded up to a power of two, 256 KiB at least. A record
    /// takes its payload and 24 bytes, and 64 bytes at least; the order of them, up to a quarter
    /// more. The default is 16 MiB. Memory is taken as it is needed, and kept.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.merge.limit(bytes);
        self
    }

    /// The window.
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.window)
    }

    /// How many records are held.
    pub fn held(&self) -> usize {
        self.merge.len()
    }

    /// How many records came too late to be ordered: after one with a greater time was given. If
    /// there are any, the window is too short, or [`early`](Self::early) tells that there is too
    /// little memory.
    pub fn late(&self) -> u64 {
        self.merge.late()
    }

    /// How many records were given before their time, since there was no room to hold them.
    pub fn early(&self) -> u64 {
        self.merge.early()
    }

    /// The pipe whose records these are. Its counts are of what was taken out of the rings, held
    /// records included.
    pub fn get_ref(&self) -> &EvPipe {
        &self.pipe
    }

    /// Gives the pipe back. What is held is dropped: call [`drain_all`](Self::drain_all) first.
    pub fn into_inner(self) -> EvPipe {
        self.pipe
    }

    /// Takes what is in the rings now, and gives what is due to `consumer`, without waiting.
    ///
    /// [`Progress::records`] are those that were given, and [`Progress::pending`] tells whether more
    /// is in the rings, or due. A break leaves the rest held: the next call goes on with it.
    pub fn drain<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
        let before = self.merge.records();
        // Whatever happens below, a panicking consumer included: look again.
        self.pending = true;
        let now = self.look_at_clock();
        let (mut flow, mut pending) = self.take(now, consumer);
        if flow.is_continue() {
            flow = self.merge.release(self.releasable, consumer);
        }
        if flow.is_continue() && !pending {
            flow = self.merge.catch_up(consumer);
        }
        pending |= self.set_timer(now);
        self.pending = pending;
        Progress { records: self.merge.records() - before, flow, pending }
    }

    /// Drains the pipe, and notes what can be released then. Whether the consumer broke, and whether
    /// the pipe has more.
    fn take<C: Consumer>(&mut self, now: u64, consumer: &mut C) -> (ControlFlow<()>, bool) {
        if self.merge.make_room(consumer).is_break() {
            return (ControlFlow::Break(()), true);
        }
        let until = self.punctual_until(now);
        let asleep = self.is_asleep();
        if !self.waking {
            self.merge.forget_least();
        }
        let progress = self.pipe.drain(&mut self.merge.intake(consumer));
        self.waking |= asleep && !self.is_asleep();
        if progress.flow.is_break() {
            return (progress.flow, true);
        }
        if std::mem::take(&mut self.waking)
            && let Some(adaptive) = self.pipe.adaptive_mut()
        {
            adaptive.settle(self.merge.least().min(now));
        }
        let round = self.round.get_or_insert(Round { until, drains: 0 });
        round.drains += 1;
        let consumed = match progress.pending {
            false => Some(until),
            // Where a CPU never stops, its ring is never empty.
            true => (round.drains >= self.pipe.rounds()).then_some(round.until),
        };
        if let Some(until) = consumed {
            self.round = None;
            self.release_until(until);
        }
        (ControlFlow::Continue(()), progress.pending)
    }

    /// Waits until there is something to drain, a record is due, or for `timeout` (`None` is for
    /// ever), and drains once. Does not wait where the last drain has left something.
    ///
    /// Returns after a drain that gave nothing, too: look at [`Progress::records`].
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub fn poll<C: Consumer>(
        &mut self,
        timeout: Option<Duration>,
        consumer: &mut C,
    ) -> Result<Progress, PollError> {
        self.wait(timeout)?;
        Ok(self.drain(consumer))
    }

    /// Whether the last drain has left something that has no wakeup to come.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Waits until the descriptor is readable. Takes the readiness, so a drain has to follow.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<(), PollError> {
        self.pipe.wait(if self.pending { Some(Duration::ZERO) } else { timeout })
    }

    /// Drains whenever there are records, until `stop` is stopped or `consumer` breaks.
    ///
    /// After a stop, it gives all that was emitted before that, without waiting for the window.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub fn run<C: Consumer>(&mut self, stop: &Stop, consumer: &mut C) -> Result<(), PollError> {
        Watching::new(self, stop)?.pipe.run_until(stop, consumer)
    }

    fn run_until<C: Consumer>(&mut self, stop: &Stop, consumer: &mut C) -> Result<(), PollError> {
        while !stop.is_stopped() {
            if self.poll(None, consumer)?.flow.is_break() {
                return Ok(());
            }
        }
        let _ = self.drain_all(consumer);
        Ok(())
    }

    /// Gives everything that was emitted before the call, by time and without waiting for the
    /// window, unless `consumer` breaks.
    ///
    /// Programs that emit meanwhile may make their records late.
    pub fn drain_all<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        self.pending = true;
        let now = self.look_at_clock();
        let flow = self.empty(now, consumer);
        self.pending = self.set_timer(now) | flow.is_break();
        flow
    }

    fn empty<C: Consumer>(&mut self, now: u64, consumer: &mut C) -> ControlFlow<()> {
        self.merge.make_room(consumer)?;
        self.pipe.drain_all(&mut self.merge.intake(consumer))?;
        (self.round, self.waking) = (None, false);
        if let Some(adaptive) = self.pipe.adaptive_mut() {
            adaptive.settle(now);
        }
        self.merge.release(u64::MAX, consumer)?;
        self.merge.catch_up(consumer)
    }

    /// Closes the pipe: takes the events out of the map, gives all that is left to `consumer`, by
    /// time, and tells what it has seen in all.
    ///
    /// Stops early if `consumer` breaks; what is left is lost, then, and the ledger has it as unread,
    /// whether it was in a ring or held.
    pub fn close<C: Consumer>(self, consumer: &mut C) -> OrderedSummary {
        let Self { pipe, mut merge, .. } = self;
        let room = merge.make_room(consumer);
        let mut intake = merge.intake(consumer);
        intake.flow = room;
        let mut pipe = pipe.close(&mut intake);
        if intake.flow.is_continue() && merge.release(u64::MAX, consumer).is_continue() {
            let _ = merge.catch_up(consumer);
        }
        if let Ok(ledger) = &mut pipe.ledger {
            merge.abandon(|cpu, kind| ledger.not_given(cpu, kind));
        }
        OrderedSummary { pipe, late: merge.late(), early: merge.early() }
    }

    /// The time. Takes the timer's tick, if there was one by then.
    fn look_at_clock(&mut self) -> u64 {
        let now = clock::monotonic();
        // It can tick a little later than this clock says: who forgot it then would never take the
        // tick, and a descriptor that stays readable keeps everybody from waiting.
        if self.armed.is_some_and(|at| at <= now) && self.timer.take() > 0 {
            self.armed = None;
        }
        now
    }

    /// What was emitted a window before `until` is held or given.
    fn release_until(&mut self, until: u64) {
        self.releasable = self.releasable.max(until.saturating_sub(self.window));
    }

    /// Sets the timer to when the oldest record is due. Whether it can be given already.
    fn set_timer(&mut self, now: u64) -> bool {
        let Some(first) = self.merge.first() else {
            if self.armed.take().is_some() {
                // A tick too many does no harm.
                let _ = self.timer.disarm();
            }
            return false;
        };
        let due = first.saturating_add(self.window);
        let is_due = due <= self.punctual_until(now);
        if due <= now && !is_due {
            // It waits for a sweep, which has a timer of its own.
            return false;
        }
        if self.armed.is_none_or(|at| due < at) {
            if self.timer.arm_at(due).is_err() {
                // Without a timer, look again at once.
                return true;
            }
            self.armed = Some(due);
        }
        is_due
    }

    /// Until when the promise of the wakeups is kept.
    fn punctual_until(&mut self, now: u64) -> u64 {
        self.pipe.adaptive_mut().map_or(now, |adaptive| adaptive.punctual_until(now))
    }

    fn is_asleep(&mut self) -> bool {
        self.pipe.adaptive_mut().is_some_and(|adaptive| adaptive.is_asleep())
    }
}

impl Waits for OrderedPipe {
    fn epoll(&self) -> &Epoll {
        self.pipe.epoll()
    }
}

/// Readable when a drain would find something, a held record is due, or a sweep is.
impl AsFd for OrderedPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl AsRawFd for OrderedPipe {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
