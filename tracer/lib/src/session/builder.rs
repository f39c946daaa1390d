//! The builder of a trace.

use super::attached::{Aggregate, Attached};
use crate::error::TraceError;
use crate::hook::attach::{Attacher, Links};
use crate::hook::expand::{Choice, Reason};
use crate::hook::{self, Host};
use crate::kernel::capabilities::Capabilities;
use crate::object::namespaces::{self, PidNamespace, ProcessId};
use crate::object::per_cpu::PerCpu;
use crate::object::{self, Config, Object, Sampling, Side};
use crate::resolve::probe::Probe;
use crate::resolve::shape::Shape;
use crate::resolve::{LATENCY, Plan};
use crate::session::command::TracedCommand;
use crate::session::count::HitCounter;
use crate::session::counters::Counters;
use crate::session::delivery::{Delivery, Order};
use crate::session::interrupt::Interrupt;
use crate::session::latency::Stopwatch;
use crate::session::log_reader::LogReader;
use crate::session::planner::{Fields, Filter, Planner};
use crate::session::selection::{Group, Selection};
use crate::session::tracer::Tracer;
use crate::session::waits::Waiting;
use crate::spec::{Builtin, FieldBase, FieldSpec, Operand, Operator, ProbeSpec};
use probe_perf::Event;
use probe_perf::pattern::Glob;
use probe_sys::cpus;
use probe_sys::hotplug::Prepare;
use probe_tracer_common::count::COUNTS;
use probe_tracer_common::counter::COUNTERS;
use probe_user::{EvPipe, EvQueue, Options};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// The tasks that are traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// All tasks except those of this process.
    #[default]
    All,
    /// One process with all of its threads.
    Process(u32),
    /// One process and the descendants that it forks from now on.
    Descendants(u32),
}

/// Builds a [`Tracer`], a [`HitCounter`] or a [`Stopwatch`].
#[derive(Clone, Debug, Default)]
pub struct TracerBuilder {
    specs: Vec<ProbeSpec>,
    choice: Choice,
    unsafe_returns: bool,
    is_held: bool,
    target: Target,
    /// The file that the target will execute.
    program: Option<PathBuf>,
    cgroup: Option<PathBuf>,
    filter: Filter,
    /// Threads that the filter compares with.
    threads: Vec<u32>,
    /// A task must belong to one of these processes.
    processes: Vec<u32>,
    order: Order,
    calls: bool,
    call_parts: Option<u32>,
    specialize: Option<usize>,
    fields: Fields,
    sampling: Sampling,
    options: Options,
    log_level: Option<log::Level>,
    interrupted: Interrupt,
    detach_in_background: bool,
}

impl Tracer {
    /// Starts building a trace.
    pub fn builder() -> TracerBuilder {
        TracerBuilder::default()
    }
}

impl TracerBuilder {
    /// Adds a probe. Its events carry its number, which starts at 0. A pattern adds a probe for
    /// each function or tracepoint that it matches ([`Tracer::probes`] lists them), except those
    /// that must not be probed ([`Tracer::left_out`]). A system call also adds a probe for each function of 32-bit calls,
    /// after those of all specs.
    ///
    /// Without a provider, a name after a category of this kernel's tracepoints is a tracepoint:
    /// `sched:sched_switch`. If there is a module of the category's name that has such a function, it is the function.
    #[must_use]
    pub fn probe(mut self, spec: ProbeSpec) -> Self {
        self.specs.push(Host::default().meant(spec));
        self
    }

    /// Leaves out whatever matches `pattern` when patterns are expanded. A tracepoint matches by
    /// its name, with or without its category.
    ///
    /// # Errors
    ///
    /// If the pattern is not valid.
    pub fn exclude(mut self, pattern: &str) -> Result<Self, TraceError> {
        self.choice.exclude.push(Glob::new(pattern)?);
        Ok(self)
    }

    /// With `no_limit`, lifts the limits that keep patterns from matching many probes by mistake. The
    /// limits are 10,000 functions; 1,000 probes where each is attached by itself (tracepoints;
    /// functions of programs and libraries; functions of the kernel before 5.18 or without
    /// CONFIG_FPROBE); and 500 where each needs a program of its own (raw tracepoints; trampolines;
    /// all probes before 5.15). It also allows patterns of trampolines before 5.12, where the
    /// kernel does not keep their programs from recursing.
    #[must_use]
    pub fn no_limit(mut self, no_limit: bool) -> Self {
        self.choice.no_limit = no_limit;
        self
    }

