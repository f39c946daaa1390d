//! What can fail once an event is known, and what to do about it.

use crate::event::EventError;
use probe_sys::hint::{descriptor_hint, errno, map_hint};
use std::fs;
use std::io;

/// Why an event could not be opened, controlled or read.
///
/// The message contains the cause, which [`source()`](std::error::Error::source) therefore does not return.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    /// The text does not name an event.
    #[error(transparent)]
    Event(#[from] EventError),
    /// Reading which CPUs exist failed. The error of sysfs names the file.
    #[error("{0}")]
    Cpus(io::Error),
    /// A requested CPU is not online.
    #[error("CPU {cpu} is offline or does not exist; the online CPUs are {online:?}")]
    CpuOffline {
        /// The requested CPU.
        cpu: u32,
        /// The CPUs that are online.
        online: Vec<u32>,
    },
    /// An event can be observed only on some CPUs, and the target has none of them.
    #[error(
        "{event} can be observed only on the CPUs {cpus:?}, none of which is both online and a target"
    )]
    NoCpu {
        /// The event.
        event: String,
        /// The CPUs on which it can be observed.
        cpus: Vec<u32>,
    },
    /// The cores are of several kinds, and the event would be observed on one of them only.
    #[error(
        "{event} would be observed on one kind of core only, and this machine has several; name the PMU of one kind, as in {}",
        examples(pmus)
    )]
    KindsOfCores {
        /// The event.
        event: String,
        /// The PMUs of the kinds of cores.
        pmus: Vec<String>,
    },
    /// There is no process with this id.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The id is that of a thread, not of a process.
    #[error("{thread} is a thread of process {process}: name the process, or only the thread")]
    NotAProcess {
        /// The id.
        thread: u32,
        /// The process that it is a thread of.
        process: u32,
    },
    /// No thread can have this id.
    #[error("there is no thread {0}")]
    NoThread(u32),
    /// Reading the threads of a process failed.
    #[error("cannot read the threads of process {process}: {cause}{}", descriptor_hint(cause))]
    Threads {
        /// The process id.
        process: u32,
        /// The error of procfs.
        cause: io::Error,
    },
    /// `perf_event_open` failed.
    #[error("cannot open {event}: {cause}{}", open_hint(cause))]
    Open {
        /// The event, with its thread or CPU.
        event: String,
        /// The error of the call.
        cause: io::Error,
    },
    /// `perf_event_open` failed for a member of a group other than its leader.
    #[error("cannot open {event} in a group with {others}: {cause}{}", member_hint(cause))]
    Member {
        /// The event, with its thread or CPU.
        event: String,
        /// The members that are already open.
        others: String,
        /// The error of the call.
        cause: io::Error,
    },
    /// A call on an open event failed.
    #[error("cannot {what} {event}: {cause}{}", call_hint(cause))]
    Call {
        /// The verb.
        what: &'static str,
        /// The event, with its thread or CPU.
        event: String,
        /// The error of the call.
        cause: io::Error,
    },
    /// A group has no events.
    #[error("a group needs at least one event")]
    EmptyGroup,
    /// The target names no CPU or no process.
    #[error("the target has no CPU and no process: name at least one")]
    EmptyTarget,
    /// The sampling frequency exceeds the kernel's limit.
    #[error(
        "{frequency} samples per second exceed the limit of {most}, which the sysctl \
         kernel.perf_event_max_sample_rate sets"
    )]
    Frequency {
        /// The requested samples per second.
        frequency: u64,
        /// The allowed samples per second.
        most: u64,
    },
    /// The kernel takes no periods of 2^63 events or more.
    #[error("a period of {0} events is too long; the longest is {max}", max = i64::MAX)]
    Period(u64),
    /// The sampler takes no samples.
    #[error("a frequency of 0 takes no samples; use at least 1")]
    NoSamples,
    /// A sampler reads its rings forward.
    #[error(
        "a sampler cannot read rings that are written backward: leave out Flags::WRITE_BACKWARD"
    )]
    Backward,
    /// A ring cannot have this many bytes.
    #[error(
        "invalid ring size of {0} bytes: use at least 1, and no more than the address space allows"
    )]
    RingSize(usize),
    /// Mapping a ring failed.
    #[error("cannot map a ring of {bytes} bytes {site}: {cause}{}", map_hint(cause))]
    Map {
        /// The size of the ring.
        bytes: usize,
        /// For which thread, or on which CPU.
        site: String,
        /// The error of `mmap`.
        cause: io::Error,
    },
    /// The event has no AUX area, or none of this size.
    #[error("cannot map the AUX area of {event}: {cause}{}", aux_hint(cause))]
    Aux {
        /// The event, with its thread or CPU.
        event: String,
        /// The error of `mmap`.
        cause: io::Error,
    },
    /// A call failed that concerns several events.
    #[error("cannot {what}: {cause}{}", descriptor_hint(cause))]
    Events {
        /// The verb, and what it applies to.
        what: &'static str,
        /// The error of the call.
        cause: io::Error,
    },
}

