//! What can go wrong, and what to do about it.

use crate::escape::Escaped;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Why a pipe could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The map is of another type.
    #[error("map `{name}` is a {found}, and the pipe needs a BPF_MAP_TYPE_PERF_EVENT_ARRAY")]
    NotAPerfEventArray {
        /// The map's name.
        name: String,
        /// Its type.
        found: String,
    },
    /// The descriptor is not a map's, or may not be asked about.
    #[error("cannot ask the kernel about the map: {source}{}", bpf_hint(source))]
    MapInfo {
        /// Why.
        source: io::Error,
    },
    /// Nothing could be opened at this path.
    #[error("cannot open the pinned map {}: {source}{}", shown(path), bpf_hint(source))]
    Pinned {
        /// The path.
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The object has no such map.
    #[error("the object has no map `{name}`: does its program use probe_ebpf::pipe?")]
    NoMap {
        /// The map's name.
        name: &'static str,
    },
    /// The object has no such program.
    #[error("the object has no program `{name}`: does it use probe_ebpf::program!?")]
    NoProgram {
        /// The program's name.
        name: &'static str,
    },
    /// The kernel does not accept the object's flush program.
    #[error("cannot load the program `{name}`: {why}")]
    Program {
        /// The program's name.
        name: &'static str,
        /// Why.
        why: String,
    },
    /// It was somebody else who could not open it, and says why.
    #[error("{why}")]
    Told {
        /// Why.
        why: String,
    },
    /// No ring has this size.
    #[error(
        "{bytes} bytes per CPU are no usable ring: it has to be a power of two, from {page} (a \
         page) to 1073741824; the nearest are {below} and {above}"
    )]
    Bytes {
        /// Bytes that were asked for.
        bytes: usize,
        /// Bytes in a page.
        page: usize,
        /// The usable size below.
        below: usize,
        /// The usable size above.
        above: usize,
    },
    /// The wakeup policy cannot work.
    #[error("unusable wakeup policy: {what}")]
    Wakeup {
        /// Why.
        what: &'static str,
    },
    /// Nobody can have the real-time priority that was asked for.
    #[error("consumers cannot have a real-time priority: {why}")]
    Realtime {
        /// Why.
        why: String,
    },
    /// Which CPUs there are could not be read.
    #[error("{source}")]
    Cpus {
        /// Why.
        source: io::Error,
    },
    /// There is no CPU to read from.
    #[error("no CPU of the wanted ones is online; online are {online:?}")]
    NoCpu {
        /// The CPUs that are.
        online: Vec<u32>,
    },
    /// A CPU that was asked for is not there.
    #[error("CPU {cpu} is offline or does not exist; online are {online:?}")]
    CpuOffline {
        /// The CPU.
        cpu: u32,
        /// The CPUs that are.
        online: Vec<u32>,
    },
    /// The map is too short for a CPU.
    #[error(
        "map `{name}` has {entries} entries, too few for CPU {cpu}: create it with one for each possible CPU"
    )]
    CpuPastEnd {
        /// The CPU.
        cpu: u32,
        /// The map's name.
        name: String,
        /// How many entries it has.
        entries: u32,
    },
    /// `perf_event_open` failed.
    #[error("cannot open a perf event on CPU {cpu}: {source}{}", event_hint(source))]
    Event {
        /// The CPU.
        cpu: u32,
        /// Why.
        source: io::Error,
    },
    /// `mmap` of the ring failed.
    #[error("cannot map a ring of {bytes} bytes for CPU {cpu}: {source}{}", map_hint(source))]
    Map {
        /// The CPU.
        cpu: u32,
        /// Bytes that were asked for.
        bytes: usize,
        /// Why.
        source: io::Error,
    },
    /// The event could not be enabled.
    #[error("cannot enable the perf event of CPU {cpu}: {source}")]
    Enable {
        /// The CPU.
        cpu: u32,
        /// Why.
        source: io::Error,
    },
    /// The event could not be put into the map.
    #[error("cannot put the perf event of CPU {cpu} into the map: {source}{}", bpf_hint(source))]
    Slot {
        /// The CPU.
        cpu: u32,
        /// Why.
        source: io::Error,
    },
    /// The descriptors to wait on could not be had.
    #[error("cannot set up polling: {source}{}", poll_hint(source))]
    Poll {
        /// Why.
        source: io::Error,
    },
    /// The tally could not be opened.
    #[error(transparent)]
    Tally(#[from] TallyError),
}

/// Why waiting for a pipe failed; or, of a flight recorder, the dump that was waited for.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}{}", poll_hint(source))]
pub struct PollError {
    what: String,
    pub(crate) source: io::Error,
}

impl From<io::Error> for PollError {
    fn from(source: io::Error) -> Self {
        Self { what: "cannot wait for events".to_owned(), source }
    }
}

impl OpenError {
    /// The kernel refuses the priority.
    pub(crate) fn realtime(source: &io::Error) -> Self {
        Self::Realtime { why: format!("{source}{}", realtime_hint(source)) }
    }
}

