//! The errors of a trace, and what to do about them.

use crate::binary::BinaryError;
use crate::kernel::capabilities::{Capabilities, FOR_UPROBES};
use crate::kernel::lockdown;
use crate::spec::{Instead, ProbeSpec, Provider, SpecError};
use probe_perf::PerfError;
use probe_perf::nearest::suggestion;
use probe_perf::pattern::BadPattern;
use probe_sys::escape::Escaped;
use probe_tracer_common::counter::COUNTERS;
use probe_user::{OpenError, PollError, TallyError};
use std::error::Error;
use std::io;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

pub(crate) type Result<T, E = TraceError> = std::result::Result<T, E>;

/// Why a trace failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The process may not load programs.
    #[error(
        "a privilege is missing ({0}): tracing needs root, or the capabilities CAP_BPF and CAP_PERFMON"
    )]
    Capability(Capabilities),
    /// The signal of this number interrupted the attaching.
    #[error("interrupted by signal {0}")]
    Interrupted(usize),
    /// There is nothing to trace.
    #[error("no probe was given")]
    NoProbe,
    /// There is no command to run.
    #[error("no command was given")]
    NoCommand,
    /// A field or predicate of a probe names something that does not exist or cannot be read.
    #[error(transparent)]
    Field(#[from] SpecError),
    /// The kernel has no kprobes.
    #[error(
        "cannot probe {spec}: this kernel has no kprobes (CONFIG_KPROBES, CONFIG_KPROBE_EVENTS, \
         CONFIG_PERF_EVENTS); tracepoint:, rawtp: and uprobe: do not need them{instead}"
    )]
    NoKprobes {
        /// The probe.
        spec: ProbeSpec,
        /// What can be probed under this name.
        instead: Instead,
    },
    /// The kernel has no uprobes.
    #[error(
        "cannot probe {spec}: this kernel has no uprobes. It needs CONFIG_UPROBE_EVENTS and \
         CONFIG_PERF_EVENTS"
    )]
    NoUprobes {
        /// The probe.
        spec: ProbeSpec,
    },
    /// A location in a program or library cannot be probed.
    #[error("cannot probe {spec}: {source}")]
    Binary {
        /// The probe.
        spec: ProbeSpec,
        /// Why.
        source: BinaryError,
    },
    /// Calls were requested of a probe that is not at the entry of a function or of a system call.
    #[error(
        "cannot trace or time calls of {spec}: calls are those of a function of the kernel (kprobe:FUNCTION) or of a file \
         (uprobe:FILE:FUNCTION), or of a system call (ksyscall:NAME, tracepoint:syscalls:sys_enter_NAME or \
         tracepoint:raw_syscalls:sys_enter){instead}"
    )]
    NoCall {
        /// The probe.
        spec: ProbeSpec,
        /// Calls that may be meant.
        instead: Instead,
    },
    /// A counter was requested without calls.
    #[error("a counter counts from the entry of a call to its return, so it requires --ret")]
    CounterWithoutCalls,
    /// The requested sampling reports no hit.
    #[error("sampling one in 0 hits, or 0 hits a second, reports nothing; use at least 1")]
    NoHits,
    /// A counter was requested twice.
    #[error("the counter {0} is given twice: a call has one counter for each event")]
    CounterTwice(String),
    /// More counters were requested than a call can have.
    #[error("{0} counters are given, but a call can have at most {COUNTERS}")]
    TooManyCounters(usize),
    /// A counter for calls cannot be opened.
    #[error(transparent)]
    Counter(PerfError),
    /// There is no such function.
    #[error(
        "cannot probe {spec}: the kernel has no function of this name, or has inlined it everywhere{}",
        meant(near, instead)
    )]
    UnknownFunction {
        /// The probe.
        spec: ProbeSpec,
        /// Similar names.
        near: Vec<String>,
        /// What else has this name.
        instead: Instead,
    },
    /// The function may not be probed.
    #[error(
        "cannot probe {spec}: the kernel does not allow probes on this function (it is on the kprobe blacklist)"
    )]
    Blacklisted {
        /// The probe.
        spec: ProbeSpec,
    },
    /// The module is not loaded or has no functions.
    #[error(
        "cannot probe {spec}: no module {module} is loaded, and probes are not attached to modules that are loaded \
         later (a tracepoint is written tracepoint:CATEGORY:NAME){instead}"
    )]
    UnknownModule {
        /// The probe.
        spec: ProbeSpec,
        /// The module.
        module: String,
        /// What may be meant.
        instead: Instead,
    },
    /// No instruction that can be probed starts at the offset.
    #[error(
        "cannot probe {spec}: the kernel cannot probe this offset. It has to be where an instruction of \
         the function begins (objdump -d vmlinux shows them), outside the bytes that ftrace patches"
    )]
    NoInstruction {
        /// The probe.
        spec: ProbeSpec,
    },
    /// The offset is past the end of the function.
    #[error(
        "cannot probe {spec}: the function has only {size:#x} bytes of code{}",
        hit.as_ref().map_or_else(String::new, |hit| format!("; at this offset is {hit}"))
    )]
    OutOfFunction {
        /// The probe.
        spec: ProbeSpec,
        /// The function's size in bytes.
        size: u64,
        /// The function that is at this offset, if it is known.
        hit: Option<String>,
    },
    /// The programs cannot read the registers of this architecture.
    #[error(
        "cannot probe {spec}: probe does not know which registers hold arguments and results on {architecture}; \
         tracepoint:, rawtp:, fentry: and fexit: work there"
    )]
    Architecture {
        /// The probe.
        spec: ProbeSpec,
        /// The architecture.
        architecture: &'static str,
    },
    /// Several functions have this name.
    #[error(
        "cannot probe {spec}: the name is ambiguous: {count} functions of the kernel have it{}",
        by_address(spec, *first)
    )]
    Ambiguous {
        /// The probe.
        spec: ProbeSpec,
        /// The number of functions with this name.
        count: usize,
        /// The address of the first of them; 0 if it is not known.
        first: u64,
    },
    /// A return is to be probed, but no function begins there.
    #[error(
        "cannot probe {spec}: {site} is not the beginning of a function, where its return would be probed"
    )]
    NotAnEntry {
        /// The probe.
        spec: ProbeSpec,
        /// What is there.
        site: String,
    },
    /// There is no such tracepoint.
    #[error("cannot probe {spec}: the kernel has no tracepoint of this name{}", suggestion(near))]
    UnknownTracepoint {
        /// The probe.
        spec: ProbeSpec,
        /// Similar names.
        near: Vec<String>,
    },
    /// The name is that of a format.
    #[error(
        "cannot probe {spec}: this is the format of an entry of ftrace's own buffer, not a kernel event"
    )]
    NotHit {
        /// The probe.
        spec: ProbeSpec,
    },
    /// An administrator has switched something off, without which nothing would be hit.
    #[error("cannot probe {spec}: {why}")]
    SwitchedOff {
        /// The probe.
        spec: ProbeSpec,
        /// What is switched off, and how to switch it on.
        why: &'static str,
    },
    /// The event was created in tracefs, for example by perf probe. It is not a kernel tracepoint.
    #[error(
        "cannot probe {spec}: this is not a kernel tracepoint but an event that was created in tracefs (dynamic_events), for \
         example by perf probe; if it stands for a function, probe that function"
    )]
    Dynamic {
        /// The probe.
        spec: ProbeSpec,
    },
    /// A function cannot have a trampoline.
    #[error(
        "cannot probe {spec}: a trampoline needs a function that occurs exactly once in the types of the kernel \
         (CONFIG_DEBUG_INFO_BTF) or, since 5.11, of its modules (CONFIG_DEBUG_INFO_BTF_MODULES); try kprobe:{name}",
        name = spec.name()
    )]
    NoTrampoline {
        /// The probe.
        spec: ProbeSpec,
    },
    /// The kernel has no types of a module.
    #[error(
        "cannot probe {spec}: a trampoline needs the types of module {module}, which the kernel does not have: \
         they require kernel 5.11 and CONFIG_DEBUG_INFO_BTF_MODULES; try kprobe:{module}:{name}",
        name = spec.name()
    )]
    NoModuleTypes {
        /// The probe.
        spec: ProbeSpec,
        /// The module.
        module: String,
    },
    /// This process may not read a module's types.
    #[error(
        "cannot probe {spec}: cannot read the types of module {module}: {source}. Reading them takes \
         CAP_SYS_ADMIN"
    )]
    ModuleTypes {
        /// The probe.
        spec: ProbeSpec,
        /// The module.
        module: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel refuses a trampoline for a function regardless of privileges.
    #[error("cannot probe {spec}: the kernel refuses a trampoline for it: {why}")]
    TrampolineRefused {
        /// The probe.
        spec: ProbeSpec,
        /// The verifier's reason.
        why: String,
    },
    /// A pattern of trampolines is not safe before 5.12.
    #[error(
        "cannot probe {spec}: before 5.12, the kernel does not keep a trampoline's program from recursing, and \
         a pattern may match functions that programs call: name functions in full, use kprobe:, or lift the \
         limit (--no-limit)"
    )]
    UnguardedTrampolines {
        /// The pattern.
        spec: ProbeSpec,
    },
    /// There is no such system call.
    #[error("cannot probe {spec}: the kernel has no system call of this name{}", suggestion(near))]
    UnknownSyscall {
        /// The probe.
        spec: ProbeSpec,
        /// Similar names.
        near: Vec<String>,
    },
    /// Nothing has the name that is to be listed.
    #[error("nothing that can be probed is called {name}{}", or_search(name, near, instead))]
    UnknownName {
        /// The name.
        name: String,
        /// Similar names of functions or tracepoints.
        near: Vec<String>,
        /// What may be meant.
        instead: Instead,
    },
    /// A pattern is not valid.
    #[error("`{}` is not a valid pattern: {}", Escaped(.0.pattern.as_bytes()), .0.what)]
    Pattern(BadPattern),
    /// A pattern matches nothing that can be probed.
    #[error("cannot probe {spec}: {}", no_match(*denied, *ambiguous, *untyped))]
    NoMatch {
        /// The pattern.
        spec: ProbeSpec,
        /// The number of matching functions that must not be probed.
        denied: usize,
        /// The number that share their name with others.
        ambiguous: usize,
        /// The number without types, which trampolines need.
        untyped: usize,
    },
    /// The patterns match more probes than the limit allows.
    #[error(
        "the patterns match {count} probes, and more than {most} take long to attach and add much \
         overhead: narrow {spec} or leave some out (-x GLOB), or lift the limit (--no-limit)"
    )]
    TooManyMatches {
        /// The pattern with the most matches.
        spec: ProbeSpec,
        /// The number of probes that the patterns match, as far as they are attached in the same way.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The kernel refuses to attach functions that a pattern matches at once, and there are more than the limit allows
    /// one by one.
    #[error(
        "the kernel refuses to attach {count} functions of {spec} at once ({source}), and more than {most} take long to \
         attach one by one: narrow {spec} or leave some out (-x GLOB), or lift the limit (--no-limit)"
    )]
    RefusedAtOnce {
        /// The pattern.
        spec: ProbeSpec,
        /// The number of functions.
        count: usize,
        /// The limit.
        most: usize,
        /// Why the kernel refuses them.
        source: io::Error,
    },
    /// The names of the kernel's functions could not be read.
    #[error("cannot read the names of the kernel's functions in /proc/kallsyms: {source}")]
    Symbols {
        /// Why.
        source: io::Error,
    },
    /// The address of a module's function is not known.
    #[error(
        "cannot probe {spec}: the kernel hides the addresses of its functions. It shows them to root, or with \
         CAP_SYSLOG, while the sysctl kernel.kptr_restrict is not 2"
    )]
    HiddenAddress {
        /// The probe.
        spec: ProbeSpec,
    },
    /// The counts of hits could not be read.
    #[error("cannot read the counts: {0}")]
    Counts(#[source] io::Error),
    /// Tracefs cannot be read.
    #[error("cannot read tracefs at /sys/kernel/tracing: {source}{}", tracefs_hint(source))]
    Tracefs {
        /// Why.
        source: io::Error,
    },
    /// A file of tracefs has unexpected contents.
    #[error("{path} has unexpected contents: {what}")]
    Format {
        /// The file.
        path: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The kernel refused to attach a probe.
    #[error("cannot attach {spec}: {source}{}", attach_hint(spec, source))]
    Attach {
        /// The probe.
        spec: ProbeSpec,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused a program that follows the descendants of a process.
    #[error("cannot follow the process: {0}")]
    Follow(#[source] io::Error),
    /// The eBPF object could not be loaded.
    #[error("the kernel does not accept the tracer's eBPF object{}", load_problem(.0.as_ref()))]
    Load(#[source] Box<dyn Error + Send + Sync>),
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The id is that of a thread, not of a process.
    #[error(
        "{tid} is a thread of process {process}: trace the process, or only the thread (-p {process} or -t {tid})"
    )]
    AThread {
        /// The id.
        tid: u32,
        /// The id of its process.
        process: u32,
    },
    /// `/proc` cannot be read.
    #[error("cannot read /proc/self: {0}; mount it: `mount -t proc proc /proc`")]
    NoProc(#[source] io::Error),
    /// `/proc` has other process ids than this process.
    #[error(
        "/proc shows another PID namespace than that of this process; start `unshare` with \
         --mount-proc, or run `mount -t proc proc /proc` in a mount namespace of its own"
    )]
    ForeignProc,
    /// Children have other process ids than this process.
    #[error(
        "a command would start in another PID namespace than this process; start `unshare --pid` \
         with --fork"
    )]
    ForeignChildren,
    /// The difference between the clock of this process and that of events is unknown.
    #[error(
        "cannot determine how the clock of this process differs from that of its children (time_namespaces(7)); \
         start `unshare --time` with --fork"
    )]
    ForeignClock,
    /// The capabilities of this process belong to another user namespace.
    #[error(
        "this process is in a user namespace of its own, such as that of a rootless container, \
         whose root may not trace; run as root of the host"
    )]
    ForeignUser,
    /// The PID namespace of a process or thread cannot be read.
    #[error("cannot find out the PID namespace of process {pid}: {source}")]
    ProcessNamespace {
        /// The process or thread.
        pid: u32,
        /// Why not.
        source: io::Error,
    },
    /// A thread is in a nested PID namespace.
    #[error(
        "thread {0} is in a nested PID namespace, where programs see other thread ids; select its \
         process (-p), or trace from that namespace or from the initial one"
    )]
    NestedThread(u32),
    /// Programs do not see the id of this process, one of several.
    #[error(
        "process {0} is in a nested PID namespace, where programs see other process ids; select it alone (-p {0}), or trace \
         from the initial namespace"
    )]
    NestedProcess(u32),
    /// The cgroup does not exist, or is not in the cgroup v2 file system.
    #[error("cannot trace the cgroup {}: {}; it has to be a directory of the cgroup v2 file system \
             (findmnt -t cgroup2 shows where that is mounted)", Escaped(path.as_os_str().as_bytes()), chain(source.as_ref()))]
    NoCgroup {
        /// Its directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The command could not be started.
    #[error("cannot run `{command}`{}: {source}", as_user(user.as_deref()))]
    Command {
        /// The command, escaped.
        command: String,
        /// The user to run it as, escaped, if it is another than the caller.
        user: Option<String>,
        /// Why.
        source: io::Error,
    },
    /// The pipe could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Waiting for events failed.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// The tally could not be read.
    #[error(transparent)]
    Tally(#[from] TallyError),
}

impl From<BadPattern> for TraceError {
    fn from(pattern: BadPattern) -> Self {
        Self::Pattern(pattern)
    }
}

impl TraceError {
    pub(crate) fn load(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Load(source.into())
    }
}

/// What has this name, or otherwise similar names.
fn meant(near: &[String], instead: &Instead) -> String {
    match instead.probes.is_empty() {
        true => format!("{}{instead}", suggestion(near)),
        false => instead.to_string(),
    }
}

/// What has this name, or otherwise similar names, or otherwise how to find names that contain it.
fn or_search(name: &str, near: &[String], instead: &Instead) -> String {
    match meant(near, instead) {
        nothing if nothing.is_empty() => {
            format!("; `probe list '*{name}*'` lists names that contain it")
        }
        meant => meant,
    }
}

/// How to probe one of the functions that share a name.
fn by_address(spec: &ProbeSpec, first: u64) -> String {
    let provider = match spec.provider() {
        Provider::Fexit | Provider::Kretprobe => Provider::Kretprobe,
        _ => Provider::Kprobe,
    };
    match first {
        0 => String::new(),
        _ => format!(
            ". Probe one by its address, which is in /proc/kallsyms: {}:{first:#x}",
            provider.name()
        ),
    }
}

/// The user that a command runs as, as a part of a sentence.
fn as_user(user: Option<&str>) -> String {
    user.map(|user| format!(" as user {user}")).unwrap_or_default()
}

/// Explains why a pattern matches nothing that can be probed.
fn no_match(denied: usize, ambiguous: usize, untyped: usize) -> String {
    match (denied, ambiguous, untyped) {
        (0, 0, 0) => "nothing in the kernel matches this pattern".to_owned(),
        (denied, 0, 0) => format!(
            "{denied} functions match, but must not be probed: the kernel forbids it, or the tracer's \
             own programs call them. To try one anyway, name it in full"
        ),
        (denied, ambiguous, 0) => format!(
            "{} functions match, but {ambiguous} share their name with others, and {denied} must not \
             be probed",
            denied + ambiguous
        ),
        (denied, ambiguous, untyped) => format!(
            "{} functions match, but {untyped} have no types in the kernel, which trampolines need, \
             {ambiguous} share their name with others, and {denied} must not be probed",
            denied + ambiguous + untyped
        ),
    }
}

fn attach_hint(spec: &ProbeSpec, error: &io::Error) -> String {
    let lacks_uprobes = || {
        spec.provider().is_in_program()
            && Capabilities::effective().is_ok_and(Capabilities::may_lack_uprobes)
    };
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => lockdown_hint().unwrap_or_else(|| {
            let needed = match lacks_uprobes() {
                true => FOR_UPROBES,
                false => "CAP_PERFMON and kernel.perf_event_paranoid at most 2",
            };
            format!(". Run as root, or with {needed}")
        }),
        Some(libc::EMFILE) => MORE_DESCRIPTORS.to_owned(),
        _ => String::new(),
    }
}

