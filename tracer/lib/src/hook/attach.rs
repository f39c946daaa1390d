//! Attaching programs to hooks. The matches of a pattern are attached with few links where the kernel
//! can (kprobe.multi, 5.18+), else one by one.

use super::expand::{LeftOut, MOST_ONE_BY_ONE};
use super::{Bulk, Host};
use crate::error::{Result, TraceError};
use crate::kernel::features;
use crate::object::{FOLLOW_FREE, FOLLOW_NEW, Object, Side};
use crate::resolve::probe::Probe;
use crate::spec::ProbeSpec;
use probe_sys::bpf;
use probe_sys::perf_event::PerfEvent;
use probe_sys::process::Keeper;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// The part of a probe that a program is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole probe.
    Whole,
    /// The entry of a call.
    CallEntry,
    /// The return of a call.
    CallReturn,
}

impl Part {
    /// The prefix of the programs for this part of a function's probe, and whether they run at the
    /// return. `returns` says where a whole probe is. Uprobes share the programs of kprobes, since both
    /// get registers.
    pub(super) fn of_function(self, returns: bool) -> (&'static str, bool) {
        match self {
            Self::Whole if returns => ("kretprobe", true),
            Self::Whole => ("kprobe", false),
            Self::CallEntry => ("call_entry", false),
            Self::CallReturn => ("call_return", true),
        }
    }
}

/// Keeps a program attached. Dropping it detaches the program.
#[derive(Debug)]
pub(crate) enum Link {
    /// A BPF link, the event that it attaches the program to, and the program if it serves this hook
    /// alone.
    PerfEvent { link: OwnedFd, event: PerfEvent, own: Option<OwnedFd> },
    /// An event that holds the program itself: kernels before BPF links for perf events.
    LegacyPerfEvent { event: PerfEvent },
    /// A program that serves this hook alone: a raw tracepoint or a trampoline.
    Program { link: OwnedFd, program: OwnedFd },
    /// Many functions with one link.
    Multi { link: OwnedFd },
}

impl Link {
    /// The number of hits that the kernel did not pass on, if the kernel counts them.
    pub(crate) fn missed(&self) -> Option<u64> {
        match self {
            Self::PerfEvent { link, own, .. } => {
                let of_hook = bpf::functions_missed(link.as_fd()).ok().flatten();
                let own = own.as_ref().filter(|_| self.counts_skipped() == Some(true));
                let skipped =
                    own.and_then(|program| bpf::recursion_misses(program.as_fd()).ok()?);
                [of_hook, skipped].into_iter().flatten().reduce(|one, other| one + other)
            }
            Self::Program { program, .. } => bpf::recursion_misses(program.as_fd()).ok().flatten(),
            Self::Multi { link } => bpf::functions_missed(link.as_fd()).ok().flatten(),
            Self::LegacyPerfEvent { .. } => None,
        }
    }

    /// All descriptors that keep the program attached, or loaded.
    fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let all = match self {
            Self::PerfEvent { link, event, own } => {
                let own = own.as_ref().map(AsRawFd::as_raw_fd);
                [Some(link.as_raw_fd()), Some(event.as_fd().as_raw_fd()), own]
            }
            Self::LegacyPerfEvent { event } => [Some(event.as_fd().as_raw_fd()), None, None],
            Self::Program { link, program } => {
                [Some(link.as_raw_fd()), Some(program.as_raw_fd()), None]
            }
            Self::Multi { link } => [Some(link.as_raw_fd()), None, None],
        };
        all.into_iter().flatten()
    }

    /// Whether the kernel counts the hits of this link that it skips because another program runs on the
    /// CPU. `None` if it skips none.
    fn counts_skipped(&self) -> Option<bool> {
        match self {
            Self::PerfEvent { link, .. } | Self::Multi { link } => {
                Some(bpf::counts_skipped_hits(link.as_fd()).unwrap_or(false))
            }
            Self::LegacyPerfEvent { .. } => Some(false),
            // Their programs are skipped only while they run themselves, and the kernel counts that.
            Self::Program { .. } => None,
        }
    }
}

