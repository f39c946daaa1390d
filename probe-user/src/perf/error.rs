//! What can go wrong, and what to do about it.

use super::event_source::PmuError;
use crate::error::{descriptor_hint, map_hint};
use crate::escape::Escaped;
use crate::nearest::suggestion;
use std::fs;
use std::io;

/// Why an event is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// There is none of this name.
    #[error("there is no event `{}`{}", Escaped(name.as_bytes()), suggestion(near))]
    Unknown {
        /// The name.
        name: String,
        /// Names that are like it.
        near: Vec<String>,
    },
    /// What stands behind the name is none of what may.
    #[error("`{}` is not where an event can be observed: it is u, k or uk", Escaped(modifier.as_bytes()))]
    Modifier {
        /// What stands there.
        modifier: String,
    },
    /// It is none of the PMU that is named.
    #[error(transparent)]
    Pmu(#[from] PmuError),
    /// The id of a tracepoint could not be read.
    #[error("cannot read the tracepoint's id: {source}{}", tracefs_hint(source))]
    Tracefs {
        /// Why.
        source: io::Error,
    },
}

/// Why an event could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    /// The event is none.
    #[error(transparent)]
    Event(#[from] EventError),
    /// Which CPUs there are could not be read.
    #[error("{source}")]
    Cpus {
        /// Why.
        source: io::Error,
    },
    /// A CPU that was asked for is not there.
    #[error("CPU {cpu} is offline or does not exist; online are {online:?}")]
    CpuOffline {
        /// The CPU.
        cpu: u32,
        /// The CPUs that are.
        online: Vec<u32>,
    },
    /// An event is observed on some CPUs alone, and not on one that is asked for.
    #[error(
        "{event} is observed on the CPUs {cpus:?} alone, none of which is asked for and online"
    )]
    NoCpu {
        /// The event.
        event: String,
        /// Those CPUs.
        cpus: Vec<u32>,
    },
    /// There is no such process.
    #[error("there is no process {process}")]
    NoProcess {
        /// Its id.
        process: u32,
    },
    /// The threads of a process could not be read.
    #[error("cannot read the threads of process {process}: {source}{}", descriptor_hint(source))]
    Threads {
        /// Its id.
        process: u32,
        /// Why.
        source: io::Error,
    },
    /// `perf_event_open` failed.
    #[error("cannot open {event} {place}: {source}{}", open_hint(source))]
    Open {
        /// The event.
        event: String,
        /// Of whom, and on which CPU.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// `perf_event_open` failed for another member of a group than its leader.
    #[error(
        "cannot open {event} {place} in a group with {others}: {source}{}",
        member_hint(source)
    )]
    Member {
        /// The event.
        event: String,
        /// Of whom, and on which CPU.
        place: String,
        /// Those that are in the group already.
        others: String,
        /// Why.
        source: io::Error,
    },
    /// An event that is open does not do what it is told.
    #[error("cannot {what} {event} {place}: {source}{}", call_hint(source))]
    Call {
        /// What it was told.
        what: &'static str,
        /// The event.
        event: String,
        /// Of whom, and on which CPU.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// A group has no events.
    #[error("a group of no events counts nothing: name at least one")]
    EmptyGroup,
    /// The kernel takes no so many samples.
    #[error(
        "{frequency} samples a second are more than the {most} that the sysctl \
         kernel.perf_event_max_sample_rate allows"
    )]
    Frequency {
        /// Samples a second that were asked for.
        frequency: u64,
        /// Samples a second that are allowed.
        most: u64,
    },
    /// No ring has this size.
    #[error(
        "{bytes} bytes are no usable ring: it has to be a power of two, from {page} (a page) on"
    )]
    Bytes {
        /// Bytes that were asked for.
        bytes: usize,
        /// Bytes in a page.
        page: usize,
    },
    /// `mmap` of a ring failed.
    #[error("cannot map a ring of {bytes} bytes {place}: {source}{}", map_hint(source))]
    Map {
        /// Bytes that were asked for.
        bytes: usize,
        /// Of whom, and on which CPU.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// The event does not write into the ring of another.
    #[error("{event} {place} cannot share a ring with the others: {source}")]
    Share {
        /// The event.
        event: String,
        /// Of whom, and on which CPU.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// The event has no AUX area, or none of this size.
    #[error("cannot map the AUX area of {event} {place}: {source}{}", aux_hint(source))]
    Aux {
        /// The event.
        event: String,
        /// On which CPU.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// An event could not be switched on or off, or asked who it is.
    #[error("cannot switch an event: {source}")]
    Switch {
        /// Why.
        source: io::Error,
    },
    /// Waiting failed.
    #[error("cannot wait for records: {source}{}", descriptor_hint(source))]
    Wait {
        /// Why.
        source: io::Error,
    },
    /// What was lost could not be read.
    #[error("cannot read what was lost: {source}")]
    Lost {
        /// Why.
        source: io::Error,
    },
}

impl PerfError {
    /// Whether it is that a thread has ended.
    pub(super) fn is_of_gone_thread(&self) -> bool {
        self.is_of_opening(libc::ESRCH)
    }

    /// Whether it is that a CPU is offline.
    pub(crate) fn is_of_gone_cpu(&self) -> bool {
        matches!(self, Self::CpuOffline { .. }) || self.is_of_opening(libc::ENODEV)
    }

    fn is_of_opening(&self, errno: i32) -> bool {
        let (Self::Open { source, .. } | Self::Member { source, .. }) = self else { return false };
        source.raw_os_error() == Some(errno)
    }
}

/// What to do about an errno of mapping an AUX area.
fn aux_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error().unwrap_or(0) {
        libc::EOPNOTSUPP => ". This event has none: only traces of the hardware do",
        libc::EINVAL => {
            ". Its size has to be a power of two, of a page at least, and one that the hardware takes"
        }
        libc::EBUSY => ". Somebody else has it",
        _ => map_hint(error),
    }
}

fn tracefs_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            ". Run as root, or let the user read /sys/kernel/tracing/events"
        }
        _ => descriptor_hint(error),
    }
}

