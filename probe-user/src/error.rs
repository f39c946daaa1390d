//! The errors of the pipe, with hints about how to fix them.
//!
//! A message contains its cause, so no error also returns the cause as its `source()`: code that prints the whole
//! chain prints each cause once.

use probe_sys::escape::Escaped;
use probe_sys::hint::{descriptor_hint, errno, map_hint};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Why a pipe could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A descriptor does not belong to the part of a pipe as which it was passed.
    #[error("the part `{part}` of the pipe is {found}: it has to be {needed}")]
    WrongPart {
        /// The part.
        part: &'static str,
        /// What the descriptor belongs to.
        found: String,
        /// What the part has to be.
        needed: String,
    },
    /// The kernel does not let this process query a map or a program.
    #[error("cannot query a part of the pipe: {cause}{}", bpf_hint(cause))]
    MapInfo {
        /// The cause.
        cause: io::Error,
    },
    /// A part of a pipe could not be pinned.
    #[error("cannot pin {}: {cause}{}", shown(path), pin_hint(cause))]
    Pin {
        /// Where it should have been pinned.
        path: std::path::PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// The map or program pinned at this path could not be opened.
    #[error("cannot open the pinned map or program {}: {cause}{}", shown(path), bpf_hint(cause))]
    Pinned {
        /// The path of the pinned map or program.
        path: std::path::PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// The object has no map with this name.
    #[error("the object has no map `{name}`: does its program use probe_ebpf::pipe?")]
    NoMap {
        /// The name of the map.
        name: &'static str,
    },
    /// The object has no program with this name.
    #[error("the object has no program `{name}`: does it use probe_ebpf::program!?")]
    NoProgram {
        /// The name of the program.
        name: &'static str,
    },
    /// The object's flush program could not be loaded.
    #[error("cannot load the program `{name}`: {why}")]
    Program {
        /// The name of the program.
        name: &'static str,
        /// The cause.
        why: String,
    },
    /// An error of another process, such as the one that wrote a recording.
    #[error("{message}")]
    Reported {
        /// The message of that process.
        message: String,
    },
    /// The ring size is not valid.
    #[error("invalid ring size: {bytes} bytes per CPU; use 1 to {most}")]
    RingSize {
        /// The requested size of a ring, in bytes.
        bytes: usize,
        /// The largest size, in bytes.
        most: usize,
    },
    /// The limit for all rings leaves less than a page for each of them.
    #[error(
        "a limit of {total} bytes for all rings leaves less than a page for each of {cpus} CPUs: raise \
         Options::total_bytes, or select CPUs with Options::cpus"
    )]
    RingLimit {
        /// The limit for all rings, in bytes.
        total: usize,
        /// The number of CPUs.
        cpus: usize,
    },
    /// The wakeup policy is not valid.
    #[error("invalid wakeup policy: {what}")]
    Wakeup {
        /// The cause.
        what: &'static str,
    },
    /// The pipe cannot be raw.
    #[error("cannot deliver raw records: {what}")]
    Raw {
        /// The cause.
        what: &'static str,
    },
    /// Consumers cannot have the requested real-time priority.
    #[error("cannot give consumers a real-time priority: {why}")]
    Realtime {
        /// The cause.
        why: String,
    },
    /// The list of online CPUs could not be read.
    #[error("{cause}")]
    Cpus {
        /// The cause.
        cause: io::Error,
    },
    /// None of the requested CPUs is online.
    #[error("none of the requested CPUs is online; online CPUs: {online:?}")]
    NoCpu {
        /// The CPUs that are online.
        online: Vec<u32>,
    },
    /// A requested CPU is offline or does not exist.
    #[error("CPU {cpu} is offline or does not exist; online CPUs: {online:?}")]
    CpuOffline {
        /// The CPU.
        cpu: u32,
        /// The CPUs that are online.
        online: Vec<u32>,
    },
    /// Another consumer, which still lives, receives the records of these CPUs from the same map.
    #[error(
        "another consumer has the CPUs {cpus:?}: end it, choose other CPUs with Options::cpus, or take these over with \
         Options::take_over"
    )]
    InUse {
        /// The CPUs.
        cpus: Vec<u32>,
    },
    /// The map has no entry for a CPU.
    #[error(
        "map `{name}` has too few entries for CPU {cpu} ({entries}): create it with one for each possible CPU"
    )]
    MapTooSmall {
        /// The CPU.
        cpu: u32,
        /// The name of the map.
        name: String,
        /// The number of entries in the map.
        entries: u32,
    },
    /// `perf_event_open` failed.
    #[error("cannot open a perf event on CPU {cpu}: {cause}{}", event_hint(cause))]
    Event {
        /// The CPU.
        cpu: u32,
        /// The cause.
        cause: io::Error,
    },
    /// `mmap` of a ring failed.
    #[error("cannot map a ring of {bytes} bytes for CPU {cpu}: {cause}{}", map_hint(cause))]
    Mmap {
        /// The CPU.
        cpu: u32,
        /// The requested size of a ring, in bytes.
        bytes: usize,
        /// The cause.
        cause: io::Error,
    },
    /// A perf event could not be enabled.
    #[error("cannot enable the perf event of CPU {cpu}: {cause}")]
    Enable {
        /// The CPU.
        cpu: u32,
        /// The cause.
        cause: io::Error,
    },
    /// A perf event could not be put into the map.
    #[error("cannot put the perf event of CPU {cpu} into the map: {cause}{}", bpf_hint(cause))]
    MapEntry {
        /// The CPU.
        cpu: u32,
        /// The cause.
        cause: io::Error,
    },
    /// The descriptors to wait on could not be set up.
    #[error("cannot set up polling: {cause}{}", poll_hint(cause))]
    Poll {
        /// The cause.
        cause: io::Error,
    },
    /// A flight recorder without packing cannot wait until programs have written their records, so a dump could read
    /// a record that is being written.
    #[error(
        "cannot open a flight recorder without packing: {}: {cause}{}. Or open it with all parts of the pipe and with \
         Wakeup::Adaptive",
        WAITING,
        barrier_hint(cause)
    )]
    Recorder {
        /// The cause.
        cause: io::Error,
    },
    /// The tally could not be opened.
    #[error(transparent)]
    Tally(#[from] TallyError),
}

