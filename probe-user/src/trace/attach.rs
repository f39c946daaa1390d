//! Attaching programs to hooks.

use super::error::TraceError;
use super::features;
use super::object::{Object, SLOTS};
use super::spec::{ProbeSpec, Provider};
use super::symbols;
use super::tracefs::Tracefs;
use crate::sys::bpf;
use crate::sys::perf_event::PerfEvent;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The tracepoint whose hits are records of their own kind.
pub(super) const EXEC: (&str, &str) = ("sched", "sched_process_exec");

/// What keeps a program attached. To drop it detaches.
#[derive(Debug)]
pub(super) enum Link {
    /// A link of the kernel, and the event it leads to.
    PerfEvent { _link: OwnedFd, _event: PerfEvent },
    /// An event that the program was given to, before there were links.
    LegacyPerfEvent { _event: PerfEvent },
    /// A raw tracepoint.
    RawTracepoint { _link: OwnedFd },
}

/// Attaches probes, and the programs that they need.
#[derive(Debug)]
pub(super) struct Attacher<'o> {
    object: &'o mut Object,
    tracefs: Option<Tracefs>,
    cookies: bool,
}

impl<'o> Attacher<'o> {
    pub(super) fn new(object: &'o mut Object, tracefs: Option<Tracefs>) -> Self {
        Self { object, tracefs, cookies: features::has_cookies() }
    }

    /// Checks that the kernel can tell the probes apart.
    pub(super) fn check(&self, specs: &[ProbeSpec]) -> Result<(), TraceError> {
        let needs_slot = |spec: &ProbeSpec| match spec.provider() {
            Provider::RawTracepoint => true,
            _ => !self.cookies,
        };
        if specs.len() > SLOTS && specs[SLOTS..].iter().any(needs_slot) {
            return Err(TraceError::TooManyProbes { count: specs.len(), most: SLOTS });
        }
        Ok(())
    }

    /// Attaches the `number`th probe.
    pub(super) fn attach(&mut self, spec: &ProbeSpec, number: u32) -> Result<Link, TraceError> {
        match spec.provider() {
            Provider::Kprobe => self.kprobe(spec, number),
            Provider::Tracepoint => self.tracepoint(spec, number),
            Provider::RawTracepoint => self.raw_tracepoint(spec, number),
        }
    }

    /// Attaches the programs that follow the descendants of a process.
    pub(super) fn follow(&mut self) -> Result<[Link; 2], TraceError> {
        let mut attach = |program, tracepoint| {
            let program = self.object.program(program)?;
            bpf::open_raw_tracepoint(tracepoint, program)
                .map(|link| Link::RawTracepoint { _link: link })
                .map_err(|source| TraceError::Follow { source })
        };
        Ok([
            attach("follow_fork", c"sched_process_fork")?,
            attach("follow_free", c"sched_process_free")?,
        ])
    }

    fn kprobe(&mut self, spec: &ProbeSpec, number: u32) -> Result<Link, TraceError> {
        let pmu =
            features::kprobe_pmu().ok_or_else(|| TraceError::NoKprobes { spec: spec.clone() })?;
        let event = PerfEvent::kprobe(pmu, &c_name(spec)?, 0)
            .map_err(|error| why_no_kprobe(spec, error))?;
        self.perf_event(spec, event, "kprobe", number)
    }

    fn tracepoint(&mut self, spec: &ProbeSpec, number: u32) -> Result<Link, TraceError> {
        let id = self.tracefs()?.id(spec)?;
        let failed = |source| TraceError::Attach { spec: spec.clone(), source };
        let event = PerfEvent::tracepoint(id).map_err(failed)?;
        if spec.tracepoint() == Some(EXEC) {
            // It knows its number by a global.
            let program = self.object.program("process_exec")?;
            return legacy(program, event).map_err(failed);
        }
        self.perf_event(spec, event, "tracepoint", number)
    }

    fn raw_tracepoint(&mut self, spec: &ProbeSpec, number: u32) -> Result<Link, TraceError> {
        let program = self.object.program(&format!("raw_tracepoint_slot_{number}"))?;
        match bpf::open_raw_tracepoint(&c_name(spec)?, program) {
            Ok(link) => Ok(Link::RawTracepoint { _link: link }),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                let near = self.tracefs()?.near_raw(spec.name());
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
        let link = if self.cookies {
            let program = self.object.program(&format!("{sort}_by_cookie"))?;
            bpf::link_perf_event(program, event.as_fd(), u64::from(number))
                .map(|link| Link::PerfEvent { _link: link, _event: event })
        } else {
            legacy(self.object.program(&format!("{sort}_slot_{number}"))?, event)
        };
        link.map_err(|source| TraceError::Attach { spec: spec.clone(), source })
    }

    fn tracefs(&mut self) -> Result<&Tracefs, TraceError> {
        let tracefs = match self.tracefs.take() {
            Some(tracefs) => tracefs,
            None => Tracefs::open()?,
        };
        Ok(self.tracefs.insert(tracefs))
    }
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

/// The kernel's errno says little: what it means, the symbol table tells.
fn why_no_kprobe(spec: &ProbeSpec, source: io::Error) -> TraceError {
    let spec = spec.clone();
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::EADDRNOTAVAIL | libc::EINVAL | libc::EOPNOTSUPP) => {
            let found = symbols::look_up(spec.name());
            match found.count {
                0 => TraceError::UnknownFunction { spec, near: found.near },
                1 => TraceError::Blacklisted { spec },
                count if !symbols::is_blacklisted(spec.name()) => {
                    TraceError::Ambiguous { spec, count }
                }
                _ => TraceError::Blacklisted { spec },
            }
        }
        _ => TraceError::Attach { spec, source },
    }
}
