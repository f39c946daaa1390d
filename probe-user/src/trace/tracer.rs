//! A trace: probes attached, and the pipe that their hits come through.

use super::aggregate::Aggregate;
use super::attach::{self, Attacher, Links};
use super::calls;
use super::count::Counter;
use super::delivery::{Delivery, Order};
use super::error::TraceError;
use super::expand::{Choice, LeftOut};
use super::features::{self, is_refusal};
use super::filter::Filter;
use super::glob::Glob;
use super::latency::Stopwatch;
use super::ledger::Ledger;
use super::missed::Missed;
use super::object::{Config, Object};
use super::planner::Planner;
use super::privileges;
use super::probe::Probe;
use super::selection::{Group, Selection};
use super::spec::{Literal, ProbeSpec, Provider};
use crate::consumer::Consumer;
use crate::error::{PollError, TallyError};
use crate::evpipe::{EvPipe, Progress};
use crate::evqueue::EvQueue;
use crate::options::Options;
use crate::stop::Stop;
use crate::sys::epoll::Epoll;
use crate::sys::perf_event::{PerfEvent, WakeAt};
use aya_log::EbpfLogger;
use probe_common::Record;
use probe_common::trace::ProbeHit;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

/// Who is traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// Everybody but this process.
    #[default]
    Everybody,
    /// One process, all of its threads.
    Process(u32),
    /// One process and whatever it forks from now on.
    Descendants(u32),
}

/// Sets a trace up.
#[derive(Clone, Debug, Default)]
pub struct TracerBuilder {
    specs: Vec<ProbeSpec>,
    choice: Choice,
    scope: Scope,
    cgroup: Option<PathBuf>,
    filter: Filter,
    order: Order,
    calls: bool,
    call_parts: Option<u32>,
    options: Options,
    log_level: Option<log::Level>,
}

impl TracerBuilder {
    /// Adds a probe. Its hits carry its number: the first one's is 0. A pattern is a probe for each
    /// function or tracepoint that matches ([`Tracer::probes`] lists them), but for those that must not be
    /// probed ([`Tracer::left_out`]).
    #[must_use]
    pub fn probe(mut self, spec: ProbeSpec) -> Self {
        self.specs.push(spec);
        self
    }

    /// Leaves out what matches, of all that patterns stand for. A tracepoint is meant by its name, with or
    /// without its category.
    ///
    /// # Errors
    ///
    /// If it is no pattern.
    pub fn exclude(mut self, pattern: &str) -> Result<Self, TraceError> {
        self.choice.exclude(Glob::new(pattern)?);
        Ok(self)
    }

    /// Whether patterns may stand for more probes than one traces by mistake: 10,000 functions, or 1,000
    /// probes where each has to be attached by itself (tracepoints; functions before 5.18 and without
    /// CONFIG_FPROBE).
    #[must_use]
    pub fn force(mut self, force: bool) -> Self {
        self.choice.force(force);
        self
    }

    /// Who is traced; everybody, by default.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Traces the tasks of a cgroup and of those in it alone, of those in scope: by its directory in the
    /// cgroup v2 file system (`bpf_current_task_under_cgroup` in bpf-helpers(7)).
    #[must_use]
    pub fn cgroup(mut self, directory: impl Into<PathBuf>) -> Self {
        self.cgroup = Some(directory.into());
        self
    }

    /// Traces this thread alone, of those in scope.
    #[must_use]
    pub fn thread(mut self, tid: u32) -> Self {
        self.filter.only("tid", Literal::Integer(tid.into()));
        self
    }

    /// Traces this user's threads alone, of those in scope: by the real user id
    /// (`bpf_get_current_uid_gid` in bpf-helpers(7)).
    #[must_use]
    pub fn user(mut self, uid: u32) -> Self {
        self.filter.only("uid", Literal::Integer(uid.into()));
        self
    }

    /// Traces threads of this name alone, of those in scope. A name has up to 15 bytes.
    #[must_use]
    pub fn named(mut self, comm: &str) -> Self {
        self.filter.only("comm", Literal::Text(comm.as_bytes().to_vec()));
        self
    }

