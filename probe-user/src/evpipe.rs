//! The pipe: the map, the queues in it, and the ways to wait for them.

use crate::adaptive::{Adaptive, Sweep};
use crate::consumer::Consumer;
use crate::cpus;
use crate::error::{OpenError, PollError, map_type_name};
use crate::evqueue::{EvQueue, QueueCounts};
use crate::options::{Options, Wakeup};
use crate::stop::Stop;
use crate::sys::bpf;
use crate::sys::epoll::Epoll;
use crate::tally::Tally;
use crate::ticker::Ticker;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
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
/// To drop it closes it; [`close`](Self::close) also consumes what is left, and tells what was
/// lost. Detach the programs that emit first, or they count what they emit afterwards as failed.
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
    tally: Option<Tally>,
    bytes_per_cpu: usize,
}

/// The queues, sparse and ascending by CPU, and the map that their events are in.
///
/// A map slot lives as long as the map file that set it, so this file is held for as long.
#[derive(Debug)]
struct Queues {
    map: OwnedFd,
    /// The map of the events that wake with every record.
    eager: Option<OwnedFd>,
    queues: Vec<EvQueue>,
}

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

/// What a closed pipe has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// What each CPU's queue has seen, ascending by CPU.
    pub cpus: Vec<(u32, QueueCounts)>,
    /// The sum of them.
    pub total: QueueCounts,
}

/// What a loaded object has of a pipe.
///
/// [`EvPipe::from_object`] finds all of it in an object that aya has loaded. With another loader,
/// hand over what there is: the map of events is enough to receive records.
#[derive(Debug)]
pub struct PipeParts {
    events: OwnedFd,
    tally: Option<Tally>,
    adaptive: Option<AdaptiveParts>,
}

/// What adaptive wakeups need beyond the events.
#[derive(Debug)]
struct AdaptiveParts {
    eager: OwnedFd,
    control: OwnedFd,
    flush: OwnedFd,
}

impl PipeParts {
    /// The map [`EVENTS_MAP`](probe_common::control::EVENTS_MAP).
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn new(events: impl AsFd) -> io::Result<Self> {
        let events = events.as_fd().try_clone_to_owned()?;
        Ok(Self { events, tally: None, adaptive: None })
    }

    /// The map [`TALLY_MAP`](probe_common::control::TALLY_MAP), by which the pipe knows what the
    /// eBPF side counts.
    ///
    /// # Errors
    ///
    /// If it is not such a map.
    pub fn tally(mut self, tally: impl AsFd) -> Result<Self, OpenError> {
        self.tally = Some(Tally::from_map(tally)?);
        Ok(self)
    }