    /// With `unsafe_returns`, allows probes on the returns of functions where that crashes the program: those of Go programs,
    /// and functions that return again, such as `setjmp`.
    #[must_use]
    pub fn unsafe_returns(mut self, unsafe_returns: bool) -> Self {
        self.unsafe_returns = unsafe_returns;
        self
    }

    /// Makes the trace wait for [`Tracer::begin`]: until then, no hit counts.
    #[must_use]
    pub fn held(mut self) -> Self {
        self.is_held = true;
        self
    }

    /// With `detach`, a process in the background detaches the probes if there are many. The kernel takes up to 0.05 s for
    /// each, and this process does not wait. The probes have no effect once the trace has ended or could not start.
    /// By default, this process waits.
    #[must_use]
    pub fn detach_in_background(mut self, detach: bool) -> Self {
        self.detach_in_background = detach;
        self
    }

    /// Selects the tasks that are traced. The default is all tasks.
    #[must_use]
    pub fn target(mut self, target: Target) -> Self {
        self.target = target;
        self.program = None;
        self
    }

    /// Selects a command and its descendants, as [`Target::Descendants`] does. If it is a 32-bit program, whose system calls
    /// some probes do not see, a warning says so.
    #[must_use]
    pub fn command(mut self, command: &TracedCommand) -> Self {
        self.target = Target::Descendants(command.pid());
        self.program = Some(command.file().to_owned());
        self
    }

    /// Narrows the target to the tasks of a cgroup and its descendants. `cgroup` is its directory
    /// in the cgroup v2 file system (`bpf_current_task_under_cgroup` in bpf-helpers(7)).
    #[must_use]
    pub fn cgroup(mut self, directory: impl Into<PathBuf>) -> Self {
        self.cgroup = Some(directory.into());
        self
    }

    /// Narrows the target to these processes. Each takes a comparison of the 16 that the predicate of a probe may have.
    #[must_use]
    pub fn processes(mut self, pids: &[u32]) -> Self {
        self.processes.extend(pids);
        let values = pids.iter().map(|&pid| Operand::Integer(pid.into()));
        self.filter.add_any(&FieldBase::Builtin(Builtin::Pid), values);
        self
    }

    /// Narrows the target to this thread.
    #[must_use]
    pub fn thread(mut self, tid: u32) -> Self {
        self.threads.push(tid);
        self.select(Builtin::Tid, Operand::Integer(tid.into()))
    }

    /// Narrows the target to the threads of this user, by real user id (`bpf_get_current_uid_gid`
    /// in bpf-helpers(7)).
    #[must_use]
    pub fn user(self, uid: u32) -> Self {
        self.select(Builtin::Uid, Operand::Integer(uid.into()))
    }

    /// Narrows the target to threads with this name, which has at most 15 bytes.
    #[must_use]
    pub fn named(self, comm: impl AsRef<[u8]>) -> Self {
        self.select(Builtin::Comm, Operand::Text(comm.as_ref().to_vec()))
    }

    fn select(mut self, builtin: Builtin, operand: Operand) -> Self {
        self.filter.add(FieldBase::Builtin(builtin), Operator::Equal, operand);
        self
    }

    /// Delivers the events of all CPUs in the order of time. By default, only the events of each
    /// CPU are in order.
    ///
    /// Each event is held until it is older than `window`, so that earlier events can still arrive.
    /// `None` selects a window with which no event should be late ([`EvPipe::good_window`]). A late
    /// event is delivered at once, and the [`TraceLedger`](crate::TraceLedger) counts it. Losses
    /// have no time: they are reported as soon as they are known.
    #[must_use]
    pub fn ordered(mut self, window: Option<Duration>) -> Self {
        self.order = Order::ByTime { window };
        self
    }

    /// Traces calls: one event when a function returns, with the arguments that it was entered
    /// with, its return value (`retval`), and its duration (`latency`, in nanoseconds).
    ///
    /// The probes must be entries of functions ([`Provider::Kprobe`](crate::Provider::Kprobe),
    /// [`Provider::Uprobe`](crate::Provider::Uprobe)) or of system calls
    /// ([`Provider::Ksyscall`](crate::Provider::Ksyscall), and the
    /// [tracepoints](crate::Provider::Tracepoint) `syscalls:sys_enter_NAME` and
    /// `raw_syscalls:sys_enter`). Calls that were under way when the
    /// probes were attached have no events. [`TraceLedger::missed`](crate::TraceLedger::missed)
    /// counts the calls that had not returned when the probes were detached, and those missed for
    /// other reasons.
    #[must_use]
    pub fn calls(mut self) -> Self {
        self.calls = true;
        self
    }