    /// Gives the events of all CPUs by time; by default, they come in the order of their CPU.
    ///
    /// Each is held until it is older than `window`, for others that are older than it and come later.
    /// `None` is a window with which none should be late ([`EvPipe::good_window`]). Those that are late
    /// all the same are given at once, and the [`Ledger`] counts them. Losses have no time: they are
    /// told as soon as they are known.
    #[must_use]
    pub fn ordered(mut self, window: Option<Duration>) -> Self {
        self.order = Order::ByTime { window };
        self
    }

    /// Tells calls: one event when a function returns, with the arguments that it was entered with, what
    /// it returned (`retval`), and how long that took (`latency`, in nanoseconds).
    ///
    /// It is for probes of functions that are entered ([`Provider::Kprobe`]). Calls that were under way
    /// when the probes were attached are not told; those that return after they were detached, and what
    /// else is missed, [`Ledger::missed`] counts.
    #[must_use]
    pub fn calls(mut self) -> Self {
        self.calls = true;
        self
    }

    /// Tells [`calls`](Self::calls) that took longer than this alone.
    #[must_use]
    pub fn longer(mut self, latency: Duration) -> Self {
        self.filter.longer(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        self.calls()
    }

    /// Keeps so many calls at a time, if none has more than a few strings: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn keep_calls(mut self, parts: u32) -> Self {
        self.call_parts = Some(parts);
        self
    }

    /// How the pipe is opened.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Gives what the eBPF programs log, down to this level, to the `log` crate. Off by default:
    /// the verifier drops the code.
    #[must_use]
    pub fn log_level(mut self, level: log::Level) -> Self {
        self.log_level = Some(level);
        self
    }

    /// Loads the programs, opens the pipe, and attaches the probes.
    ///
    /// Where a pattern's matches have to be attached one by one, and that takes more descriptors than the
    /// process may have, its limit is lifted (`RLIMIT_NOFILE`).
    ///
    /// # Errors
    ///
    /// If any of that cannot be done; nothing stays attached, then.
    pub fn attach(self) -> Result<Tracer, TraceError> {
        self.attach_with(|_| {})
    }

    /// The same, which tells `progress` how far it is.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach).
    pub fn attach_with(self, mut progress: impl FnMut(Attaching)) -> Result<Tracer, TraceError> {
        let config = self.config()?;
        let mut planner = Planner::new(self.calls);
        let plan = |planner: &mut Planner, spec: &_| planner.plan(spec, &self.filter);
        let mut selection = Selection::new(&self.specs, &self.choice, &mut planner, plan)?;
        let mut object = self.load(&config, &selection)?;
        let pipe = EvPipe::from_object(&mut object.ebpf, &self.options)?;
        let pipe = Delivery::new(pipe, self.order)?;
        let attacher = Attacher::new(&mut object, planner.into_tracefs());
        let links = self.attach_all(attacher, &mut selection, &mut progress)?;
        // It takes its map out of the object, which programs for many functions are linked against.
        let logger = self.log_level.map(|_| LogReader::start(&mut object)).transpose()?;
        let (probes, left_out) = selection.into_parts();
        Ok(Tracer { links, probes, left_out, pipe, object, logger })
    }

    /// Attaches the probes to count how often each is hit, in the kernel: no hit is told, and nothing is
    /// read but what predicates look at. Tells `progress` how far it is.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach), and if a probe has fields.
    pub fn count_with(self, progress: impl FnMut(Attaching)) -> Result<Counter, TraceError> {
        let counted = Self { calls: false, ..self };
        Ok(Counter::new(counted.aggregate(progress)?))
    }

    /// Attaches the probes to add up how long [calls](Self::calls) take, in the kernel: no call is told,
    /// and nothing is read but what predicates look at. Tells `progress` how far it is.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach), and if a probe has fields.
    pub fn time_with(self, progress: impl FnMut(Attaching)) -> Result<Stopwatch, TraceError> {
        Stopwatch::new(self.calls().aggregate(progress)?)
    }

    fn aggregate(self, mut progress: impl FnMut(Attaching)) -> Result<Aggregate, TraceError> {
        let config = Config { count_only: true, ..self.config()? };
        let mut planner = Planner::new(self.calls);
        let plan = |planner: &mut Planner, spec: &_| planner.plan_count(spec, &self.filter);
        let mut selection = Selection::new(&self.specs, &self.choice, &mut planner, plan)?;
        let mut object = self.load(&config, &selection)?;
        let attacher = Attacher::new(&mut object, planner.into_tracefs());
        let links = self.attach_all(attacher, &mut selection, &mut progress)?;
        let (probes, left_out) = selection.into_parts();
        Aggregate::new(links, probes, left_out, object)
    }