/// Functions that were attached at once, as far as the kernel allows.
#[derive(Debug, Default)]
pub(crate) struct Together {
    pub(super) links: Vec<Link>,
    /// The numbers of the functions that remain to be attached one by one.
    pub(super) others: Vec<usize>,
    /// The kernel's reason, if it refused some of them.
    pub(super) refusal: Option<io::Error>,
}

impl Together {
    /// Adds the link of the functions of these numbers, if there are any, or the kernel's reason to refuse it.
    pub(super) fn add(
        &mut self,
        numbers: impl ExactSizeIterator<Item = u64>,
        link: io::Result<OwnedFd>,
    ) {
        match link {
            _ if numbers.len() == 0 => {}
            Ok(link) => self.links.push(Link::Multi { link }),
            Err(error) => {
                self.others.extend(numbers.map(|number| number as usize));
                self.refusal.get_or_insert(error);
            }
        }
    }
}

/// Everything that is attached.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// Each with its probe's number, or `None` if the link serves several probes. Dropped first, so
    /// that no probe runs without its followers.
    pub(super) probes: Vec<(Option<usize>, Link)>,
    /// The links of the programs that follow the descendants of a process.
    pub(crate) followers: Vec<Link>,
    /// Whether another process detaches them if there are many.
    pub(crate) in_background: bool,
}

impl Links {
    /// Adds the links of a probe.
    pub(crate) fn add(&mut self, number: usize, links: Vec<Link>) {
        self.probes.extend(links.into_iter().map(|link| (Some(number), link)));
    }

    /// Whether the kernel counts the hits of all these links that it skips because another program runs
    /// on the CPU.
    pub(crate) fn count_skipped(&self) -> bool {
        let mut links = self.probes.iter().filter_map(|(_, link)| link.counts_skipped());
        // All are on the same kernel.
        links.next().unwrap_or(true)
    }

    /// For each of `count` probes, the number of hits that the kernel did not pass on, if it counts
    /// them. A call's return is passed on only if its entry was.
    pub(crate) fn missed(&self, count: usize) -> Vec<Option<u64>> {
        let mut missed = vec![None; count];
        for (number, link) in &self.probes {
            if let Some(most) = number.and_then(|number| missed.get_mut(number)) {
                *most = link.missed().max(*most);
            }
        }
        missed
    }

    /// The number of hits of links that serve several probes that the kernel did not pass on.
    pub(crate) fn missed_together(&self) -> u64 {
        let shared = self.probes.iter().filter(|(number, _)| number.is_none());
        shared.filter_map(|(_, link)| link.missed()).sum()
    }
}

/// The number of threads that detach at the same time. With more links, another process detaches them on request.
const DETACHING: usize = 32;

impl Drop for Links {
    /// Detaches everything. For each link, the kernel waits until no program that was attached
    /// there still runs. Threads that wait at the same time share one such wait.
    fn drop(&mut self) {
        let links = std::mem::take(&mut self.probes);
        let (count, begun) = (links.len(), Instant::now());
        let mut _keeper = None;
        if self.in_background && count > DETACHING {
            let descriptors = links.iter().flat_map(|(_, link)| link.descriptors());
            match Keeper::start(descriptors, c"probe-detach") {
                Ok(keeper) => _keeper = Some(keeper),
                Err(error) => log::debug!("no process to detach probes: {error}"),
            }
        }
        let more = links.len().min(DETACHING).saturating_sub(1);
        let links = Mutex::new(links);
        let next = || links.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let detach = || while next().is_some() {};
        thread::scope(|scope| {
            for _ in 0..more {
                // With fewer threads, detaching only takes longer.
                if thread::Builder::new().spawn_scoped(scope, detach).is_err() {
                    break;
                }
            }
            detach();
        });
        if count > 0 {
            log::debug!("{count} links of probes detached in {:?}", begun.elapsed());
        }
    }
}