    /// Traces only [`calls`](Self::calls) that took longer than this.
    #[must_use]
    pub fn longer(mut self, latency: Duration) -> Self {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let latency = FieldBase::Name(LATENCY.to_owned());
        self.filter.add(latency, Operator::Greater, Operand::Integer(nanoseconds.into()));
        self.calls()
    }

    /// Adds a counter of the CPU to every [call](Self::calls): a field, named after the event, with
    /// the difference between the function's entry and its return. Up to four different events can
    /// be counted. In the fields and conditions of specs, they are `counter`, `counter2`,
    /// `counter3` and `counter4`, in the order in which they were added.
    ///
    /// The counter counts whatever the CPU runs: interrupts during the call, and other tasks while
    /// the call waits, even if it is elsewhere for a time. So both `cpu-clock` and `task-clock`
    /// count the whole duration of a call in nanoseconds, context switches and sleep included.
    ///
    /// The value is unknown, which is [`Value::Fault`](crate::Value::Fault), in these cases: the
    /// call returned on another CPU than it was entered on; the CPU was offline during the call;
    /// the CPU did not count all the time, because it has fewer counters than were requested; or
    /// the call was short and the clock of perf events stood still, as it may until the CPU's next
    /// tick on machines with an unstable TSC (`kernel/sched/clock.c`).
    ///
    /// CPUs that come online later count from when their calls are traced
    /// ([`attach`](Self::attach)), or not at all ([`time_with`](Self::time_with)).
    #[must_use]
    pub fn counter(mut self, event: Event) -> Self {
        self.fields.counters.push(event);
        self
    }

    /// Adds the kernel's stack to every event: a field `kstack`. The event of a call has the stack
    /// at the function's entry (`bpf_get_stack` in bpf-helpers(7)). The depth is limited to
    /// `kernel.perf_event_max_stack`, 127 by default.
    #[must_use]
    pub fn kernel_stacks(mut self) -> Self {
        self.fields.also.push(FieldSpec::builtin(Builtin::KernelStack));
        self
    }

    /// Adds the process's stack to every event: a field `ustack`. The kernel follows frame
    /// pointers. In code that is compiled without them, it finds few functions or wrong ones.
    #[must_use]
    pub fn user_stacks(mut self) -> Self {
        self.fields.also.push(FieldSpec::builtin(Builtin::UserStack));
        self
    }

    /// Samples the hits of each probe for which its condition holds: on each CPU, the first and
    /// every `one_in`th after it have events. [`Missed::sampled_out`](crate::Missed::sampled_out) counts
    /// the others. Attaching fails if `one_in` is 0.
    #[must_use]
    pub fn sample(mut self, one_in: u32) -> Self {
        self.sampling.one_in = Some(one_in);
        self
    }

    /// Limits the events of each probe to the first `per_second` hits in each second of
    /// `CLOCK_MONOTONIC`. [`Missed::sampled_out`](crate::Missed::sampled_out) counts the others.
    /// Attaching fails if `per_second` is 0.
    #[must_use]
    pub fn rate(mut self, per_second: u32) -> Self {
        self.sampling.per_second = Some(per_second);
        self
    }

    /// Reads only stacks, for [`StackCounts`](crate::StackCounts): no arguments are read, and specs
    /// must not have fields.
    #[must_use]
    pub fn stacks_only(mut self) -> Self {
        self.fields.no_own = true;
        self
    }