    /// What programs are told, once it is known that this process may load them and what for.
    fn config(&self) -> Result<Config, TraceError> {
        if self.specs.is_empty() {
            return Err(TraceError::NoProbe);
        }
        self.specs.iter().try_for_each(attach::refuse)?;
        features::check_capabilities()?;
        let mut config = Config {
            tracer_pid: std::process::id(),
            log_level: self.log_level.map_or(0, |level| level as u8),
            in_cgroup: self.cgroup.is_some().into(),
            ..Config::default()
        };
        match self.scope {
            Scope::Everybody => {}
            Scope::Process(pid) => config.only_pid = existing(pid)?,
            Scope::Descendants(pid) => config.root_pid = existing(pid)?,
        }
        if self.calls {
            self.check_calls()?;
            config.calls = self.call_parts.unwrap_or_else(calls::default_parts);
        }
        Ok(config)
    }

    /// Checks that all probes can be calls.
    fn check_calls(&self) -> Result<(), TraceError> {
        let is_call = |spec: &&ProbeSpec| spec.provider() == Provider::Kprobe && spec.offset() == 0;
        match self.specs.iter().find(|spec| !is_call(spec)) {
            Some(spec) => Err(TraceError::NoCall { spec: spec.clone() }),
            None => Ok(()),
        }
    }

    fn load(&self, config: &Config, selection: &Selection) -> Result<Object, TraceError> {
        let mut object = Object::load(config, &selection.tables)?;
        if let Some(cgroup) = &self.cgroup {
            only_in(&mut object, cgroup)?;
        }
        Ok(object)
    }

    fn attach_all(
        &self,
        mut attacher: Attacher<'_>,
        selection: &mut Selection,
        progress: &mut dyn FnMut(Attaching),
    ) -> Result<Links, TraceError> {
        let probes = &selection.probes;
        attacher.check(probes)?;
        let mut links = Links::default();
        if matches!(self.scope, Scope::Descendants(_)) {
            // First, so that nobody is born unseen.
            links.followers.extend(attacher.follow()?);
        }
        let mut done = 0;
        let mut each = |more| {
            done += more;
            progress(Attaching { done, total: probes.len() });
        };
        for Group { numbers, left_out } in &mut selection.groups {
            let probes = &probes[numbers.clone()];
            match left_out {
                Some(left_out) => {
                    left_out.refused =
                        attacher.attach_matches(probes, numbers.start, &mut links, &mut each)?;
                }
                None => {
                    for (number, probe) in numbers.clone().zip(probes) {
                        links.add(number, attacher.attach(probe, number as u32)?);
                        each(1);
                    }
                }
            }
        }
        Ok(links)
    }
}

fn only_in(object: &mut Object, cgroup: &Path) -> Result<(), TraceError> {
    let failed = |source| TraceError::NoCgroup { path: cgroup.to_owned(), source };
    let directory = File::open(cgroup).map_err(|error| failed(error.into()))?;
    object.only_in(directory.as_fd()).map_err(|error| failed(error.into()))
}

/// How far the attaching of probes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attaching {
    /// How many probes are done with.
    pub done: usize,
    /// Of how many.
    pub total: usize,
}

fn existing(pid: u32) -> Result<u32, TraceError> {
    if pid != 0 && Path::new(&format!("/proc/{pid}")).exists() {
        Ok(pid)
    } else {
        Err(TraceError::NoProcess { pid })
    }
}

/// Attached probes, and the pipe that their hits come through. To drop it detaches them.
#[derive(Debug)]
pub struct Tracer {
    // Dropped first: no program emits into a pipe that is gone.
    links: Links,
    probes: Vec<Probe>,
    left_out: Vec<LeftOut>,
    pipe: Delivery,
    object: Object,
    logger: Option<LogReader>,
}

impl Tracer {
    /// Sets a trace up.
    pub fn builder() -> TracerBuilder {
        TracerBuilder::default()
    }