/// Why waiting for a pipe failed, why its rings are too small for its consumer, or why a flight recorder failed to make the
/// requested dump.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {cause}{hint}")]
pub struct PollError {
    what: String,
    pub(crate) cause: io::Error,
    hint: &'static str,
}

impl From<io::Error> for PollError {
    fn from(cause: io::Error) -> Self {
        let hint = poll_hint(&cause);
        Self { what: "cannot wait for events".to_owned(), cause, hint }
    }
}

impl OpenError {
    /// Whether the map has no entry for a CPU, so that a pipe over other CPUs can be opened.
    pub(crate) fn is_of_map(&self) -> bool {
        matches!(self, Self::MapTooSmall { .. })
    }

    /// The kernel refused the priority.
    pub(crate) fn realtime(cause: &io::Error) -> Self {
        Self::Realtime { why: format!("{cause}{}", realtime_hint(cause)) }
    }
}

impl PollError {
    /// The error of the system call that failed, or a similar one: its kind tells what to expect of another attempt.
    pub fn cause(&self) -> &io::Error {
        &self.cause
    }

    /// No record of this length has room in a ring.
    pub(crate) fn no_room(len: usize, bytes_per_cpu: usize, needed: usize) -> Self {
        let what = format!("cannot receive records of {len} bytes");
        let cause = format!(
            "rings of {bytes_per_cpu} bytes have no room for them. Open the pipe with Options::bytes_per_cpu({needed})"
        );
        Self { what, cause: io::Error::new(io::ErrorKind::InvalidInput, cause), hint: "" }
    }

    /// A raw pipe has no records of types.
    pub(crate) fn raw() -> Self {
        let cause = "the pipe is raw, and has no records of types. Use EvHandlers::on_unknown, or leave out Options::raw";
        let cause = io::Error::new(io::ErrorKind::InvalidInput, cause);
        Self { what: "cannot call the handlers".to_owned(), cause, hint: "" }
    }

    /// The kernel refused a consumer's priority, which it allowed when the pipe was opened.
    pub(crate) fn realtime(cpu: u32, cause: io::Error) -> Self {
        let hint = realtime_hint(&cause);
        let what = format!("cannot give the consumer of CPU {cpu} a real-time priority");
        Self { what, cause, hint }
    }
}

impl From<PauseError> for PollError {
    fn from(PauseError { step, cause }: PauseError) -> Self {
        let (what, hint) = match step {
            PauseStep::Ring(cpu) => {
                (format!("cannot pause the ring of CPU {cpu} for a dump"), bpf_hint(&cause))
            }
            PauseStep::Writers => (format!("cannot dump: {WAITING}"), barrier_hint(&cause)),
        };
        Self { what, cause, hint }
    }
}