    /// Sets how many calls are kept at one time, if each has at most a few strings. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn keep_calls(mut self, parts: u32) -> Self {
        self.call_parts = Some(parts);
        self
    }

    /// Sets the most probes whose tables are compiled into programs of their own. The others are read by the
    /// interpreter. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn specialize(mut self, most: usize) -> Self {
        self.specialize = Some(most);
        self
    }

    /// Sets the options of the pipe.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Forwards the log of the eBPF programs, down to this level, to the `log` crate. Off by
    /// default, where the verifier removes the logging code.
    #[must_use]
    pub fn log_level(mut self, level: log::Level) -> Self {
        self.log_level = Some(level);
        self
    }

    /// Gives up attaching as soon as `signal` is not 0: a signal handler may store its number there.
    /// What was attached until then is detached.
    #[must_use]
    pub fn interrupted_by(mut self, signal: Arc<AtomicUsize>) -> Self {
        self.interrupted = Interrupt(Some(signal));
        self
    }

    /// Loads the programs, opens the pipe, and attaches the probes.
    ///
    /// If a pattern's matches have to be attached one by one, and the process may not open enough
    /// descriptors, this raises its limit (`RLIMIT_NOFILE`).
    ///
    /// # Errors
    ///
    /// If any step fails. Nothing stays attached then.
    pub fn attach(self) -> Result<Tracer, TraceError> {
        self.attach_with(|_| {})
    }

    /// Like [`attach`](Self::attach), but reports to `progress`.
    ///
    /// # Errors
    ///
    /// As for [`attach`](Self::attach).
    pub fn attach_with(self, mut progress: impl FnMut(Attaching)) -> Result<Tracer, TraceError> {
        let open = |object: &mut Object, waiting: Option<&Waiting>| {
            let mut pipe = EvPipe::open(object.pipe_parts()?, &self.options)?;
            // Opened after the pipe, which watches for new CPUs by now, so that none is missed.
            let counters = self.open_counters(object)?;
            let counters = counters.map(|counters| Box::new(counters) as Box<dyn Prepare>);
            let beside: Vec<_> =
                counters.into_iter().chain(waiting.map(Waiting::for_new_cpus)).collect();
            if !beside.is_empty() {
                pipe.prepare_beside(Box::new(Beside(beside)));
            }
            let cpus = pipe.queues().iter().map(EvQueue::cpu).collect();
            Ok((Delivery::new(pipe, self.order, waiting)?, cpus))
        };
        let plan = |planner: &mut Planner, spec: &_| planner.plan(spec, &self.filter);
        let mut attached = self.attach_as(self.config()?, plan, open, &mut progress)?;
        let logger = attached.object.take_log().map(LogReader::start).transpose()?;
        Ok(Tracer { attached, sampling: self.sampling, logger })
    }

    /// Attaches the probes and counts in the kernel how often each is hit. No events are emitted,
    /// and only fields in conditions are read. Reports to `progress`.
    ///
    /// # Errors
    ///
    /// As for [`attach`](Self::attach), and if a probe has fields.
    pub fn count_with(self, progress: impl FnMut(Attaching)) -> Result<HitCounter, TraceError> {
        let fields = Fields { counters: Vec::new(), ..self.fields };
        let counted = Self { calls: false, fields, ..self };
        counted.aggregate(progress).map(HitCounter)
    }

    /// Attaches the probes and aggregates in the kernel how long [calls](Self::calls) take. No
    /// events are emitted, and only fields in conditions are read. Reports to `progress`.
    ///
    /// # Errors
    ///
    /// As for [`attach`](Self::attach), and if a probe has fields.
    pub fn time_with(self, progress: impl FnMut(Attaching)) -> Result<Stopwatch, TraceError> {
        Stopwatch::new(self.calls().aggregate(progress)?)
    }

    fn aggregate(self, mut progress: impl FnMut(Attaching)) -> Result<Aggregate, TraceError> {
        let config = Config { count_only: true, ..self.config()? };
        let plan = |planner: &mut Planner, spec: &_| planner.plan_count(spec, &self.filter);
        let open = |object: &mut Object, _: Option<&Waiting>| {
            self.open_counters(object)?;
            let cpus = cpus::online().map_err(TraceError::load)?;
            Ok((PerCpu::open(object, COUNTS)?, cpus))
        };
        self.attach_as(config, plan, open, &mut progress)
    }

    fn open_counters(&self, object: &Object) -> Result<Option<Counters>, TraceError> {
        let events = &self.fields.counters;
        (!events.is_empty()).then(|| Counters::open(events, object)).transpose()
    }

    /// Loads the programs, opens the output, and attaches the probes as `plan` plans them.
    fn attach_as<O>(
        &self,
        mut config: Config,
        plan: impl Fn(&mut Planner, &ProbeSpec) -> Result<Plan, TraceError>,
        open: impl FnOnce(&mut Object, Option<&Waiting>) -> Result<(O, Vec<u32>), TraceError>,
        progress: &mut dyn FnMut(Attaching),
    ) -> Result<Attached<O>, TraceError> {
        let fields = self.fields.clone();
        let host = Host::of_targets(self.targets(), self.program.clone());
        let mut planner = Planner { calls: self.calls, fields, host, ..Planner::default() };
        let mut selection =
            Selection::new(&self.specs, &self.choice, &mut planner, |planner, spec| {
                self.interrupted.check()?;
                plan(planner, spec)
            })?;
        if object::may_lack_memory(&selection.tables) {
            config.layout = planner.host.types.layout();
        }
        let has = |probe: &Probe, shape| probe.fields().any(|field| field.shape == shape);
        let has_user_stack = |probe: &Probe| has(probe, Shape::UserStack);
        config.leave_out_readers = self.is_held && selection.probes.iter().any(has_user_stack);
        if planner.lacks_callers {
            log::warn!(
                "the stacks at fentry: and fexit: lack the function's caller, because this kernel follows frame pointers; \
                 those at kprobe: have it"
            );
        }
        let mut object = Object::load(&config, &selection.tables)?;
        if let Some(cgroup) = &self.cgroup {
            only_in(&mut object, cgroup)?;
        }
        let mut waiting = Waiting::load(&mut object)?;
        let (output, cpus) = open(&mut object, waiting.as_ref())?;
        if let Some(waiting) = &mut waiting {
            waiting.begin(cpus)?;
        }
        let attacher = Attacher::new(&mut object, planner.host)
            .unsafe_returns(self.unsafe_returns)
            .no_limit(self.choice.no_limit);
        let links = self.attach_all(attacher, &mut selection, progress)?;
        let Selection { probes, groups, .. } = selection;
        let left_out = groups.into_iter().filter_map(|group| match group.reason {
            Reason::Matched(left_out) => Some(left_out),
            Reason::Named | Reason::Beside => None,
        });
        let left_out = left_out.collect();
        let (missed, skipped) = (Vec::new(), None);
        let mut attached =
            Attached { links, probes, left_out, output, waiting, object, missed, skipped };
        attached.count_from_now()?;
        if !self.is_held {
            attached.object.set_gate(true)?;
        }
        Ok(attached)
    }

    /// Configures the programs. Checks first that this process may load them.
    fn config(&self) -> Result<Config, TraceError> {
        if self.specs.is_empty() {
            return Err(TraceError::NoProbe);
        }
        let Sampling { one_in, per_second } = self.sampling;
        if one_in == Some(0) || per_second == Some(0) {
            return Err(TraceError::NoHits);
        }
        check_capabilities()?;
        namespaces::check_clock()?;
        let namespace = PidNamespace::own()?;
        self.threads.iter().try_for_each(|&tid| namespace.check(tid, TraceError::NestedThread))?;
        self.processes
            .iter()
            .try_for_each(|&pid| namespace.check(pid, TraceError::NestedProcess))?;
        let mut config = Config {
            namespace,
            tracer_pid: std::process::id(),
            sampling: self.sampling,
            log_level: self.log_level.map_or(0, |level| level as u8),
            in_cgroup: self.cgroup.is_some().into(),
            counters: self.fields.counters.len() as u8,
            specialize: self.specialize,
            ..Config::default()
        };
        if let Target::Process(pid) | Target::Descendants(pid) = self.target {
            let ProcessId { pid, namespace } = namespace.process(pid)?;
            config.target_namespace = namespace;
            match self.target {
                Target::Process(_) => config.only_pid = pid,
                _ => config.root_pid = pid,
            }
        }
        self.check_counters()?;
        if self.calls {
            self.check_calls()?;
            let parts = self.call_parts.unwrap_or_else(default_call_parts);
            let has = |side| self.specs.iter().any(|spec| hook::calls(spec) == Some(side));
            config.calls = if has(Side::Kernel) { parts } else { 0 };
            config.user_calls = if has(Side::Process) { parts } else { 0 };
        }
        Ok(config)
    }

    /// The processes whose view of the file system decides which programs and libraries are probed. Empty if all are traced.
    fn targets(&self) -> Vec<u32> {
        match self.target {
            Target::Process(pid) | Target::Descendants(pid) => vec![pid],
            Target::All if !self.processes.is_empty() => self.processes.clone(),
            Target::All => self.threads.last().copied().into_iter().collect(),
        }
    }

    fn check_counters(&self) -> Result<(), TraceError> {
        let events = &self.fields.counters;
        let is_twice = |(n, event): &(usize, &Event)| events[..*n].contains(event);
        match events.iter().enumerate().find(is_twice) {
            Some((_, event)) => Err(TraceError::CounterTwice(event.to_string())),
            None if events.len() > COUNTERS => Err(TraceError::TooManyCounters(events.len())),
            None if !events.is_empty() && !self.calls => Err(TraceError::CounterWithoutCalls),
            None => Ok(()),
        }
    }

    /// Checks that all probes can be calls.
    fn check_calls(&self) -> Result<(), TraceError> {
        let is_call = |spec: &&ProbeSpec| hook::calls(spec).is_some() && spec.offset() == 0;
        let other = self.specs.iter().find(|spec| !is_call(spec));
        other.map_or(Ok(()), |spec| Err(hook::no_call(spec)))
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
        links.in_background = self.detach_in_background;
        if matches!(self.target, Target::Descendants(_)) {
            // Followers come first, so that no fork is missed.
            links.followers.extend(attacher.follow()?);
        }
        let mut done = 0;
        let mut each = |more| {
            done += more;
            progress(Attaching { done, total: probes.len() });
            self.interrupted.check()
        };
        // Of several probes of a function, the kernel runs the last one first, and stacks need the return address.
        let replaces = |group: &&mut Group| {
            let probe = probes.get(group.numbers.start);
            probe.is_some_and(|one| hook::of(one.spec().provider()).replaces_return_address())
        };
        let mut groups = selection.groups.iter_mut().collect::<Vec<_>>();
        groups.sort_by_key(|group| !replaces(group));
        for Group { numbers, reason } in groups {
            let probes = &probes[numbers.clone()];
            match reason {
                Reason::Matched(left_out) => {
                    let first = numbers.start;
                    attacher.attach_matches(probes, first, &mut links, left_out, &mut each)?;
                }
                Reason::Named | Reason::Beside => {
                    for (number, probe) in numbers.clone().zip(probes) {
                        match attacher.attach(probe, number as u32) {
                            Ok(attached) => links.add(number, attached),
                            Err(why) if matches!(reason, Reason::Beside) => {
                                log::warn!("{} is not traced: {why}", probe.spec());
                            }
                            Err(why) => return Err(why),
                        }
                        each(1)?;
                    }
                }
            }
        }
        log::debug!("{} probes attached in {:?}", probes.len(), begun.elapsed());
        Ok(links)
    }
}

