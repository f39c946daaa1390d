//! The pipe: the map, the queues in it, and the ways to wait for them.

use crate::adaptive::{Adaptive, Sweep};
use crate::consumer::{Consumer, CpuChange};
use crate::counts::QueueCounts;
use crate::error::{OpenError, PollError, TallyError, forked};
use crate::evqueue::EvQueue;
#[cfg(feature = "trace")]
use crate::hotplug::Prepare;
use crate::hotplug::{Changes, CpuWatch};
use crate::ledger::{Books, Ledger};
use crate::losses::ToldLosses;
use crate::options::{Options, Wakeup};
use crate::parts::PipeParts;
use crate::queues::Queues;
use crate::scratch::{self, ScratchSlots};
use crate::stop::{Stop, Waits, Watching};
use crate::sys::bpf;
use crate::sys::epoll::Epoll;
use crate::sys::membarrier;
use crate::tally::Tally;
use crate::ticker::Ticker;
use crate::trigger::Trigger;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A perf event array, and a queue for each CPU whose event is in it.
///
/// There are four ways to consume:
///
/// - [`run`](Self::run) until somebody stops it;
/// - [`poll`](Self::poll), which waits and drains once;
/// - [`drain`](Self::drain), which does not wait: when the descriptor of the pipe ([`AsFd`]) is
///   readable in a loop of your own, or whenever you like;
/// - `AsyncEvPipe` in a tokio task, and [`OwnedRecords`](crate::OwnedRecords) or `RecordStream` to
///   keep records.
///
/// Opened with [`Options::overwrite`], it is a flight recorder, which keeps the newest records: all of
/// these give what it has when a [`Trigger`] asks for a [`dump`](Self::dump).
///
/// To drop it closes it; [`close`](Self::close) also consumes what is left, and tells what was
/// lost. Detach the programs that emit first, or they count what they emit afterwards as failed.
///
/// A forked child has no ring of it: there, [`poll`](Self::poll) fails, a drain finds nothing, and to drop the
/// pipe, or to close it, does the parent's no harm.
///
/// CPUs may come and go meanwhile: one that comes gets a queue, and what is in the ring of one that
/// goes is consumed. [`Consumer::cpu_changed`] tells of it.
#[derive(Debug)]
pub struct EvPipe {
    // Dropped first: it has what is packed sent while there are queues to take it.
    adaptive: Option<Adaptive>,
    queues: Queues,
    epoll: Epoll,
    /// Ticks where records can lie in a ring without a wakeup.
    sweep: Option<Ticker>,
    wakeup: Wakeup,
    fallback: Option<String>,
    /// How long to wait where nothing ever wakes.
    poll_interval: Option<Duration>,
    budget: usize,
    /// A drain has left something behind.
    pending: bool,
    books: Option<Arc<Books>>,
    scratch: Option<Arc<ScratchSlots>>,
    told: ToldLosses,
    watch: io::Result<CpuWatch>,
    /// Drains since notices of CPUs were looked for.
    unwatched: u32,
    bytes_per_cpu: usize,
    /// Programs may emit records alone, which no slot tells of.
    emits_alone: bool,
    flight: Option<Flight>,
}

/// What a flight recorder has more.
#[derive(Debug)]
struct Flight {
    trigger: Trigger,
    /// Dumps so far.
    dumps: u64,
}

/// So many drains a CPU that has come waits for, at most, where each of them finds records.
const WATCH_EVERY: u32 = 8;

/// What one drain of all queues did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Progress {
    /// Records that were given to the consumer.
    pub records: u64,
    /// Whether the consumer stopped it.
    pub flow: ControlFlow<()>,
    /// Whether more is there already: the next [`EvPipe::poll`] will not wait.
    pub pending: bool,
}

impl Progress {
    /// Nothing was given.
    const NONE: Self = Self { records: 0, flow: ControlFlow::Continue(()), pending: false };
}

/// What a closed pipe has seen.
#[derive(Debug)]
#[non_exhaustive]
pub struct Summary {
    /// What each CPU's queue has seen, ascending by CPU.
    pub cpus: Vec<(u32, QueueCounts)>,
    /// The sum of them.
    pub total: QueueCounts,
    /// What became of every record.
    pub ledger: Result<Ledger, TallyError>,
}