/// What to do about an errno of `perf_event_open(2)`.
fn open_hint(error: &io::Error) -> String {
    let hint = match error.raw_os_error().unwrap_or(0) {
        libc::EPERM | libc::EACCES => {
            let path = "/proc/sys/kernel/perf_event_paranoid";
            let paranoid = fs::read_to_string(path).unwrap_or_else(|_| "unknown".into());
            return format!(
                ". Run as root, or with CAP_PERFMON, or with a lower sysctl kernel.perf_event_paranoid: it \
                 is {}; 2 allows one's own processes without the kernel, 1 with it, and -1 everything",
                paranoid.trim()
            );
        }
        libc::ENOENT | libc::EOPNOTSUPP => {
            ". This machine has no such event: virtual machines often have no counters of the CPU, and \
             cpu-clock always"
        }
        libc::ENODEV => ". The CPU is offline, or there is none of this number",
        libc::ESRCH => ". The thread has ended, or there is none of this number",
        libc::E2BIG => ". This kernel is too old for what is asked for",
        libc::EINVAL => ". The kernel does not do this with this event, or is too old for it",
        libc::EBUSY => ". Somebody else has the counter to himself",
        libc::ENOSYS => ". This kernel is built without CONFIG_PERF_EVENTS",
        _ => descriptor_hint(error),
    };
    hint.to_owned()
}

/// What to do about an errno of `perf_event_open(2)`, for a member of a group.
fn member_hint(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EINVAL) => {
            ". All events of a group are counted at a time: there may be no counters for so \
                               many, or not of one sort. Count fewer together"
                .to_owned()
        }
        _ => open_hint(error),
    }
}

/// What to do about an errno of an event that is open.
fn call_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            ". The CPU has no counter left for it: count fewer events at a time"
        }
        io::ErrorKind::InvalidInput => ". The kernel does not do this with an event of this sort",
        io::ErrorKind::AlreadyExists => ". It has a program already",
        _ => "",
    }
}