impl PerfError {
    /// Makes the error of a call that concerns several events.
    pub(crate) fn of_events(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |cause| Self::Events { what, cause }
    }

    /// Whether the error is that a thread has ended.
    pub(crate) fn is_thread_ended(&self) -> bool {
        self.is_opening_refused(libc::ESRCH)
    }

    /// Whether the error is that a CPU is offline.
    pub fn is_cpu_offline(&self) -> bool {
        matches!(self, Self::CpuOffline { .. }) || self.is_opening_refused(libc::ENODEV)
    }

    /// Whether an event cannot be opened because of what this process may do or have, whichever the CPU.
    pub(crate) fn is_limit(&self) -> bool {
        const LIMITS: [i32; 5] =
            [libc::EACCES, libc::EPERM, libc::EMFILE, libc::ENFILE, libc::ENOMEM];
        LIMITS.iter().any(|&errno| self.is_opening_refused(errno))
    }

    fn is_opening_refused(&self, errno: i32) -> bool {
        let (Self::Open { cause, .. } | Self::Member { cause, .. }) = self else { return false };
        cause.raw_os_error() == Some(errno)
    }
}

/// Events of these PMUs.
fn examples(pmus: &[String]) -> String {
    pmus.iter().map(|pmu| format!("{pmu}/EVENT/")).collect::<Vec<_>>().join(" or ")
}

/// What to do about an errno of mapping an AUX area.
fn aux_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EOPNOTSUPP => ". This event has no AUX area: only hardware traces do",
        libc::EINVAL => ". Its size must not be 0, and must be one that the hardware supports",
        libc::EBUSY => ". Another process uses it",
        _ => map_hint(error),
    }
}

/// What to do about an errno of `perf_event_open(2)`.
fn open_hint(error: &io::Error) -> String {
    let hint = match errno(error) {
        libc::EPERM | libc::EACCES => {
            let path = "/proc/sys/kernel/perf_event_paranoid";
            let paranoid = fs::read_to_string(path).unwrap_or_else(|_| "unknown".into());
            return format!(
                ". Run as root, or with CAP_PERFMON, or lower the sysctl kernel.perf_event_paranoid, which \
                 is {}: 2 allows your own processes in user mode, 1 also in the kernel, and -1 everything",
                paranoid.trim()
            );
        }
        libc::ENOENT => {
            ". This machine has no such event, or not on this CPU: virtual machines often lack the CPU's counters, \
             but always have cpu-clock"
        }
        libc::EOPNOTSUPP => {
            ". This machine cannot do that: some events can only be counted, and virtual machines often lack \
             the CPU's counters, but always have cpu-clock"
        }
        libc::ENODEV => ". The CPU is offline or does not exist",
        libc::ESRCH => ". The thread has ended or does not exist",
        libc::E2BIG => ". This kernel is too old for one of the requested options",
        libc::EINVAL => {
            ". The kernel does not support this for the event, or is too old. Some events can only be counted, \
             not sampled, such as those of the PMUs msr and power"
        }
        libc::EBUSY => ". Another process uses the counter exclusively",
        libc::ENOSYS => ". This kernel is built without CONFIG_PERF_EVENTS",
        _ => descriptor_hint(error),
    };
    hint.to_owned()
}

/// What to do about an errno of `perf_event_open(2)`, for a member of a group.
fn member_hint(error: &io::Error) -> String {
    match errno(error) {
        libc::EINVAL => {
            ". The events of a group are counted at the same time: the CPU may have too few counters, or \
             the events may belong to different PMUs. Put fewer events into the group"
                .to_owned()
        }
        _ => open_hint(error),
    }
}

/// What to do about an errno of a call on an open event.
fn call_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            ". The CPU has no counter left for it: count fewer events at a time"
        }
        io::ErrorKind::InvalidInput => {
            ". The kernel does not support this for an event of this type"
        }
        io::ErrorKind::AlreadyExists => ". It already has a program",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::PmuError;
    use std::error::Error;

    #[test]
    fn each_error_prints_its_cause_once() {
        let cause = || io::Error::other("the cause");
        let errors = [
            PerfError::Event(PmuError::Sysfs { path: "path".into(), cause: cause() }.into()),
            PerfError::Event(EventError::Tracefs(cause())),
            PerfError::Cpus(cause()),
            PerfError::Threads { process: 1, cause: cause() },
            PerfError::Open { event: String::new(), cause: cause() },
            PerfError::Member { event: String::new(), others: String::new(), cause: cause() },
            PerfError::Call { what: "read", event: String::new(), cause: cause() },
            PerfError::Map { bytes: 1, site: String::new(), cause: cause() },
            PerfError::Aux { event: String::new(), cause: cause() },
            PerfError::Events { what: "wait", cause: cause() },
        ];
        for error in errors {
            assert_eq!(error.to_string().matches("the cause").count(), 1, "{error}");
            assert!(error.source().is_none(), "{error:?}");
        }
    }
}