    /// What [`Wakeup::Adaptive`] needs: the maps
    /// [`EAGER_MAP`](probe_common::control::EAGER_MAP) and
    /// [`CONTROL_MAP`](probe_common::control::CONTROL_MAP), and the loaded program
    /// [`FLUSH_PROGRAM`](probe_common::control::FLUSH_PROGRAM).
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn adaptive(
        mut self,
        eager: impl AsFd,
        control: impl AsFd,
        flush: impl AsFd,
    ) -> io::Result<Self> {
        self.adaptive = Some(AdaptiveParts {
            eager: eager.as_fd().try_clone_to_owned()?,
            control: control.as_fd().try_clone_to_owned()?,
            flush: flush.as_fd().try_clone_to_owned()?,
        });
        Ok(self)
    }
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
        options.check()?;
        let poll = |source| OpenError::Poll { source };
        let mut queues = Queues::open(parts.events, options)?;
        let epoll = Epoll::new().map_err(poll)?;
        for queue in &queues.queues {
            epoll.add(queue.as_fd()).map_err(poll)?;
        }
        let mut wakeup = options.policy();
        let (mut adaptive, mut fallback) = (None, None);
        if let Wakeup::Adaptive { max_latency } = wakeup {
            match queues.open_adaptive(parts.adaptive, max_latency, options.bytes()) {
                Ok(opened) => adaptive = Some(opened),
                Err(why) => {
                    wakeup = Wakeup::Watermark(options.bytes() as u32 / 4);
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
        if let Some(adaptive) = &adaptive {
            epoll.add(adaptive.timer()).map_err(poll)?;
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
            pending: true,
            tally: parts.tally,
            bytes_per_cpu: options.bytes(),
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
        use aya::maps::Map;
        use aya::programs::RawTracePoint;
        use probe_common::control::{CONTROL_MAP, EAGER_MAP, EVENTS_MAP, FLUSH_PROGRAM, TALLY_MAP};

        let why = |error: aya::programs::ProgramError| OpenError::Program {
            name: FLUSH_PROGRAM,
            why: error.to_string(),
        };
        let program = object
            .program_mut(FLUSH_PROGRAM)
            .ok_or(OpenError::NoProgram { name: FLUSH_PROGRAM })?;
        let program: &mut RawTracePoint = program.try_into().map_err(why)?;
        if program.fd().is_err() {
            program.load().map_err(why)?;
        }
        let flush = program.fd().map_err(why)?.as_fd().try_clone_to_owned();
        let info = |source| OpenError::MapInfo { source };
        let Some(Map::PerfEventArray(events)) = object.map(EVENTS_MAP) else {
            return Err(OpenError::NoMap { name: EVENTS_MAP });
        };
        let Some(Map::PerfEventArray(eager)) = object.map(EAGER_MAP) else {
            return Err(OpenError::NoMap { name: EAGER_MAP });
        };
        let Some(Map::PerCpuArray(tally)) = object.map(TALLY_MAP) else {
            return Err(OpenError::NoMap { name: TALLY_MAP });
        };
        let Some(Map::Array(control)) = object.map(CONTROL_MAP) else {
            return Err(OpenError::NoMap { name: CONTROL_MAP });
        };
        let parts = PipeParts::new(events.fd())
            .and_then(|parts| parts.adaptive(eager.fd(), control.fd(), flush?))
            .map_err(info)?;
        Self::open(parts.tally(tally.fd())?, options)
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
        self.tally.as_ref()
    }

    /// The queues, ascending by CPU.
    pub fn queues(&self) -> &[EvQueue] {
        &self.queues.queues
    }

    /// The queue of a CPU.
    pub fn queue(&self, cpu: u32) -> Option<&EvQueue> {
        let queues = self.queues();
        queues.binary_search_by_key(&cpu, EvQueue::cpu).ok().map(|at| &queues[at])
    }

    /// Bytes of ring that each CPU has.
    pub fn bytes_per_cpu(&self) -> usize {
        self.bytes_per_cpu
    }

    /// Gives what is there now to `consumer`, without waiting. A CPU that emits without pause gets
    /// its share, not more ([`Options::budget`]).
    pub fn drain<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
        let mut progress = Progress { records: 0, flow: ControlFlow::Continue(()), pending: false };
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
        for queue in &mut self.queues.queues {
            if progress.flow.is_break() {
                // Not looked at, so perhaps not empty.
                progress.pending = true;
                break;
            }
            let before = queue.counts().records;
            let drained = queue.drain(consumer, self.budget);
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
    /// If the kernel refuses to wait.
    pub fn poll<C: Consumer>(
        &mut self,
        timeout: Option<Duration>,
        consumer: &mut C,
    ) -> Result<Progress, PollError> {
        self.wait(timeout)?;
        Ok(self.drain(consumer))
    }

    /// Drains whenever there are records, until `stop` is stopped or `consumer` breaks.
    ///
    /// After a stop, it drains what was emitted before that.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub fn run<C: Consumer>(&mut self, stop: &Stop, consumer: &mut C) -> Result<(), PollError> {
        self.epoll.add(stop.as_fd())?;
        let result = self.run_until(stop, consumer);
        self.epoll.remove(stop.as_fd())?;
        result
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
    pub fn drain_all<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        if let Some(adaptive) = &self.adaptive {
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

    /// Closes the pipe: takes the events out of the map, gives what is left to `consumer`, and
    /// tells what it has seen in all.
    ///
    /// Stops early if `consumer` breaks; what is left is lost, then, and not in the summary.
    pub fn close<C: Consumer>(mut self, consumer: &mut C) -> Summary {
        // Everything packed is sent before the maps are empty.
        drop(self.adaptive.take());
        self.queues.leave_map();
        let _ = self.drain_all(consumer);
        let mut summary = Summary::default();
        for queue in self.queues() {
            let mut counts = queue.counts();
            // The ring tells of a loss only when a later record fits; the event knows.
            counts.lost = counts.lost.max(queue.kernel_lost().unwrap_or(0));
            queue.disable();
            summary.cpus.push((queue.cpu(), counts));
            summary.total += counts;
        }
        summary
    }

    /// So many drains consume all that is in the rings now, whatever comes in meanwhile: a ring holds
    /// no more than its size.
    pub(crate) fn rounds(&self) -> usize {
        self.bytes_per_cpu.div_ceil(self.budget)
    }

    /// What [`wait`](Self::wait) waits on.
    pub(crate) fn epoll(&self) -> &Epoll {
        &self.epoll
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
        let timeout =
            if self.pending { Some(Duration::ZERO) } else { timeout.or(self.poll_interval) };
        self.epoll.wait(timeout)?;
        Ok(())
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

impl Queues {
    fn open(map: OwnedFd, options: &Options) -> Result<Self, OpenError> {
        let info = bpf::map_info(map.as_fd()).map_err(|source| OpenError::MapInfo { source })?;
        if info.map_type != bpf::MAP_TYPE_PERF_EVENT_ARRAY {
            let found = map_type_name(info.map_type);
            return Err(OpenError::NotAPerfEventArray { name: info.name, found });
        }
        let online = cpus::online().map_err(|source| OpenError::Cpus { source })?;
        let mut this = Self { map, eager: None, queues: Vec::new() };
        for &cpu in options.wanted_cpus().unwrap_or(&online) {
            if cpu >= info.max_entries {
                return Err(OpenError::CpuPastEnd {
                    cpu,
                    name: info.name,
                    entries: info.max_entries,
                });
            }
            match EvQueue::open(cpu, options.bytes(), options.wake_at())? {
                Some(queue) => this.enter_map(queue)?,
                // One that went offline since the list was read is not missed.
                None if options.wanted_cpus().is_none() => {}
                None => return Err(OpenError::CpuOffline { cpu, online }),
            }
        }
        if this.queues.is_empty() {
            return Err(OpenError::NoCpu { online });
        }
        Ok(this)
    }

    fn enter_map(&mut self, queue: EvQueue) -> Result<(), OpenError> {
        let cpu = queue.cpu();
        bpf::map_set_fd(self.map.as_fd(), cpu, queue.as_fd())
            .map_err(|source| OpenError::Slot { cpu, source })?;
        self.queues.push(queue);
        Ok(())
    }

    /// Opens the second event of each queue, and the consumer's half of adaptive wakeups; or tells
    /// why it cannot.
    fn open_adaptive(
        &mut self,
        parts: Option<AdaptiveParts>,
        max_latency: Duration,
        bytes_per_cpu: usize,
    ) -> Result<Adaptive, String> {
        let AdaptiveParts { eager, control, flush } =
            parts.ok_or("only the map of events is known, not the rest of the object")?;
        let eager = self.eager.insert(eager);
        for queue in &mut self.queues {
            let cpu = queue.cpu();
            queue
                .open_eager()
                .and_then(|event| bpf::map_set_fd(eager.as_fd(), cpu, event))
                .map_err(|error| format!("no second event on CPU {cpu}: {error}"))?;
        }
        let cpus = self.queues.iter().map(EvQueue::cpu);
        Adaptive::new(control.as_fd(), flush, cpus, max_latency, bytes_per_cpu)
            .map_err(|error| format!("this kernel lacks a part of it: {error}"))
    }

    fn have_records(&self) -> bool {
        self.queues.iter().any(EvQueue::has_records)
    }

    /// Takes the events out of the map.
    fn leave_map(&mut self) {
        for queue in &self.queues {
            // It fails only if the slot is empty already.
            for map in self.eager.iter().chain([&self.map]) {
                let _ = bpf::map_delete(map.as_fd(), queue.cpu());
            }
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.leave_map();
    }
}

#[cfg(all(test, feature = "aya"))]
mod tests;