    /// The probes, in the order of their numbers, and what their events have.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// What patterns match, and what is not probed all the same: one for each pattern.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The pipe that events come through, to look at what it has counted.
    pub fn pipe(&self) -> &EvPipe {
        self.pipe.pipe()
    }

    /// Gives events to `consumer` until `stop` is stopped or `consumer` breaks.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub fn run<C: Consumer>(&mut self, stop: &Stop, consumer: &mut C) -> Result<(), PollError> {
        self.pipe.run(stop, consumer)
    }

    /// Waits until there are events, or for `timeout` (`None` is for ever), and gives them to `consumer`.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub fn poll<C: Consumer>(
        &mut self,
        timeout: Option<Duration>,
        consumer: &mut C,
    ) -> Result<Progress, PollError> {
        self.pipe.poll(timeout, consumer)
    }

    /// Gives the events that are there to `consumer`, without waiting: when the descriptor is readable,
    /// in a loop of your own.
    pub fn drain<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
        self.pipe.drain(consumer)
    }

    /// Whether the calling thread may make the calls of a trace that is attached: to have blocks
    /// sent, and to read what was counted.
    pub(super) fn may_finish(&self) -> bool {
        let read = match self.pipe().tally() {
            Some(tally) => tally.of(ProbeHit::KIND).map(drop),
            None => Ok(()),
        };
        !matches!(read, Err(TallyError::Read { source }) if is_refusal(&source))
            && !matches!(self.object.flush(self.any_cpu()), Err(error) if is_refusal(&error))
    }

    /// Whether the calling thread may open the event of another CPU.
    pub(super) fn may_open_events(&self) -> bool {
        let event = PerfEvent::bpf_output(self.any_cpu(), WakeAt::Events(1));
        !matches!(event, Err(error) if is_refusal(&error))
    }

    fn any_cpu(&self) -> u32 {
        self.pipe().queues().first().map_or(0, EvQueue::cpu)
    }

    /// Detaches the probes, gives `consumer` what is left, and tells what became of every record.
    ///
    /// # Errors
    ///
    /// If the eBPF side's count cannot be read.
    pub fn close<C: Consumer>(self, consumer: &mut C) -> Result<Ledger, TraceError> {
        let Self { links, probes, mut pipe, object, logger, .. } = self;
        let by_kernel = links.missed(probes.len());
        drop(links);
        let mut missed = vec![Missed::default(); probes.len()];
        if probes.iter().any(Probe::is_call) {
            missed = calls::missed(&object, probes.len()).map_err(TraceError::load)?;
        }
        missed.iter_mut().zip(by_kernel).for_each(|(missed, hits)| missed.by_kernel = hits);
        let _ = pipe.drain_all(consumer);
        drop(logger);
        let (records, late) = pipe.close(consumer)?;
        Ok(Ledger { records, late, not_followed: object.not_followed()?, missed })
    }
}

/// Readable when there may be events: call [`drain`](Tracer::drain) then.
impl AsFd for Tracer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// Gives the log of the eBPF programs to the `log` crate, from a thread of its own.
#[derive(Debug)]
struct LogReader {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl LogReader {
    fn start(object: &mut Object) -> Result<Self, TraceError> {
        let mut logger = EbpfLogger::init(&mut object.ebpf).map_err(TraceError::load)?;
        let stop = Stop::new().map_err(TraceError::load)?;
        let epoll = Epoll::new().map_err(TraceError::load)?;
        epoll.add(logger.as_fd()).map_err(TraceError::load)?;
        epoll.add(stop.as_fd()).map_err(TraceError::load)?;
        let stopped = stop.clone();
        let read = move || {
            // Its map is mapped: to read it, and to wait, takes no privilege.
            if let Err(error) = privileges::drop_in_thread() {
                log::warn!("the log's reader keeps its privileges: {error}");
            }
            while !stopped.is_stopped() && epoll.wait(None).is_ok() {
                logger.flush();
            }
            logger.flush();
        };
        let thread = std::thread::Builder::new().name("bpf-log".into()).spawn(read);
        Ok(Self { stop, thread: Some(thread.map_err(TraceError::load)?) })
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // It has told its panic already.
            let _ = thread.join();
        }
    }
}