/// Why a pipe could not be paused or resumed.
#[derive(Debug)]
pub struct PauseError {
    pub(crate) step: PauseStep,
    pub(crate) cause: io::Error,
}

/// What failed of a pause.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PauseStep {
    /// The ring of this CPU cannot be paused or resumed.
    Ring(u32),
    /// There is no waiting for programs that write.
    Writers,
}

impl PauseError {
    /// The error of the system call that failed.
    pub fn cause(&self) -> &io::Error {
        &self.cause
    }
}

impl fmt::Display for PauseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, cause } = self;
        match step {
            PauseStep::Ring(cpu) => {
                let hint = bpf_hint(cause);
                write!(f, "cannot pause or resume the ring of CPU {cpu}: {cause}{hint}")
            }
            PauseStep::Writers => {
                write!(f, "cannot pause: {WAITING}: {cause}{}", barrier_hint(cause))
            }
        }
    }
}

impl std::error::Error for PauseError {}

const WAITING: &str = "waiting until programs have written their records failed";

/// Why the tally could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TallyError {
    /// The map is not a tally.
    #[error(
        "map `{name}` is not a tally: it has to be a BPF_MAP_TYPE_PERCPU_ARRAY of {entries} \
         entries with {value_size} bytes each"
    )]
    NotATally {
        /// The name of the map.
        name: String,
        /// The number of entries in a tally.
        entries: u32,
        /// The size of an entry, in bytes.
        value_size: usize,
    },
    /// The pipe has no tally.
    #[error(
        "the pipe was opened without its tally: open it with EvPipe::from_object, or pass the maps \
         `{}` and `{}` to PipeParts::tally. Programs that do not use probe_ebpf::pipe have none; \
         QueueCounts::lost has the kernel's count",
        probe_common::control::TALLY_MAP,
        probe_common::control::OUTPUTS_MAP
    )]
    NoTally,
    /// A system call failed.
    #[error("cannot read the tally: {cause}{}", bpf_hint(cause))]
    Read {
        /// The cause.
        cause: io::Error,
    },
}

impl From<io::Error> for TallyError {
    fn from(cause: io::Error) -> Self {
        Self::Read { cause }
    }
}

fn shown(path: &Path) -> Escaped<'_> {
    Escaped(path.as_os_str().as_bytes())
}

/// The hint for an errno of `bpf(2)`.
fn bpf_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EPERM | libc::EACCES => ". Run as root, or with CAP_BPF and CAP_PERFMON",
        libc::ENOSYS => ". This kernel is built without CONFIG_BPF_SYSCALL",
        _ => descriptor_hint(error),
    }
}

/// The hint for an errno of pinning.
fn pin_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        // An object can only be pinned in a bpffs, and the kernel says no more than this elsewhere.
        libc::EPERM | libc::EACCES => {
            ". Pin in a directory of a bpffs (mount -t bpf bpf DIRECTORY), and run as root"
        }
        libc::EEXIST => ". Another part is pinned there: remove it, or choose another directory",
        _ => bpf_hint(error),
    }
}

/// The hint for an errno of `perf_event_open(2)`.
pub(crate) fn event_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EPERM | libc::EACCES => {
            ". Run as root, or with CAP_PERFMON and the sysctl kernel.perf_event_paranoid at \
             most 2"
        }
        libc::ENOSYS => ". This kernel is built without CONFIG_PERF_EVENTS",
        _ => descriptor_hint(error),
    }
}

/// The hint for an errno of `membarrier(2)`.
fn barrier_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EINVAL => ". This kernel refuses membarrier(2), because it runs with nohz_full",
        _ => {
            ". Allow membarrier(2) in the seccomp filter of this process; the kernel needs \
             CONFIG_MEMBARRIER"
        }
    }
}

/// The hint for an errno of `sched_setscheduler(2)`.
fn realtime_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EPERM => {
            ". Run as root, or with CAP_SYS_NICE or RLIMIT_RTPRIO (ulimit -r). With \
             CONFIG_RT_GROUP_SCHED, the cgroup needs real-time bandwidth too"
        }
        _ => "",
    }
}

/// The hint for an errno of `epoll_ctl(2)`, or of creating the descriptors to wait on.
fn poll_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::ENOSPC => {
            ". The user has reached the limit of epoll watches: raise the sysctl \
             fs.epoll.max_user_watches"
        }
        _ => descriptor_hint(error),
    }
}

