//! The pipe in time order: the records of all CPUs, merged.

use crate::consume::merge::Merge;
use crate::error::{OpenError, PollError};
use crate::pipe::closing::Summary;
use crate::pipe::driving::Drive;
use crate::pipe::evpipe::{EvPipe, Progress};
use crate::pipe::options::Wakeup;
use crate::pipe::stop::Stop;
use crate::queue::consumer::Consumer;
use crate::queue::contents::Contents;
use probe_sys::clock;
use probe_sys::epoll::Epoll;
use probe_sys::timer::Timer;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// The default limit of the memory for held records, in bytes.
const MEMORY: usize = 16 << 20;

/// How much longer a good window is than the latency of the wakeups: for programs that are delayed in the middle of a
/// record.
const MARGIN: Duration = Duration::from_millis(10);

/// How often the pipe looks whether a window is still [widened](OrderedPipe::widen_while), at most: every so many nanoseconds.
const SHORTEST_LOOK: u64 = 1_000_000;

/// A pipe that delivers the records of all CPUs in one order, that of their time.
///
/// Each record is copied once, and held until it is older than the *window*. By then, all records that are as old
/// have arrived, and it is delivered. Records with the same time are in the order of their arrival. Consume as with
/// the [`EvPipe`]: [`run`](Self::run), [`poll`](Self::poll), or [`drain`](Self::drain) when the descriptor is
/// readable.
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
/// - **Order.** A record is delivered after all older ones, except those that arrive too late. Late records are
///   counted ([`late`](Self::late)) and delivered at once.
/// - **Delay.** A record is delivered when its window ends, apart from scheduling delays, even if no other record
///   follows it; or as soon as it arrives, if that is later. No timer runs while no record is held. A time more than
///   a window ahead counts as one window ahead.
/// - **Memory.** Memory is bounded ([`memory`](Self::memory)). Where there is no room, the oldest records are
///   delivered before their time, and counted ([`early`](Self::early)). Older records that arrive afterwards are
///   late.
/// - **Once.** No record is lost or delivered twice, even if the consumer breaks or panics.
///
/// A loss has no time. It is delivered after the previous record of its CPU, and before the next one.
/// Malformed bytes have no time, either. They are delivered as soon as they are found, perhaps before some records that
/// precede them.
///
/// # The window
///
/// The window has to cover the longest time from the time of a record, which is when it was reserved, until it is in
/// its ring. With [`Wakeup::Adaptive`], records are packed, and wait for up to `max_latency`, so a shorter window
/// makes late records likely. Otherwise, it is the time that a program takes to fill in its record, interrupts
/// included. [`EvPipe::good_window`] takes both into account. When the consumer is delayed, packed records wait
/// longer; the pipe notices that, and holds the other records equally long. If your programs keep some records back
/// for longer, [widen](Self::widen_while) the window while they do.
#[derive(Debug)]
pub struct OrderedPipe {
    pipe: EvPipe,
    merge: Merge,
    window: u64,
    widening: Option<Widening>,
    /// The window now.
    width: u64,
    /// A timer that ticks when the oldest record is due.
    timer: Timer,
    /// When the timer ticks.
    armed: Option<u64>,
    /// Records up to this time may be delivered.
    releasable: u64,
    round: Option<Round>,
    /// Whether a drain left something that has no wakeup to come.
    pending: bool,
}

/// A longer window, for as long as programs keep records back.
struct Widening {
    window: u64,
    is_needed: Box<dyn FnMut() -> bool + Send + Sync>,
}

impl fmt::Debug for Widening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Widening").field(&Duration::from_nanos(self.window)).finish()
    }
}

/// A series of drains that together consume everything that was in the rings before the first of them.
#[derive(Debug)]
struct Round {
    /// Everything up to this time has been consumed when the round ends.
    until: u64,
    drains: usize,
    /// How many drains there are at most. The rings are counted before: an old one may be empty afterwards, and gone.
    most: usize,
}

impl EvPipe {
    /// Turns the pipe into one that delivers the records of all CPUs in time order. Each record is held until it is
    /// older than `window`.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left, or the pipe is a flight recorder, whose dumps are in time order
    /// already, or is [raw](crate::Options::raw): its records have no time.
    pub fn ordered(self, window: Duration) -> Result<OrderedPipe, OpenError> {
        if self.trigger().is_some() {
            let what = "a flight recorder needs no window: its dumps are in time order already";
            return Err(OpenError::Wakeup { what });
        }
        if self.contents == Contents::Raw {
            return Err(OpenError::Raw { what: "they have no time to order them by" });
        }
        let poll = |cause| OpenError::Poll { cause };
        let timer = Timer::new().map_err(poll)?;
        self.epoll().add(timer.as_fd()).map_err(poll)?;
        let window = nanos(window);
        Ok(OrderedPipe {
            pipe: self,
            merge: Merge::new(window, MEMORY, clock::monotonic),
            window,
            widening: None,
            width: window,
            timer,
            armed: None,
            releasable: 0,
            round: None,
            pending: true,
        })
    }