impl PollError {
    /// The kernel refuses a consumer's priority, which it had allowed when the pipe was opened.
    pub(crate) fn realtime(cpu: u32, source: io::Error) -> Self {
        let hint = realtime_hint(&source);
        let what = format!("the consumer of CPU {cpu} cannot have a real-time priority{hint}");
        Self { what, source }
    }
}

/// What whatever has rings says in a process that was forked from the one that opened it.
pub(crate) fn forked() -> io::Error {
    let what = "this process was forked from the one that opened the rings, and has none of them: open them in \
                the process that is to read them";
    io::Error::new(io::ErrorKind::Unsupported, what)
}

impl From<PauseError> for PollError {
    fn from(PauseError { cpu, source }: PauseError) -> Self {
        Self { what: format!("cannot pause the ring of CPU {cpu} for a dump"), source }
    }
}

/// Why a pipe could not be paused, or could not go on.
#[derive(Debug, thiserror::Error)]
#[error("cannot pause CPU {cpu}, or have it go on: {source}{}", bpf_hint(source))]
pub struct PauseError {
    /// The CPU.
    pub(crate) cpu: u32,
    /// Why.
    pub(crate) source: io::Error,
}

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
        /// The map's name.
        name: String,
        /// How many entries a tally has.
        entries: u32,
        /// Bytes of an entry.
        value_size: usize,
    },
    /// There is none.
    #[error(
        "the pipe was opened without the eBPF side's count: open it with EvPipe::from_object, or \
         give PipeParts the map `{}`",
        probe_common::control::TALLY_MAP
    )]
    NoTally,
    /// A call failed.
    #[error("cannot read the tally: {source}{}", bpf_hint(source))]
    Read {
        /// Why.
        #[from]
        source: io::Error,
    },
}

fn shown(path: &Path) -> Escaped<'_> {
    Escaped(path.as_os_str().as_bytes())
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

/// What to do about an errno of `bpf(2)`.
fn bpf_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EPERM | libc::EACCES => ". Run as root, or with CAP_BPF and CAP_PERFMON",
        libc::ENOSYS => ". This kernel is built without CONFIG_BPF_SYSCALL",
        _ => descriptor_hint(error),
    }
}

/// What to do about an errno of `perf_event_open(2)`.
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

/// What to do about an errno of `sched_setscheduler(2)`.
fn realtime_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EPERM => {
            ". Run as root, or with CAP_SYS_NICE or RLIMIT_RTPRIO (ulimit -r); a cgroup without real-time bandwidth \
             (CONFIG_RT_GROUP_SCHED) has none to give"
        }
        _ => "",
    }
}

/// What to do about an errno of the ring's `mmap(2)`.
pub(crate) fn map_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EPERM => {
            ". That is more locked memory than allowed: ask for fewer bytes, raise the sysctl \
             kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK (ulimit -l), or run with CAP_IPC_LOCK"
        }
        libc::ENOMEM => ". There is not enough memory: ask for fewer bytes",
        _ => "",
    }
}

/// What to do about an errno of the descriptors to wait on, and of `epoll_ctl(2)`.
fn poll_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::ENOSPC => {
            ". The user waits for as many descriptors as allowed: raise the sysctl \
             fs.epoll.max_user_watches"
        }
        _ => descriptor_hint(error),
    }
}

/// What to do about having no descriptor left.
pub(crate) fn descriptor_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EMFILE => ". The process has no descriptor left: raise RLIMIT_NOFILE (ulimit -n)",
        libc::ENFILE => ". The system has no descriptor left: raise the sysctl fs.file-max",
        _ => "",
    }
}

/// `enum bpf_map_type` in `include/uapi/linux/bpf.h`, as far as the names go.
pub(crate) fn map_type_name(map_type: u32) -> String {
    const NAMES: [&str; 34] = [
        "UNSPEC",
        "HASH",
        "ARRAY",
        "PROG_ARRAY",
        "PERF_EVENT_ARRAY",
        "PERCPU_HASH",
        "PERCPU_ARRAY",
        "STACK_TRACE",
        "CGROUP_ARRAY",
        "LRU_HASH",
        "LRU_PERCPU_HASH",
        "LPM_TRIE",
        "ARRAY_OF_MAPS",
        "HASH_OF_MAPS",
        "DEVMAP",
        "SOCKMAP",
        "CPUMAP",
        "XSKMAP",
        "SOCKHASH",
        "CGROUP_STORAGE",
        "REUSEPORT_SOCKARRAY",
        "PERCPU_CGROUP_STORAGE",
        "QUEUE",
        "STACK",
        "SK_STORAGE",
        "DEVMAP_HASH",
        "STRUCT_OPS",
        "RINGBUF",
        "INODE_STORAGE",
        "TASK_STORAGE",
        "BLOOM_FILTER",
        "USER_RINGBUF",
        "CGRP_STORAGE",
        "ARENA",
    ];
    match NAMES.get(map_type as usize) {
        Some(name) => format!("BPF_MAP_TYPE_{name}"),
        None => format!("map of type {map_type}"),
    }
}