/// Attaches probes and loads the programs that they need.
#[derive(Debug)]
pub(crate) struct Attacher<'o> {
    pub(super) object: &'o mut Object,
    pub(super) host: Host,
    /// Types of modules, loaded into the kernel's format, by module name.
    pub(super) module_types: HashMap<String, OwnedFd>,
    cookies: bool,
    /// Start addresses of functions, for the modules that were looked up, or of all functions.
    pub(super) addresses: HashMap<Option<String>, HashMap<String, Vec<u64>>>,
    /// Whether to probe returns even of functions where that crashes the program.
    pub(super) unsafe_returns: bool,
    /// Whether a pattern may match many probes.
    no_limit: bool,
}

impl<'o> Attacher<'o> {
    pub(crate) fn new(object: &'o mut Object, host: Host) -> Self {
        Self {
            object,
            host,
            module_types: HashMap::new(),
            cookies: features::has_cookies(),
            addresses: HashMap::new(),
            unsafe_returns: false,
            no_limit: false,
        }
    }

    /// Chooses whether a pattern may match many probes.
    pub(crate) fn no_limit(self, no_limit: bool) -> Self {
        Self { no_limit, ..self }
    }

    /// Chooses whether to probe returns even of functions where that crashes the program.
    pub(crate) fn unsafe_returns(self, unsafe_returns: bool) -> Self {
        Self { unsafe_returns, ..self }
    }

    /// Attaches the `number`th probe. Returns one link, or those of a call's entry and return.
    pub(crate) fn attach(&mut self, probe: &Probe, number: u32) -> Result<Vec<Link>> {
        let spec = probe.spec();
        let hook = super::of(spec.provider());
        if !probe.is_call() {
            return Ok(vec![hook.attach(self, spec, Part::Whole, number)?]);
        }
        if super::calls(spec).is_none() {
            return Err(super::no_call(spec));
        }
        // The return comes first: otherwise the entry would keep calls whose return has no probe.
        let returned = hook.attach(self, spec, Part::CallReturn, number)?;
        Ok(vec![hook.attach(self, spec, Part::CallEntry, number)?, returned])
    }

    /// Attaches the matches of a pattern, numbered from `first` on. Counts those that cannot be attached
    /// individually in `left_out`. Calls `each` with the number of probes that were
    /// processed since its last call, and gives up when it fails.
    pub(crate) fn attach_matches(
        &mut self,
        probes: &[Probe],
        first: usize,
        links: &mut Links,
        left_out: &mut LeftOut,
        each: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let Some(spec) = probes.first().map(Probe::spec) else { return Err(TraceError::NoProbe) };
        let hook = super::of(spec.provider());
        // Entry and return are matched by the stack pointer, which differs where kprobe.multi
        // reports the return.
        let is_call = probes.iter().any(Probe::is_call);
        let numbers: Vec<_> = if !is_call && hook.bulk() == Bulk::AtOnce {
            let Together { links: attached, others, refusal } =
                hook.attach_at_once(self, probes, first)?;
            if let Some(source) = refusal {
                let (spec, count, most) = (left_out.pattern.clone(), others.len(), MOST_ONE_BY_ONE);
                log::debug!("{spec}: {count} functions are attached one by one: {source}");
                if count > most && !self.no_limit {
                    return Err(TraceError::RefusedAtOnce { spec, count, most, source });
                }
            }
            each(probes.len() - others.len())?;
            links.probes.extend(attached.into_iter().map(|link| (None, link)));
            others
        } else {
            (first..first + probes.len()).collect()
        };
        make_room_for_descriptors(4 * numbers.len() as u64);
        let (mut refused, mut refusal) = (0, None);
        for number in numbers {
            match self.attach(&probes[number - first], number as u32) {
                Ok(attached) => links.add(number, attached),
                Err(why) => match left_out.count_of(&why) {
                    Some(count) => {
                        *count += 1;
                        refused += 1;
                        refusal.get_or_insert(why);
                    }
                    None => return Err(why),
                },
            }
            each(1)?;
        }
        match refusal {
            Some(why) if refused == probes.len() => Err(why),
            _ => Ok(()),
        }
    }

