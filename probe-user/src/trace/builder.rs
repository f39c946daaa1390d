//! Setting a trace up.

use super::aggregate::Aggregate;
use super::attach::{Attacher, Links};
use super::calls;
use super::count::Counter;
use super::counters::Counters;
use super::delivery::{Delivery, Order};
use super::error::TraceError;
use super::expand::{Choice, LeftOut};
use super::features;
use super::filter::Filter;
use super::glob::Glob;
use super::latency::Stopwatch;
use super::log_reader::LogReader;
use super::object::{Config, Object};
use super::planner::{Fields, Planner};
use super::probe::Probe;
use super::resolve::{KERNEL_STACK, Plan, USER_STACK};
use super::sampling::Sampling;
use super::selection::{Group, Selection};
use super::spec::{FieldSpec, Literal, ProbeSpec, Provider};
use super::tracer::Tracer;
use crate::evpipe::EvPipe;
use crate::options::Options;
use crate::perf::Event;
use probe_common::counter::COUNTERS;
use std::fs::File;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
    fields: Fields,
    sampling: Sampling,
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

    /// Whether patterns may stand for more probes than one traces by mistake: 10,000 functions; 1,000
    /// probes where each has to be attached by itself (tracepoints; functions of programs and libraries;
    /// functions of the kernel before 5.18 and without CONFIG_FPROBE); 500 where each takes a program of its own
    /// (raw tracepoints; trampolines; all before 5.15). And whether they may stand for trampolines at all
    /// before 5.12, where programs of these can run inside themselves.
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
    /// all the same are given at once, and the [`Ledger`](super::Ledger) counts them. Losses have no time: they are
    /// told as soon as they are known.
    #[must_use]
    pub fn ordered(mut self, window: Option<Duration>) -> Self {
        self.order = Order::ByTime { window };
        self
    }

    /// Tells calls: one event when a function returns, with the arguments that it was entered with, what
    /// it returned (`retval`), and how long that took (`latency`, in nanoseconds).
    ///
    /// It is for probes of functions that are entered ([`Provider::Kprobe`], [`Provider::Uprobe`]), and of
    /// system calls ([`Provider::Ksyscall`]). Calls that were under way when the probes were attached are not
    /// told; those that return after they were detached, and what else is missed,
    /// [`Ledger::missed`](super::Ledger::missed) counts.
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

    /// Tells, with every [call](Self::calls), what its CPU counted from where the function was entered to where it
    /// returned: a field that is called as the event, beside the others. Up to four events can be counted, each
    /// once. In fields and conditions of specs, they are `counter`, `counter2`, `counter3` and `counter4`, in the
    /// order in which they were given.
    ///
    /// The CPU counts whatever it runs: what interrupts the call is in its count, and what runs while it waits, even
    /// if it is elsewhere for a time. So `cpu-clock` and `task-clock` both count all of the time that a call takes,
    /// context switches and sleep included, in nanoseconds. The count is not known,
    /// and [`Value::Fault`](super::Value::Fault), of calls that return on another CPU than they were entered on, or
    /// that were under way when it was offline; where the CPU did not count all the time, for it has fewer
    /// counters than are asked for; and of short calls where the clock of perf events stood still, as it may up to
    /// the CPU's next tick on machines whose TSC is unstable (`kernel/sched/clock.c`). CPUs that come later count as soon as their calls are told
    /// ([`attach`](Self::attach)), or not at all ([`time_with`](Self::time_with)).
    #[must_use]
    pub fn counter(mut self, event: Event) -> Self {
        self.fields.counters.push(event);
        self
    }

    /// Tells, with every event, the functions of the kernel that led there: a field `kstack`, beside the
    /// others. Of a call, those that led to where it was entered (`bpf_get_stack` in bpf-helpers(7); up to
    /// `kernel.perf_event_max_stack`, 127 as a rule).
    #[must_use]
    pub fn kernel_stacks(mut self) -> Self {
        self.fields.also.push(FieldSpec::named(KERNEL_STACK));
        self
    }

    /// Tells, with every event, the functions of the process that led there: a field `ustack`. The kernel
    /// finds them by frame pointers: of code that is compiled without, it finds few, or wrong ones.
    #[must_use]
    pub fn user_stacks(mut self) -> Self {
        self.fields.also.push(FieldSpec::named(USER_STACK));
        self
    }

    /// Tells one in so many hits of each probe, of those for which its condition holds: on each CPU, the first
    /// and every `n`th from there on. How many are not told, [`Missed::withheld`](super::Missed::withheld)
    /// counts.
    #[must_use]
    pub fn sample(mut self, one_in: NonZeroU32) -> Self {
        self.sampling.one_in = Some(one_in);
        self
    }

    /// Tells at most so many hits of each probe in a second of `CLOCK_MONOTONIC`: the first ones. How many are
    /// not told, [`Missed::withheld`](super::Missed::withheld) counts.
    #[must_use]
    pub fn rate(mut self, per_second: NonZeroU32) -> Self {
        self.sampling.per_second = Some(per_second);
        self
    }

    /// Tells stacks alone, for [`StackCounts`](super::StackCounts): no arguments are read, and specs may
    /// have no fields.
    #[must_use]
    pub fn stacks_only(mut self) -> Self {
        self.fields.no_own = true;
        self
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
        let open = |object: &mut Object| {
            let mut pipe = EvPipe::open(object.pipe_parts()?, &self.options)?;
            // Now that it hears of CPUs that come.
            if let Some(counters) = self.open_counters(object)? {
                pipe.prepare_beside(Box::new(counters));
            }
            Ok(Delivery::new(pipe, self.order)?)
        };
        let plan = |planner: &mut Planner, spec: &_| planner.plan(spec, &self.filter);
        let mut attached = self.attach_as(&self.config()?, plan, open, &mut progress)?;
        let logger = attached.object.take_log().map(LogReader::start).transpose()?;
        Ok(Tracer::new(attached, self.sampling, logger))
    }

    /// Attaches the probes to count how often each is hit, in the kernel: no hit is told, and nothing is
    /// read but what predicates look at. Tells `progress` how far it is.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach), and if a probe has fields.
    pub fn count_with(self, progress: impl FnMut(Attaching)) -> Result<Counter, TraceError> {
        let fields = Fields { counters: Vec::new(), ..self.fields };
        let counted = Self { calls: false, fields, ..self };
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
        let plan = |planner: &mut Planner, spec: &_| planner.plan_count(spec, &self.filter);
        let open = |object: &mut Object| self.open_counters(object).map(drop);
        Aggregate::new(self.attach_as(&config, plan, open, &mut progress)?)
    }

    fn open_counters(&self, object: &Object) -> Result<Option<Counters>, TraceError> {
        let events = &self.fields.counters;
        (!events.is_empty()).then(|| Counters::open(events, object)).transpose()
    }

    /// Loads the programs, opens what their output goes to, and attaches the probes, each as `plan` has it.
    fn attach_as<O>(
        &self,
        config: &Config,
        plan: impl Fn(&mut Planner, &ProbeSpec) -> Result<Plan, TraceError>,
        open: impl FnOnce(&mut Object) -> Result<O, TraceError>,
        progress: &mut dyn FnMut(Attaching),
    ) -> Result<Attached<O>, TraceError> {
        let mut planner = Planner::new(self.calls, self.fields.clone());
        let mut selection = Selection::new(&self.specs, &self.choice, &mut planner, plan)?;
        let mut object = self.load(config, &selection)?;
        let output = open(&mut object)?;
        let (tracefs, types) = planner.into_parts();
        let attacher = Attacher::new(&mut object, tracefs, types);
        let links = self.attach_all(attacher, &mut selection, progress)?;
        let (probes, left_out) = selection.into_parts();
        Ok(Attached { links, probes, left_out, object, output })
    }

    /// What programs are told, once it is known that this process may load them and what for.
    fn config(&self) -> Result<Config, TraceError> {
        if self.specs.is_empty() {
            return Err(TraceError::NoProbe);
        }
        features::check_capabilities()?;
        let mut config = Config {
            tracer_pid: std::process::id(),
            sampling: self.sampling,
            log_level: self.log_level.map_or(0, |level| level as u8),
            in_cgroup: self.cgroup.is_some().into(),
            counters: self.fields.counters.len() as u8,
            ..Config::default()
        };
        match self.scope {
            Scope::Everybody => {}
            Scope::Process(pid) => config.only_pid = existing(pid)?,
            Scope::Descendants(pid) => config.root_pid = existing(pid)?,
        }
        self.check_counters()?;
        if self.calls {
            self.check_calls()?;
            let parts = self.call_parts.unwrap_or_else(calls::default_parts);
            let is_user = |spec: &ProbeSpec| spec.provider() == Provider::Uprobe;
            let has = |users| self.specs.iter().any(|spec| is_user(spec) == users);
            config.calls = if has(false) { parts } else { 0 };
            config.user_calls = if has(true) { parts } else { 0 };
        }
        Ok(config)
    }

    fn check_counters(&self) -> Result<(), TraceError> {
        let events = &self.fields.counters;
        let is_twice = |(n, event): &(usize, &Event)| events[..*n].contains(event);
        match events.iter().enumerate().find(is_twice) {
            Some((_, event)) => Err(TraceError::CounterTwice { event: event.to_string() }),
            None if events.len() > COUNTERS => {
                Err(TraceError::TooManyCounters { counters: events.len() })
            }
            None if !events.is_empty() && !self.calls => Err(TraceError::CounterWithoutCalls),
            None => Ok(()),
        }
    }

    /// Checks that all probes can be calls.
    fn check_calls(&self) -> Result<(), TraceError> {
        let is_call = |spec: &&ProbeSpec| {
            let can_be = [Provider::Kprobe, Provider::Ksyscall, Provider::Uprobe];
            can_be.contains(&spec.provider()) && spec.offset() == 0
        };
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
        let begun = Instant::now();
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
        log::debug!("{} probes attached in {:?}", probes.len(), begun.elapsed());
        Ok(links)
    }
}

/// What is attached, and what its output goes to.
pub(super) struct Attached<O> {
    pub(super) links: Links,
    pub(super) probes: Vec<Probe>,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) object: Object,
    pub(super) output: O,
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