fn lockdown_hint() -> Option<String> {
    lockdown::hint(lockdown::level().as_deref())
}

/// What reading tracefs takes.
const TO_READ_TRACEFS: &str = "CAP_DAC_READ_SEARCH, or a tracefs that your group may read: mount -o \
                                          remount,mode=750,gid=GROUP /sys/kernel/tracing";

/// What it takes to have a tracefs that can be read.
pub(crate) fn for_tracefs(error: &io::Error) -> &'static str {
    for_tracefs_at(lockdown::level().as_deref(), error)
}

/// The same at this level of lockdown.
fn for_tracefs_at(level: Option<&str>, error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) if lockdown::forbids_tracing(level) => lockdown::CHANGE,
        Some(libc::EACCES) => TO_READ_TRACEFS,
        // Of mount(2).
        Some(libc::EPERM) => {
            "CAP_SYS_ADMIN to mount tracefs, or a mounted tracefs: mount -t tracefs tracefs /sys/kernel/tracing; for a \
             container, mount it on the host and pass it with -v /sys/kernel/tracing:/sys/kernel/tracing"
        }
        Some(libc::ENODEV | libc::ENOENT) => "a kernel with CONFIG_TRACING, and a mounted /sys",
        _ => "a mounted tracefs: mount -t tracefs tracefs /sys/kernel/tracing",
    }
}

