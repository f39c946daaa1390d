//! Attaching programs to hooks.

mod kprobe;
mod multi;
mod trampoline;
mod uprobe;

use super::binary::Binary;
use super::error::TraceError;
use super::features;
use super::kernel_types::KernelTypes;
use super::object::{Object, Side};
use super::probe::Probe;
use super::spec::{ProbeSpec, Provider};
use super::symbols::{self, Lookup};
use super::syscall;
use super::tracefs::Tracefs;
use crate::sys::bpf;
use crate::sys::perf_event::PerfEvent;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// What keeps a program attached. To drop it detaches.
#[derive(Debug)]
pub(super) enum Link {
    /// A link of the kernel, and the event it leads to.
    PerfEvent { link: OwnedFd, _event: PerfEvent },
    /// An event that the program was given to, before there were links.
    LegacyPerfEvent { _event: PerfEvent },
    /// A program that has only this hook: a raw tracepoint, or a trampoline.
    Program { _link: OwnedFd, program: OwnedFd },
    /// Many functions at once.
    Multi { _link: OwnedFd },
}

impl Link {
    /// How many hits the kernel has not passed on, if it tells.
    pub(super) fn missed(&self) -> Option<u64> {
        match self {
            Self::PerfEvent { link, .. } => bpf::kprobe_missed(link).ok().flatten(),
            Self::Program { program, .. } => bpf::recursion_misses(program.as_fd()).ok().flatten(),
            Self::LegacyPerfEvent { .. } | Self::Multi { .. } => None,
        }
    }
}

/// All that is attached.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// With the number of the probe, where a link is of one alone. Dropped first: nobody is followed in
    /// vain meanwhile.
    probes: Vec<(Option<usize>, Link)>,
    /// Those of the programs that follow the descendants of a process.
    pub(super) followers: Vec<Link>,
}

impl Links {
    /// Adds those of the probe of this number.
    pub(super) fn add(&mut self, number: usize, links: Vec<Link>) {
        self.probes.extend(links.into_iter().map(|link| (Some(number), link)));
    }

    /// How many hits of each of `count` probes the kernel has not passed on, if it tells. Of a call, it has
    /// passed on the return only if it has passed on the entry.
    pub(super) fn missed(&self, count: usize) -> Vec<Option<u64>> {
        let mut missed = vec![None; count];
        for (number, link) in &self.probes {
            if let Some(most) = number.and_then(|number| missed.get_mut(number)) {
                *most = link.missed().max(*most);
            }
        }
        missed
    }
}

/// So many wait at a time for the kernel to have detached one.
const DETACHING: usize = 32;

impl Drop for Links {
    /// Detaches all. The kernel waits, for each, until no program runs that was attached there; those who
    /// wait at the same time wait for the same.
    fn drop(&mut self) {
        let links = std::mem::take(&mut self.probes);
        let (count, begun) = (links.len(), Instant::now());
        let more = links.len().min(DETACHING).saturating_sub(1);
        let links = Mutex::new(links);
        let next = || links.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let detach = || while next().is_some() {};
        thread::scope(|scope| {
            for _ in 0..more {
                // Without threads, it takes longer.
                if thread::Builder::new().spawn_scoped(scope, detach).is_err() {
                    break;
                }
            }
            detach();
        });
        if count > 0 {
            log::debug!("{count} links of probes gone in {:?}", begun.elapsed());
        }
    }
}

/// Attaches probes, and the programs that they need.
#[derive(Debug)]
pub(super) struct Attacher<'o> {
    object: &'o mut Object,
    tracefs: Option<Tracefs>,
    types: KernelTypes,
    /// Those of modules, as the kernel takes them, by the modules' names.
    module_types: HashMap<String, OwnedFd>,
    cookies: bool,
    /// Where functions of modules begin, for those modules that were asked for.
    addresses: HashMap<String, HashMap<String, Vec<u64>>>,
    /// Programs and libraries, by the names that they were given.
    binaries: HashMap<String, Binary>,
}

impl<'o> Attacher<'o> {
    pub(super) fn new(
        object: &'o mut Object,
        tracefs: Option<Tracefs>,
        types: KernelTypes,
    ) -> Self {
        Self {
            object,
            tracefs,
            types,
            module_types: HashMap::new(),
            cookies: features::has_cookies(),
            addresses: HashMap::new(),
            binaries: HashMap::new(),
        }
    }