    /// A window for [`ordered`](Self::ordered) with which no record should be late: 10 ms, plus the `max_latency` of
    /// [`Wakeup::Adaptive`] if the pipe has adaptive wakeups.
    pub fn good_window(&self) -> Duration {
        match self.wakeup() {
            Wakeup::Adaptive { max_latency } => max_latency.saturating_add(MARGIN),
            _ => MARGIN,
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl OrderedPipe {
    /// Limits the memory for held records to `bytes`, rounded up to a power of two of at least 256 KiB. A record
    /// takes its payload and 24 bytes, at least 64 bytes in all; their order takes up to a quarter more. The default
    /// is 16 MiB. Memory is allocated as needed, and kept.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.merge.limit(bytes);
        self
    }

    /// Widens the window to `window` while `is_needed` returns `true`, for programs that keep some records back. Each
    /// drain calls `is_needed` once, before it takes any records.
    ///
    /// Such a record is in order if `is_needed` returns `true` from the time of the record until a normal window after
    /// it was sent.
    #[must_use]
    pub fn widen_while(
        mut self,
        window: Duration,
        is_needed: impl FnMut() -> bool + Send + Sync + 'static,
    ) -> Self {
        let window = nanos(window).max(self.window);
        self.widening = Some(Widening { window, is_needed: Box::new(is_needed) });
        self
    }

    /// The window, where it is not [widened](Self::widen_while).
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.window)
    }

    /// The number of records held.
    pub fn held(&self) -> usize {
        self.merge.len()
    }

    /// The number of records that arrived too late to be ordered: after one with a later time was delivered. If there
    /// are any, the window is too short, or, if [`early`](Self::early) is not 0, there is too little memory.
    pub fn late(&self) -> u64 {
        self.merge.late()
    }

    /// The number of records delivered before their time, because there was no room to hold them.
    pub fn early(&self) -> u64 {
        self.merge.early()
    }

    /// The underlying pipe. Its counts cover everything taken out of the rings, including records that are still
    /// held.
    pub fn get_ref(&self) -> &EvPipe {
        &self.pipe
    }

    /// Returns the underlying pipe. Held records are dropped, and unread in the ledger: call [`drain_all`](Self::drain_all)
    /// first.
    pub fn into_inner(self) -> EvPipe {
        let Self { mut pipe, mut merge, .. } = self;
        merge.abandon(|cpu, kind| pipe.not_delivered(cpu, kind));
        pipe
    }

