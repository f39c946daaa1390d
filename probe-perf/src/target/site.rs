//! Where one event of the kernel is opened, and opening events at each site of a target.

use super::Target;
use crate::error::PerfError;
use crate::event::Event;
use probe_sys::perf_event::{Attr, Flags, PerfEvent};
use std::fmt;
use std::io;
use std::os::fd::AsFd;

/// Where one event of the kernel is opened: a thread, a CPU, or a thread on a CPU. These are the arguments of
/// `perf_event_open(2)` beside the attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    /// The thread; `None` for all threads.
    pub(crate) thread: Option<u32>,
    /// The CPU; `None` for all CPUs.
    pub(crate) cpu: Option<u32>,
    /// Whether threads and processes that the thread creates inherit the event.
    pub(crate) inherits: bool,
    /// Whether the CPU is offline, so that failing to open the event is not an error.
    pub(crate) is_offline: bool,
}

impl Site {
    /// A thread, on any CPU.
    pub(crate) fn of_thread(thread: u32) -> Self {
        Self { thread: Some(thread), ..Self::default() }
    }

    /// A CPU, whatever it runs.
    pub(crate) fn on_cpu(cpu: u32) -> Self {
        Self { cpu: Some(cpu), ..Self::default() }
    }

    /// This site, but only on one CPU, which may be offline.
    pub(crate) fn on(self, (cpu, is_offline): (u32, bool)) -> Self {
        Self { cpu: Some(cpu), is_offline, ..self }
    }

    /// The `pid` argument of the call.
    pub(crate) fn pid(&self) -> libc::pid_t {
        self.thread.map_or(-1, |thread| thread.cast_signed())
    }

    /// The `cpu` argument of the call.
    pub(crate) fn cpu(&self) -> libc::c_int {
        self.cpu.map_or(-1, u32::cast_signed)
    }

    /// The site of the ring that an event here writes to: its CPU, or its thread.
    pub(crate) fn of_ring(&self) -> Self {
        self.cpu.map_or(Self { thread: self.thread, ..Self::default() }, Self::on_cpu)
    }

    /// The attributes of an event here.
    pub(crate) fn attr(&self, attr: &Attr) -> Attr {
        let mut flags = Flags::from_bits_retain(attr.flags);
        if self.inherits {
            flags |= Flags::INHERIT;
        }
        if flags.intersects(Flags::CGROUP | Flags::NAMESPACES) {
            // For most records, the kernel skips events of CPUs that have none of the flags it checks for (`is_sb_event`).
            // These two are not among them. COMM_EXEC is, and adds no records.
            flags |= Flags::COMM_EXEC;
        }
        Attr { flags: flags.bits(), ..attr.clone() }
    }

    /// Opens an event here. `name` is for the error.
    pub(crate) fn open(&self, attr: &Attr, name: &str) -> Result<PerfEvent, PerfError> {
        let opened = self.attr(attr).open_in(self.pid(), self.cpu(), None);
        opened.map_err(|cause| self.cannot_open(name, cause))
    }

    /// The error of failing to open an event here.
    pub(crate) fn cannot_open(&self, event: &str, cause: io::Error) -> PerfError {
        PerfError::Open { event: format!("{event} {self}"), cause }
    }

    /// The error of a call on an event here.
    pub(crate) fn cannot(&self, what: &'static str, event: &str, cause: io::Error) -> PerfError {
        PerfError::Call { what, event: format!("{event} {self}"), cause }
    }

    /// Makes an event write into the ring of the first event here.
    pub(crate) fn share_ring(
        &self,
        event: &PerfEvent,
        first: &PerfEvent,
        name: &Event,
    ) -> Result<(), PerfError> {
        let shared = event.set_output(first.as_fd());
        shared.map_err(|cause| self.cannot("redirect the output of", &name.described(), cause))
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.thread, self.cpu) {
            (Some(thread), Some(cpu)) => write!(f, "for thread {thread} on CPU {cpu}"),
            (Some(thread), None) => write!(f, "for thread {thread}"),
            (None, Some(cpu)) => write!(f, "on CPU {cpu}"),
            (None, None) => f.write_str("for all threads"),
        }
    }
}

/// What is open at each site of a target.
#[derive(Debug)]
pub(crate) struct OpenSites<T> {
    /// The event or the group, for errors.
    name: String,
    pub(crate) each: Vec<(Site, T)>,
}

impl<T> OpenSites<T> {
    /// Calls `open` at each site where these events can be observed. Skips threads that have ended meanwhile.
    pub(crate) fn open(
        name: String,
        target: &Target,
        events: &[Event],
        open: impl Fn(&Site) -> Result<T, PerfError>,
    ) -> Result<Self, PerfError> {
        Ok(Self { name, each: open_each(target.sites_of(events, false)?, |site| site, open)? })
    }

    /// Makes a call at each site. `what` is its verb, for the error.
    pub(crate) fn call<R>(
        &self,
        what: &'static str,
        call: impl Fn(&Site, &T) -> io::Result<R>,
    ) -> impl Iterator<Item = Result<R, PerfError>> {
        self.each.iter().map(move |(site, opened)| {
            call(site, opened).map_err(|cause| site.cannot(what, &self.name, cause))
        })
    }
}

/// Calls `open` with each item, which is or has a site. Skips threads that have ended meanwhile, and CPUs that are
/// offline if opening fails there, unless a limit or a privilege is why. Fails if nothing could be opened.
pub(crate) fn open_each<I, T>(
    each: impl IntoIterator<Item = I>,
    site_of: impl Fn(&I) -> &Site,
    mut open: impl FnMut(&I) -> Result<T, PerfError>,
) -> Result<Vec<(I, T)>, PerfError> {
    let mut all = Vec::new();
    let mut skipped = None;
    for one in each {
        match open(&one) {
            Ok(event) => all.push((one, event)),
            Err(error)
                if error.is_thread_ended() || site_of(&one).is_offline && !error.is_limit() =>
            {
                skipped = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match skipped {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_cpus_have_a_flag_for_which_the_kernel_checks() {
        let flags = |flags: Flags| {
            let attr = Attr { flags: flags.bits(), ..Attr::default() };
            Flags::from_bits_retain(Site::on_cpu(0).attr(&attr).flags)
        };
        for rare in [Flags::CGROUP, Flags::NAMESPACES] {
            assert_eq!(flags(rare), rare | Flags::COMM_EXEC);
        }
        assert_eq!(flags(Flags::TASK), Flags::TASK);
    }

    #[test]
    fn only_the_errors_of_an_offline_cpu_are_skipped() {
        let opened = |errno, is_offline| {
            let sites = [Site::on_cpu(0), Site { is_offline, ..Site::on_cpu(1) }];
            let cause = || io::Error::from_raw_os_error(errno);
            let open = |site: &Site| match site.cpu {
                Some(1) => Err(site.cannot_open("cycles", cause())),
                _ => Ok(()),
            };
            open_each(sites, |site| site, open).map(|all| all.len()).ok()
        };
        assert_eq!(opened(libc::ENODEV, true), Some(1));
        assert_eq!(opened(libc::ENODEV, false), None);
        assert_eq!(opened(libc::EMFILE, true), None);
        assert_eq!(opened(libc::ESRCH, false), Some(1));
    }
}