    /// Attaches the `number`th probe: one link, or those of a call's entry and its return, to be dropped in
    /// this order.
    pub(super) fn attach(&mut self, probe: &Probe, number: u32) -> Result<Vec<Link>, TraceError> {
        let spec = match probe.spec().provider() {
            Provider::Ksyscall => &syscall::function(probe.spec()),
            _ => probe.spec(),
        };
        let link = match spec.provider() {
            Provider::Kprobe if probe.is_call() => {
                // The return first: no call is kept whose return nobody waits for.
                let returned = self.kprobe_as(spec, "call_return", true, number)?;
                return Ok(vec![self.kprobe_as(spec, "call_entry", false, number)?, returned]);
            }
            Provider::Uprobe if probe.is_call() => return self.uprobe_call(spec, number),
            Provider::Kprobe | Provider::Kretprobe => self.kprobe(spec, number),
            Provider::Tracepoint => self.tracepoint(spec, number),
            Provider::RawTracepoint => self.raw_tracepoint(spec, number),
            Provider::Fentry | Provider::Fexit => self.trampoline(spec, number),
            Provider::Uprobe | Provider::Uretprobe => self.uprobe(spec, number),
            // It is a function by now.
            Provider::Ksyscall => Err(TraceError::NoProbe),
        };
        Ok(vec![link?])
    }

    /// Attaches the programs that follow the descendants of a process.
    pub(super) fn follow(&mut self) -> Result<[Link; 2], TraceError> {
        let mut attach = |program, tracepoint| {
            self.object
                .program(program)?
                .try_clone_to_owned()
                .and_then(|program| raw_tracepoint(tracepoint, program))
                .map_err(|source| TraceError::Follow { source })
        };
        Ok([
            attach("follow_fork", c"sched_process_fork")?,
            attach("follow_free", c"sched_process_free")?,
        ])
    }

    fn tracepoint(&mut self, spec: &ProbeSpec, number: u32) -> Result<Link, TraceError> {
        let id = Tracefs::opened(&mut self.tracefs)?.id(spec)?;
        let event = PerfEvent::tracepoint(id)
            .map_err(|source| TraceError::Attach { spec: spec.clone(), source })?;
        self.perf_event(spec, event, "tracepoint", number)
    }

    fn raw_tracepoint(&mut self, spec: &ProbeSpec, number: u32) -> Result<Link, TraceError> {
        let program = self.object.program_of(Side::Kernel, "raw_tracepoint_by_number", number)?;
        match raw_tracepoint(&c_name(spec)?, program) {
            Ok(link) => Ok(link),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                let near = Tracefs::opened(&mut self.tracefs)?.near_raw(spec.name());
                Err(TraceError::UnknownTracepoint { spec: spec.clone(), near })
            }
            Err(source) => Err(TraceError::Attach { spec: spec.clone(), source }),
        }
    }

    /// Attaches the program for hooks of this sort to an event.
    fn perf_event(
        &mut self,
        spec: &ProbeSpec,
        event: PerfEvent,
        sort: &str,
        number: u32,
    ) -> Result<Link, TraceError> {
        let side = match spec.provider() {
            Provider::Uprobe | Provider::Uretprobe => Side::Process,
            _ => Side::Kernel,
        };
        let failed = |source| TraceError::Attach { spec: spec.clone(), source };
        let by_number = format!("{sort}_by_number");
        if !self.cookies {
            // The event has the program from then on.
            let program = self.object.program_of(side, &by_number, number)?;
            return legacy(program.as_fd(), event).map_err(failed);
        }
        let program = self.object.program_on(side, &format!("{sort}_by_cookie"))?;
        let link = match bpf::link_perf_event(program, event.as_fd(), number.into()) {
            // A tracepoint takes the same program but once.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let program = self.object.program_of(side, &by_number, number)?;
                bpf::link_perf_event(program.as_fd(), event.as_fd(), number.into())
            }
            link => link,
        };
        link.map(|link| Link::PerfEvent { link, _event: event }).map_err(failed)
    }
}

fn raw_tracepoint(name: &CStr, program: OwnedFd) -> io::Result<Link> {
    let link = bpf::open_raw_tracepoint(name, program.as_fd())?;
    Ok(Link::Program { _link: link, program })
}

fn legacy(program: BorrowedFd<'_>, event: PerfEvent) -> io::Result<Link> {
    event.set_bpf(program)?;
    event.enable()?;
    Ok(Link::LegacyPerfEvent { _event: event })
}

fn c_name(spec: &ProbeSpec) -> Result<CString, TraceError> {
    CString::new(spec.name())
        .map_err(|error| TraceError::Attach { spec: spec.clone(), source: error.into() })
}

/// Why a function cannot be probed, of which the symbol table knows this.
pub(super) fn unprobeable(spec: &ProbeSpec, found: Lookup) -> TraceError {
    let spec = spec.clone();
    match found.count {
        0 => TraceError::UnknownFunction { spec, near: found.near },
        _ if symbols::is_blacklisted(spec.name()) => TraceError::Blacklisted { spec },
        _ if spec.offset() != 0 => TraceError::NoInstruction { spec },
        1 => TraceError::Blacklisted { spec },
        count => TraceError::Ambiguous { spec, count },
    }
}