    /// Attaches the programs that follow the descendants of a process.
    pub(crate) fn follow(&mut self) -> Result<[Link; 2]> {
        let mut attach = |program, tracepoint| {
            self.object
                .program(program)?
                .try_clone_to_owned()
                .and_then(|program| raw_tracepoint(tracepoint, program))
                .map_err(TraceError::Follow)
        };
        Ok([attach(FOLLOW_NEW, c"task_newtask")?, attach(FOLLOW_FREE, c"sched_process_free")?])
    }

    /// Attaches one of the programs with this prefix, which are for a part of the probe, to an event.
    pub(super) fn perf_event(
        &mut self,
        spec: &ProbeSpec,
        event: PerfEvent,
        side: Side,
        (part, programs): (Part, &str),
        number: u32,
    ) -> Result<Link> {
        let failed = |source| TraceError::Attach { spec: spec.clone(), source };
        let by_number = format!("{programs}_by_number");
        // What is read at a call's return is interpreted.
        let is_compiled = part != Part::CallReturn;
        let own = |object: &mut Object| match is_compiled {
            true => object.program_of(side, &by_number, number),
            false => object.interpreted(side, &by_number, number),
        };
        if !self.cookies {
            // From here on, the event holds the program.
            let others = self.object.specialized_count();
            let program = own(self.object)?;
            let is_specialized = self.object.specialized_count() > others;
            match event.set_bpf(program.as_fd()) {
                Err(error) if is_specialized => {
                    self.object.not_attached();
                    log::debug!("{spec} is not specialized: {error}");
                    let program = self.object.interpreted(side, &by_number, number)?;
                    event.set_bpf(program.as_fd()).map_err(failed)?;
                }
                result => result.map_err(failed)?,
            }
            return Ok(Link::LegacyPerfEvent { event });
        }
        if is_compiled && let Some(program) = self.object.specialized(side, &by_number, number)? {
            match bpf::link_perf_event(program.as_fd(), event.as_fd(), number.into()) {
                Ok(link) => return Ok(Link::PerfEvent { link, event, own: Some(program) }),
                Err(error) => {
                    self.object.not_attached();
                    log::debug!("{spec} is not specialized: {error}");
                }
            }
        }
        let program = self.object.program_on(side, &format!("{programs}_by_cookie"))?;
        let (link, own) = match bpf::link_perf_event(program, event.as_fd(), number.into()) {
            // A tracepoint accepts each program only once.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let program = own(self.object)?;
                let link = bpf::link_perf_event(program.as_fd(), event.as_fd(), number.into());
                (link, Some(program))
            }
            link => (link, None),
        };
        link.map(|link| Link::PerfEvent { link, event, own }).map_err(failed)
    }
}

pub(super) fn raw_tracepoint(name: &CStr, program: OwnedFd) -> io::Result<Link> {
    let link = bpf::open_raw_tracepoint(name, program.as_fd())?;
    Ok(Link::Program { link, program })
}

pub(super) fn c_name(spec: &ProbeSpec) -> Result<CString> {
    CString::new(spec.name())
        .map_err(|error| TraceError::Attach { spec: spec.clone(), source: error.into() })
}

/// Raises this process's limit of descriptors as far as allowed, if this many more might not fit.
fn make_room_for_descriptors(count: u64) {
    /// What the rest of a trace needs on most machines.
    const OTHERS: u64 = 512;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < count + OTHERS) {
        // If the limit cannot be raised, the kernel reports when there are too many.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}