/// What to do about a tracefs that cannot be read.
fn tracefs_hint(error: &io::Error) -> String {
    let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
    let lockdown = if is_refused { lockdown_hint() } else { None };
    lockdown.unwrap_or_else(|| format!(". That requires {}", for_tracefs(error)))
}

const MORE_DESCRIPTORS: &str = ". Raise RLIMIT_NOFILE (ulimit -n)";

/// Why a map or program was refused, and what to do about it.
fn load_problem(error: &(dyn Error + Send + Sync + 'static)) -> String {
    // Lockdown hides helpers from the verifier, whose long log reports them as unknown.
    lockdown_hint().unwrap_or_else(|| format!(": {}{}", chain(error), load_hint(error)))
}

/// What to do about a refused map or program. Before 5.11, the kernel reports EPERM both for a lack
/// of lockable memory and for a missing privilege.
fn load_hint(error: &(dyn Error + Send + Sync + 'static)) -> &'static str {
    let errno = |error: &(dyn Error + 'static)| error.downcast_ref::<io::Error>()?.raw_os_error();
    let hint = |error| match errno(error)? {
        libc::EPERM if may_load() => Some(
            ". A security module or the kernel's configuration forbids it, although this process has the \
             capabilities; or, before kernel 5.11, raise RLIMIT_MEMLOCK (ulimit -l), which limits the memory of maps \
             there",
        ),
        libc::EPERM => Some(
            ". Run as root or, before kernel 5.11, raise RLIMIT_MEMLOCK (ulimit -l), which limits the \
             memory of maps there",
        ),
        libc::EMFILE => Some(MORE_DESCRIPTORS),
        _ => None,
    };
    causes(error).find_map(hint).unwrap_or_default()
}

/// Whether this process has every capability that loading a program takes.
fn may_load() -> bool {
    let held = Capabilities::effective().unwrap_or(Capabilities::NONE);
    held.missing_to_trace() == Capabilities::NONE
}

/// The lines of a message that are shown: the first ones, and the last ones, in which a verifier says why it refuses.
const FIRST: usize = 2;
const LAST: usize = 8;

/// An error and its causes in one line. A verifier's log may have thousands of lines: most are left out.
fn chain(error: &(dyn Error + Send + Sync + 'static)) -> String {
    let mut text = error.to_string();
    for next in causes(error).map(ToString::to_string) {
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
    }
    let left_out;
    let mut lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if let Some(others) = lines.len().checked_sub(FIRST + LAST).filter(|others| *others > 0) {
        left_out = format!("({others} lines are left out)");
        lines.splice(FIRST..FIRST + others, [&*left_out]);
    }
    lines.join("; ")
}

/// The error itself, and its causes.
fn causes<'e>(
    error: &'e (dyn Error + Send + Sync + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error;
    iter::successors(Some(first), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracefs_is_not_mounted_against_lockdown() {
        let advice = |level, errno| for_tracefs_at(level, &io::Error::from_raw_os_error(errno));
        for errno in [libc::EPERM, libc::EACCES] {
            assert_eq!(advice(Some("confidentiality"), errno), lockdown::CHANGE);
            assert_ne!(advice(Some("integrity"), errno), lockdown::CHANGE);
        }
        assert_ne!(advice(Some("confidentiality"), libc::ENOENT), lockdown::CHANGE);
    }

    #[test]
    fn most_of_a_long_log_is_left_out() {
        let log = |lines| (1..=lines).map(|line| format!("{line}:\n")).collect::<String>();
        let shown = |lines| TraceError::load(io::Error::other(log(lines))).to_string();
        assert!(shown(10).ends_with("object: 1:; 2:; 3:; 4:; 5:; 6:; 7:; 8:; 9:; 10:"));
        let end = "object: 1:; 2:; (9990 lines are left out); 9993:; 9994:; 9995:; 9996:; 9997:; 9998:; 9999:; 10000:";
        assert!(shown(10_000).ends_with(end), "{}", shown(10_000));
    }

    #[test]
    fn errors_of_loading_name_the_limit_to_raise() {
        let load = |errno| TraceError::load(io::Error::from_raw_os_error(errno)).to_string();
        for (errno, what) in [
            (libc::EPERM, "RLIMIT_MEMLOCK (ulimit -l)"),
            (libc::EMFILE, "RLIMIT_NOFILE (ulimit -n)"),
        ] {
            assert!(load(errno).contains(what), "{}", load(errno));
        }
        assert!(!load(libc::EINVAL).contains("RLIMIT"));
    }
}