    /// Takes the records that are in the rings now, and passes those that are due to `consumer`, without waiting.
    ///
    /// [`Progress::records`] is the number of records delivered, and [`Progress::pending`] is whether there is more
    /// in the rings, or due. After a break, the rest stays held, and the next call goes on with it.
    pub fn drain<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
        if !self.pipe.is_here() {
            return Progress::NONE;
        }
        let before = self.merge.records();
        // Look again, whatever happens below: the consumer may panic.
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
        self.pipe.count_rejected(consumer);
        Progress { records: self.merge.records() - before, flow, pending }
    }

    /// Drains the pipe, and notes which records can be released afterwards. Returns whether the consumer broke, and
    /// whether the pipe has more.
    fn take<C: Consumer>(&mut self, now: u64, consumer: &mut C) -> (ControlFlow<()>, bool) {
        if self.merge.make_room(consumer).is_break() {
            return (ControlFlow::Break(()), true);
        }
        self.width = self.widened().unwrap_or(self.window);
        let until = self.punctual_until(now).saturating_sub(self.width);
        let most = self.pipe.rounds();
        let progress = self.pipe.drain(&mut self.merge.intake(consumer));
        if progress.flow.is_break() {
            return (progress.flow, true);
        }
        let round = self.round.get_or_insert(Round { until, drains: 0, most });
        round.drains += 1;
        let consumed = match progress.pending {
            false => Some(until),
            // The ring of a CPU that never stops emitting is never empty.
            true => (round.drains >= round.most).then_some(round.until),
        };
        if let Some(until) = consumed {
            self.round = None;
            self.releasable = self.releasable.max(until);
        }
        (ControlFlow::Continue(()), progress.pending)
    }

    /// Waits until there is something to drain, a record is due, or for `timeout` (`None` waits without a limit), and
    /// drains once. Does not wait if the last drain left something.
    ///
    /// Also returns after a drain that delivered nothing: check [`Progress::records`].
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub fn poll<C: Consumer>(
        &mut self,
        timeout: Option<Duration>,
        consumer: &mut C,
    ) -> Result<Progress, PollError> {
        Drive::poll(self, timeout, consumer)
    }

    /// Drains whenever there are records, until `stop` is stopped or `consumer` breaks.
    ///
    /// After a stop, it delivers everything emitted before the stop, without waiting for the window.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub fn run<C: Consumer>(&mut self, stop: &Stop, consumer: &mut C) -> Result<(), PollError> {
        Drive::run(self, stop, consumer).map(drop)
    }

    /// Delivers everything emitted before the call, in time order and without waiting for the window, unless
    /// `consumer` breaks.
    ///
    /// Records that programs emit meanwhile may be late. While the window is [widened](Self::widen_while), younger
    /// records stay held.
    pub fn drain_all<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        if !self.pipe.is_here() {
            return ControlFlow::Continue(());
        }
        self.pending = true;
        let now = self.look_at_clock();
        let flow = self.empty(now, consumer);
        self.pending = self.set_timer(now) | flow.is_break();
        self.pipe.count_rejected(consumer);
        flow
    }

    fn empty<C: Consumer>(&mut self, now: u64, consumer: &mut C) -> ControlFlow<()> {
        self.merge.make_room(consumer)?;
        let until = self.widened().map_or(u64::MAX, |width| now.saturating_sub(width));
        self.pipe.drain_all(&mut self.merge.intake(consumer))?;
        self.round = None;
        if let Some(adaptive) = self.pipe.adaptive_mut() {
            adaptive.settle(now);
        }
        self.merge.release(until, consumer)?;
        self.merge.catch_up(consumer)
    }

    /// Closes the pipe: takes the events out of the map, passes everything that is left to `consumer` in time order,
    /// and returns a summary.
    ///
    /// Stops early if `consumer` breaks. What is left is then lost, and the ledger counts it as unread, whether it
    /// was in a ring or held.
    pub fn close<C: Consumer>(self, consumer: &mut C) -> Summary {
        let Self { pipe, mut merge, .. } = self;
        if !pipe.is_here() {
            return pipe.close(consumer);
        }
        let room = merge.make_room(consumer);
        let mut intake = merge.intake(consumer);
        intake.flow = room;
        let mut summary = pipe.close(&mut intake);
        if intake.flow.is_continue() && merge.release(u64::MAX, consumer).is_continue() {
            let _ = merge.catch_up(consumer);
        }
        if let Ok(ledger) = &mut summary.ledger {
            merge.abandon(|cpu, kind| ledger.not_delivered(cpu, kind));
            while let Some((cpu, records)) = consumer.rejected() {
                ledger.reject(cpu, records);
            }
        }
        (summary.late, summary.early) = (merge.late(), merge.early());
        summary
    }

    /// Returns the time. Takes the tick of the timer, if there was one by then.
    fn look_at_clock(&mut self) -> u64 {
        let now = clock::monotonic();
        // The timer can tick a little later than this clock says. Forgetting it before that would leave the tick
        // untaken, and a descriptor that stays readable ends every wait at once.
        if self.armed.is_some_and(|at| at <= now) && self.timer.take() > 0 {
            self.armed = None;
        }
        now
    }

    /// The wider window, if it is needed now.
    fn widened(&mut self) -> Option<u64> {
        let widening = self.widening.as_mut()?;
        (widening.is_needed)().then_some(widening.window)
    }

    /// Sets the timer to the time at which the oldest record is due. Returns whether it is due already.
    fn set_timer(&mut self, now: u64) -> bool {
        let Some(first) = self.merge.first() else {
            if self.armed.take().is_some() {
                // An extra tick does no harm.
                let _ = self.timer.disarm();
            }
            return false;
        };
        let mut due = first.saturating_add(self.width);
        let is_due = due <= self.punctual_until(now);
        if due <= now && !is_due {
            // The record waits for a sweep, which has a timer of its own.
            return false;
        }
        if self.width > self.window {
            // Look again meanwhile, because the window may be narrow again by then.
            due = due.min(now.saturating_add(self.window.max(SHORTEST_LOOK)));
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

    /// The time up to which the wakeups keep their latency.
    fn punctual_until(&mut self, now: u64) -> u64 {
        self.pipe.adaptive_mut().map_or(now, |adaptive| adaptive.punctual_until(now))
    }
}

impl Drive for OrderedPipe {
    fn epoll(&self) -> &Epoll {
        self.pipe.epoll()
    }

    fn is_here(&self) -> bool {
        self.pipe.is_here()
    }

    fn check<C: Consumer>(&self, consumer: &C) -> Result<(), PollError> {
        self.pipe.check(consumer)
    }

    fn is_pending(&self) -> bool {
        self.pending
    }

    fn tick(&mut self) -> io::Result<()> {
        self.pipe.tick()
    }

    fn look_again(&mut self) {
        self.pipe.look_again();
        self.pending = true;
    }

    fn follow<C: Consumer>(&mut self, consumer: &mut C) -> bool {
        let any = self.pipe.follow(&mut self.merge.intake(consumer));
        self.pending |= any;
        any
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), PollError> {
        self.pipe.wait(if self.pending { Some(Duration::ZERO) } else { timeout })
    }

    fn drain_once<C: Consumer>(&mut self, consumer: &mut C) -> Result<Progress, PollError> {
        Ok(self.drain(consumer))
    }

    fn drain_all<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        self.drain_all(consumer)
    }
}

/// Readable when a drain would find something, or a held record or a sweep is due.
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