/// Prepares several things of each CPU that goes online.
#[derive(Debug)]
struct Beside(Vec<Box<dyn Prepare>>);

impl Prepare for Beside {
    fn prepare(&mut self, cpu: u32) {
        self.0.iter_mut().for_each(|each| each.prepare(cpu));
    }
}

/// Checks for the capabilities before anything else: the kernel's `EPERM` would not name the
/// missing one.
fn check_capabilities() -> Result<(), TraceError> {
    namespaces::check_user()?;
    let Ok(effective) = Capabilities::effective() else { return Ok(()) };
    match effective.missing_to_trace() {
        Capabilities::NONE => Ok(()),
        missing => Err(TraceError::Capability(missing)),
    }
}

/// The default number of parts of calls that are kept for each CPU, and the minimum in total: 3
/// MiB. The kernel reserves some of them for each CPU, where others may not find them.
const PARTS_PER_CPU: u32 = 1 << 9;
const LEAST_PARTS: u32 = 1 << 13;

fn default_call_parts() -> u32 {
    let cpus = cpus::possible().map_or(1, |cpus| cpus.len() as u32);
    cpus.saturating_mul(PARTS_PER_CPU).max(LEAST_PARTS)
}

fn only_in(object: &mut Object, cgroup: &Path) -> Result<(), TraceError> {
    let failed = |source| TraceError::NoCgroup { path: cgroup.to_owned(), source };
    let directory = File::open(cgroup).map_err(|error| failed(error.into()))?;
    object.only_in(directory.as_fd()).map_err(|error| failed(error.into()))
}

/// The progress of attaching probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attaching {
    /// The number of probes that are done.
    pub done: usize,
    /// The number of probes in total.
    pub total: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_no_hits_is_refused() {
        let builder = Tracer::builder().probe("do_sys_openat2".parse().unwrap());
        for builder in [builder.clone().sample(0), builder.rate(0)] {
            assert!(matches!(builder.attach(), Err(TraceError::NoHits)));
        }
    }
}