impl EvPipe {
    /// Opens a pipe over a perf event array that somebody has loaded: a descriptor of it is enough.
    ///
    /// # Errors
    ///
    /// If it is not a perf event array, or events, rings or descriptors cannot be had. Nothing is
    /// left behind, then.
    pub fn from_map(map: impl AsFd, options: &Options) -> Result<Self, OpenError> {
        let parts = PipeParts::new(map).map_err(|source| OpenError::MapInfo { source })?;
        Self::open(parts, options)
    }

    /// Opens a pipe over whatever of it was loaded.
    ///
    /// # Errors
    ///
    /// As [`from_map`](Self::from_map).
    pub fn open(parts: PipeParts, options: &Options) -> Result<Self, OpenError> {
        if options.realtime_priority().is_some() {
            let why = "an EvPipe has no threads: open a PerCpuPipe, or give the one that drains it a priority";
            return Err(OpenError::Realtime { why: why.to_owned() });
        }
        let books = Books::of_parts(&parts)?;
        Self::open_with(parts, books, options)
    }

    /// Opens a pipe whose books are open already, perhaps those of other pipes, too.
    pub(crate) fn open_with(
        parts: PipeParts,
        books: Option<Arc<Books>>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        options.check()?;
        let poll = |source| OpenError::Poll { source };
        let epoll = Epoll::new().map_err(poll)?;
        // Before anybody reads which CPUs there are.
        let watch = CpuWatch::new();
        if let Ok(watch) = &watch {
            epoll.add(watch.as_fd()).map_err(poll)?;
        }
        let mut queues = Queues::open(parts.events, options, &epoll)?;
        let mut wakeup = options.policy();
        let (mut adaptive, mut fallback) = (None, None);
        if let Wakeup::Adaptive { max_latency } = wakeup {
            match queues.open_adaptive(parts.adaptive, max_latency) {
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
        let mut flight = None;
        if options.overwrites() {
            let trigger = Trigger::new().map_err(poll)?;
            epoll.add(trigger.as_fd()).map_err(poll)?;
            flight = Some(Flight { trigger, dumps: 0 });
        }
        if let Some(adaptive) = &mut adaptive {
            match flight {
                None => epoll.add(adaptive.timer()).map_err(poll)?,
                Some(_) => adaptive.never_sweep().map_err(poll)?,
            }
        }
        Ok(Self {
            adaptive,
            queues,
            epoll,
            sweep,
            wakeup,
            fallback,
            poll_interval: options.poll_interval(),
            budget: options.budget_bytes(),
            // What was in the rings before anybody waited has no wakeup any more.
            pending: flight.is_none(),
            books,
            scratch: parts.scratch,
            told: ToldLosses::default(),
            watch,
            unwatched: 0,
            bytes_per_cpu: options.bytes(),
            emits_alone: parts.emits_alone,
            flight,
        })
    }

    /// Opens a pipe over a perf event array that is pinned at `path` in a bpffs.
    ///
    /// # Errors
    ///
    /// If nothing can be opened there, and as [`from_map`](Self::from_map).
    pub fn from_pinned(path: impl AsRef<Path>, options: &Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let pinned = |source| OpenError::Pinned { path: path.to_owned(), source };
        let name = std::ffi::CString::new(path.as_os_str().as_bytes())
            .map_err(|error| pinned(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let map = bpf::open_pinned(&name).map_err(pinned)?;
        Self::from_map(map, options)
    }

    /// Opens a pipe over an object that aya has loaded: its maps, and its flush program, which is
    /// loaded here.
    ///
    /// # Errors
    ///
    /// If the object's program does not use `probe_ebpf::pipe`, and as
    /// [`from_map`](Self::from_map).
    #[cfg(feature = "aya")]
    pub fn from_object(object: &mut aya::Ebpf, options: &Options) -> Result<Self, OpenError> {
        Self::open(PipeParts::of_object(object)?, options)
    }

    /// Has something ready for each CPU that comes from now on, before programs find its event.
    #[cfg(feature = "trace")]
    pub(crate) fn prepare_beside(&mut self, beside: Box<dyn Prepare>) {
        self.queues.prepare_beside(beside);
    }

    /// When the kernel wakes the consumer: as was asked for, or what the pipe fell back to.
    pub fn wakeup(&self) -> Wakeup {
        self.wakeup
    }

    /// Why the pipe fell back from [`Wakeup::Adaptive`], if it did.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// What the eBPF side counts, where the pipe knows it.
    pub fn tally(&self) -> Option<&Tally> {
        self.books.as_deref().map(Books::tally)
    }

    /// The queues, ascending by CPU.
    pub fn queues(&self) -> &[EvQueue] {
        self.queues.as_slice()
    }

    /// The queue of a CPU.
    pub fn queue(&self, cpu: u32) -> Option<&EvQueue> {
        self.queues.position(cpu).ok().map(|at| &self.queues()[at])
    }

    /// What became of every record so far.
    ///
    /// # Errors
    ///
    /// If the pipe has no [`tally`](Self::tally), or it cannot be read; or this process was forked from the one
    /// that opened the pipe.
    pub fn ledger(&self) -> Result<Ledger, TallyError> {
        Self::ledger_of(std::iter::once(self))
    }

    /// Why the pipe does not learn of CPUs that come and go, if it does not: programs on CPUs that
    /// come later have nowhere to send, then, and count that.
    pub fn hotplug_error(&self) -> Option<&io::Error> {
        self.watch.as_ref().err()
    }

    /// Bytes of ring that each CPU has.
    pub fn bytes_per_cpu(&self) -> usize {
        self.bytes_per_cpu
    }

    /// Gives what is there now to `consumer`, without waiting. A CPU that emits without pause gets
    /// its share, not more ([`Options::budget`]).
    ///
    /// A flight recorder gives a [dump](Self::dump), if somebody has asked for one; and nothing if it cannot.
    pub fn drain<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
        if !self.queues.are_here() {
            return Progress::NONE;
        }
        if self.flight.is_some() {
            return self.dump_if_asked(consumer).unwrap_or(Progress::NONE);
        }
        let mut progress = self.drain_queues(consumer);
        if self.is_time_to_watch(progress) && self.follow_cpus(consumer) {
            self.pending = true;
            progress.pending = true;
        }
        progress
    }

    fn drain_queues<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
        let mut progress = Progress::NONE;
        if let Some(sweep) = &mut self.sweep {
            sweep.clear(Instant::now());
        }
        if let Some(adaptive) = &mut self.adaptive {
            if adaptive.sleeps_on() && !self.pending && !self.queues.have_records() {
                return progress;
            }
            adaptive.wake();
        }
        // Whatever happens below, a panicking consumer included: look again.
        self.pending = true;
        let mut counting = self.told.before(self.books.as_deref(), consumer);
        for queue in self.queues.iter_mut() {
            if progress.flow.is_break() {
                // Not looked at, so perhaps not empty.
                progress.pending = true;
                break;
            }
            let before = queue.counts().records;
            let drained = queue.drain(&mut counting, self.budget);
            progress.records += queue.counts().records - before;
            progress.flow = drained.flow;
            progress.pending |= drained.more;
        }
        if progress.flow.is_continue() {
            // Even where one CPU has more than its budget: others' blocks must not wait for that.
            progress.pending |= self.sweep_adaptively(progress.records);
        }
        self.pending = progress.pending;
        if progress.records > 0 && !progress.pending && progress.flow.is_continue() {
            progress.flow = consumer.caught_up();
        }
        progress
    }

    /// Whether to look for notices of CPUs. It takes a system call, and a notice is a reason to drain
    /// until it is read: so a drain that finds records leaves it to one that does not.
    fn is_time_to_watch(&mut self, drained: Progress) -> bool {
        self.unwatched += 1;
        let is_time = drained.records == 0 || self.unwatched >= WATCH_EVERY;
        if is_time {
            self.unwatched = 0;
        }
        is_time
    }

    /// Gives CPUs that have come a queue, and waits no more for those that have gone. Whether there
    /// were any: a ring that nobody waits for any more may hold what came after this drain's look.
    fn follow_cpus<C: Consumer>(&mut self, consumer: &mut C) -> bool {
        let mut any = false;
        while let Some(notice) = self.watch.as_ref().ok().and_then(CpuWatch::next) {
            any = true;
            let Changes { gone, come } = notice.changes(self.queues().iter().map(EvQueue::cpu));
            gone.into_iter().for_each(|cpu| self.uncover(cpu, consumer));
            come.into_iter().for_each(|cpu| self.cover(cpu, consumer));
        }
        any
    }

    fn cover<C: Consumer>(&mut self, cpu: u32, consumer: &mut C) {
        let covered = self.queues.cover(cpu, &self.epoll).and_then(|covered| {
            if covered && let Some(adaptive) = &mut self.adaptive {
                adaptive.add(cpu).map_err(|source| OpenError::Event { cpu, source })?;
            }
            Ok(covered)
        });
        match covered {
            Ok(true) => consumer.cpu_changed(CpuChange::Covered { cpu }),
            // Not wanted, or gone already.
            Ok(false) => {}
            Err(error) => consumer.cpu_changed(CpuChange::Uncovered { cpu, error: &error }),
        }
    }

    fn uncover<C: Consumer>(&mut self, cpu: u32, consumer: &mut C) {
        if self.queues.uncover(cpu, &self.epoll) {
            consumer.cpu_changed(CpuChange::Offline { cpu });
        }
    }

    /// Has old blocks sent, and goes to sleep when nothing comes any more. Whether there is
    /// something to drain now.
    fn sweep_adaptively(&mut self, records: u64) -> bool {
        let Some(adaptive) = &mut self.adaptive else { return false };
        match adaptive.sweep(records > 0) {
            Ok(Sweep::Nothing) => false,
            // Without a timer, look again at once.
            Ok(Sweep::Sent) | Err(_) => true,
            Ok(Sweep::Idle) => {
                let queues = &self.queues;
                let asleep = adaptive.fall_asleep(|| queues.have_records());
                // Awake still: something has come.
                !asleep.unwrap_or(false)
            }
        }
    }

    /// Waits until there are records, or for `timeout` (`None` is for ever), and drains once. Does
    /// not wait where the last drain has left something.
    ///
    /// Returns after a sweep that found nothing, too: look at [`Progress::records`].
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait, or to pause a ring that a dump is to be of; or this process was forked from
    /// the one that opened the pipe.
    pub fn poll<C: Consumer>(
        &mut self,
        timeout: Option<Duration>,
        consumer: &mut C,
    ) -> Result<Progress, PollError> {
        self.wait(timeout)?;
        match self.flight {
            Some(_) => Ok(self.dump_if_asked(consumer)?),
            None => Ok(self.drain(consumer)),
        }
    }

    /// Drains whenever there are records, until `stop` is stopped or `consumer` breaks.
    ///
    /// After a stop, it drains what was emitted before that. A flight recorder waits for triggers instead,
    /// and keeps what it has for [`close`](Self::close).
    ///
    /// # Errors
    ///
    /// As [`poll`](Self::poll).
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

    /// Drains until everything that was there at the start of the call is consumed, or `consumer`
    /// breaks.
    ///
    /// Of a flight recorder, it is a [drain](Self::drain).
    pub fn drain_all<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        if self.flight.is_some() {
            return self.drain(consumer).flow;
        }
        if let Some(adaptive) = &self.adaptive
            && self.queues.are_here()
        {
            adaptive.flush_all();
            self.pending = true;
        }
        for _ in 0..=self.rounds() {
            let progress = self.drain(consumer);
            progress.flow?;
            if !progress.pending {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// Closes the pipe: takes the events out of the map, gives what is left to `consumer`, of a flight
    /// recorder as a last dump, and tells what it has seen in all.
    ///
    /// Stops early if `consumer` breaks; what is left is lost, then, and not in the summary.
    pub fn close<C: Consumer>(mut self, consumer: &mut C) -> Summary {
        self.finish(consumer);
        Self::summary_of(std::iter::once(&self))
    }

    /// Does all that is to be done before a pipe is dropped.
    pub(crate) fn finish<C: Consumer>(&mut self, consumer: &mut C) {
        // Everything packed is sent before the maps are empty.
        let kept = self.adaptive.take().map(Adaptive::close).unwrap_or_default();
        if self.queues.are_here() {
            self.end(&kept, consumer);
        }
    }

    /// What pipes have seen that have the same books, ascending by CPU.
    pub(crate) fn summary_of<'p>(pipes: impl Iterator<Item = &'p Self> + Clone) -> Summary {
        let ledger = Self::ledger_of(pipes.clone());
        let mut summary = Summary { cpus: Vec::new(), total: QueueCounts::default(), ledger };
        for queue in pipes.flat_map(Self::queues) {
            let counts = queue.counts();
            summary.cpus.push((queue.cpu(), counts));
            summary.total += counts;
        }
        summary
    }

    /// What became of every record so far that was to go to one of some pipes, which have the same books.
    pub(crate) fn ledger_of<'p>(
        pipes: impl Iterator<Item = &'p Self> + Clone,
    ) -> Result<Ledger, TallyError> {
        let books = pipes.clone().find_map(|pipe| pipe.books.as_ref());
        let books = books.ok_or(TallyError::NoTally)?;
        if !pipes.clone().all(|pipe| pipe.queues.are_here()) {
            return Err(forked().into());
        }
        books.read(pipes.flat_map(Self::queues))
    }

    /// Takes the events out of the map, and gives what is left. `kept` are the CPUs that have kept their
    /// block.
    fn end<C: Consumer>(&mut self, kept: &[u32], consumer: &mut C) {
        self.queues.leave_map();
        // A program that has found an event there may yet write to its ring. Where the kernel cannot wait
        // for it, that is left to luck.
        let _ = membarrier::wait_for_programs();
        let flow = match self.flight {
            None => self.drain_all(consumer),
            Some(_) => self.give_tails(consumer).flow,
        };
        if flow.is_continue() {
            // A break here has nothing left to stop.
            let _ = self.settle(kept, consumer);
        }
        self.queues().iter().for_each(EvQueue::disable);
    }

    /// Gives what offline CPUs have not sent, nor others that have `kept` their block, and tells of losses that
    /// no ring has told of.
    fn settle<C: Consumer>(&mut self, kept: &[u32], consumer: &mut C) -> ControlFlow<()> {
        let mut counting = self.told.before(self.books.as_deref(), consumer);
        for queue in self.queues.iter_mut() {
            let cpu = queue.cpu();
            if (!queue.is_online() || kept.contains(&cpu))
                && let Some(scratch) = &self.scratch
                && let Ok(mut slot) = scratch.first_of(cpu)
            {
                queue.recover(scratch::bytes(&mut slot), &mut counting)?;
            }
            let lost = || self.books.as_ref()?.lost_outputs(cpu);
            queue.settle(lost, &mut counting)?;
            counting.settle(cpu)?;
        }
        ControlFlow::Continue(())
    }

    /// So many drains consume all that is in the rings now, whatever comes in meanwhile: a ring holds
    /// no more than its size.
    pub(crate) fn rounds(&self) -> usize {
        self.bytes_per_cpu.div_ceil(self.budget)
    }

    /// Adaptive wakeups, where the pipe has them.
    pub(crate) fn adaptive_mut(&mut self) -> Option<&mut Adaptive> {
        self.adaptive.as_mut()
    }

    /// Whether the last drain has left something, or there was none yet.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Waits until the descriptor is readable. Takes the readiness, so a drain has to follow.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<(), PollError> {
        if !self.queues.are_here() {
            return Err(forked().into());
        }
        let timeout =
            if self.pending { Some(Duration::ZERO) } else { timeout.or(self.poll_interval) };
        self.epoll.wait(timeout)?;
        Ok(())
    }
}

impl Waits for EvPipe {
    fn epoll(&self) -> &Epoll {
        &self.epoll
    }
}

/// Readable when a drain would find something, or a sweep is due.
impl AsFd for EvPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for EvPipe {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

mod dump;
mod pause;

#[cfg(all(test, feature = "aya"))]
mod disturbed;
#[cfg(all(test, feature = "aya"))]
mod faults;
#[cfg(all(test, feature = "aya"))]
mod tests;