/// The name of a map type, from `enum bpf_map_type` in `include/uapi/linux/bpf.h`.
pub(crate) fn map_type_name(map_type: u32) -> String {
    const NAMES: &str = "UNSPEC HASH ARRAY PROG_ARRAY PERF_EVENT_ARRAY PERCPU_HASH PERCPU_ARRAY STACK_TRACE \
                         CGROUP_ARRAY LRU_HASH LRU_PERCPU_HASH LPM_TRIE ARRAY_OF_MAPS HASH_OF_MAPS DEVMAP SOCKMAP \
                         CPUMAP XSKMAP SOCKHASH CGROUP_STORAGE REUSEPORT_SOCKARRAY PERCPU_CGROUP_STORAGE QUEUE \
                         STACK SK_STORAGE DEVMAP_HASH STRUCT_OPS RINGBUF INODE_STORAGE TASK_STORAGE BLOOM_FILTER \
                         USER_RINGBUF CGRP_STORAGE ARENA";
    match NAMES.split(' ').nth(map_type as usize) {
        Some(name) => format!("BPF_MAP_TYPE_{name}"),
        None => format!("map of type {map_type}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    fn cause() -> io::Error {
        io::Error::other("the cause")
    }

    /// One error of each kind.
    fn all() -> impl Iterator<Item = Box<dyn Error>> {
        let pause = || PauseError { step: PauseStep::Ring(3), cause: cause() };
        let open = [
            OpenError::WrongPart { part: "M", found: map_type_name(2), needed: map_type_name(4) },
            OpenError::MapInfo { cause: cause() },
            OpenError::Pin { path: "/sys/fs/bpf/M".into(), cause: cause() },
            OpenError::Pinned { path: "/sys/fs/bpf/M".into(), cause: cause() },
            OpenError::NoMap { name: "M" },
            OpenError::NoProgram { name: "P" },
            OpenError::Program { name: "P", why: cause().to_string() },
            OpenError::Reported { message: cause().to_string() },
            OpenError::RingSize { bytes: 5, most: 4 },
            OpenError::RingLimit { total: 5, cpus: 4 },
            OpenError::Wakeup { what: "it never wakes" },
            OpenError::Raw { what: "they have no time" },
            OpenError::realtime(&cause()),
            OpenError::Cpus { cause: cause() },
            OpenError::NoCpu { online: vec![0] },
            OpenError::CpuOffline { cpu: 3, online: vec![0] },
            OpenError::InUse { cpus: vec![3] },
            OpenError::MapTooSmall { cpu: 3, name: "M".into(), entries: 2 },
            OpenError::Event { cpu: 3, cause: cause() },
            OpenError::Mmap { cpu: 3, bytes: 4096, cause: cause() },
            OpenError::Enable { cpu: 3, cause: cause() },
            OpenError::MapEntry { cpu: 3, cause: cause() },
            OpenError::Poll { cause: cause() },
            OpenError::Recorder { cause: cause() },
            OpenError::Tally(cause().into()),
        ];
        let tally = [
            TallyError::NotATally { name: "M".into(), entries: 5, value_size: 8 },
            TallyError::NoTally,
            cause().into(),
        ];
        let wait = || PauseError { step: PauseStep::Writers, cause: cause() };
        let realtime = PollError::realtime(3, cause());
        let poll = [cause().into(), PollError::raw(), realtime, pause().into(), wait().into()];
        let open = open.into_iter().map(Box::<dyn Error>::from);
        let others = tally.map(Box::<dyn Error>::from).into_iter().chain(poll.map(Box::from));
        open.chain(others).chain([pause().into(), wait().into()])
    }

    #[test]
    fn a_hint_follows_its_cause() {
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        let message = PollError::realtime(3, refused).to_string();
        let (cause, hint) = message.split_once(". ").unwrap();
        let expected = "cannot give the consumer of CPU 3 a real-time priority: Operation not permitted (os error 1)";
        assert_eq!(cause, expected);
        assert!(hint.starts_with("Run as root"), "{message}");
    }

    #[test]
    fn each_prints_its_cause_once() {
        for error in all() {
            let message = error.to_string();
            if format!("{error:?}").contains("the cause") {
                assert_eq!(message.matches("the cause").count(), 1, "{message}");
            }
            if let Some(source) = error.source() {
                assert!(!message.contains(&source.to_string()), "{message} / {source}");
            }
        }
    }
}
