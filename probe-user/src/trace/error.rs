//! What can go wrong with a trace, and what to do about it.

use super::binary::BinaryError;
use super::capabilities::Capabilities;
use super::spec::{ProbeSpec, SpecError};
use crate::error::{OpenError, PollError, TallyError};
use crate::escape::Escaped;
use crate::nearest::suggestion;
use crate::pattern::BadPattern;
use crate::perf::PerfError;
use probe_common::counter::COUNTERS;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Why a trace failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The process may not load programs.
    #[error(
        "a privilege is missing ({missing}): tracing needs root, or the capabilities CAP_BPF and \
         CAP_PERFMON"
    )]
    Capability {
        /// What it lacks.
        missing: Capabilities,
    },
    /// There is nothing to trace.
    #[error("no probe was given")]
    NoProbe,
    /// A field or a predicate of a probe names what there is not, or what cannot be read.
    #[error(transparent)]
    Field(#[from] SpecError),
    /// The kernel has no kprobes.
    #[error(
        "cannot probe {spec}: this kernel has no kprobes. It needs CONFIG_KPROBES, \
         CONFIG_KPROBE_EVENTS and CONFIG_PERF_EVENTS; tracepoint:, rawtp: and uprobe: work without"
    )]
    NoKprobes {
        /// The probe.
        spec: ProbeSpec,
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
    /// A place of a program or library cannot be probed.
    #[error("cannot probe {spec}: {source}")]
    Binary {
        /// The probe.
        spec: ProbeSpec,
        /// Why.
        source: BinaryError,
    },
    /// Entry and return of something that is not where a function is entered.
    #[error(
        "cannot tell or time calls of {spec}: that is for functions by their names, FUNCTION or \
         kprobe:FUNCTION of the kernel and uprobe:FILE:FUNCTION, and system calls, ksyscall:NAME"
    )]
    NoCall {
        /// The probe.
        spec: ProbeSpec,
    },
    /// A counter where no calls are told.
    #[error(
        "a counter tells what a call costs, from where it is entered to where it returns: that takes --ret \
         (TracerBuilder::calls)"
    )]
    CounterWithoutCalls,
    /// A counter twice.
    #[error("{event} is counted once in a call: leave the other one out")]
    CounterTwice {
        /// What is counted.
        event: String,
    },
    /// More counters than a call is told with.
    #[error("{counters} counters are more than the {COUNTERS} that a call can be told with")]
    TooManyCounters {
        /// How many.
        counters: usize,
    },
    /// A counter that calls are to be told with cannot be had.
    #[error(transparent)]
    Counter(PerfError),
    /// There is no such function.
    #[error(
        "cannot probe {spec}: the kernel has no function of this name, or has inlined it everywhere{}",
        suggestion(near)
    )]
    UnknownFunction {
        /// The probe.
        spec: ProbeSpec,
        /// Names that are like it.
        near: Vec<String>,
    },
    /// The function may not be probed.
    #[error(
        "cannot probe {spec}: the kernel does not allow probes on this function (it is on the kprobe blacklist)"
    )]
    Blacklisted {
        /// The probe.
        spec: ProbeSpec,
    },
    /// The module is not loaded, or has no functions.
    #[error(
        "cannot probe {spec}: no module {module} is loaded (a tracepoint is written \
             tracepoint:CATEGORY:NAME)"
    )]
    UnknownModule {
        /// The probe.
        spec: ProbeSpec,
        /// The module.
        module: String,
    },
    /// No instruction that can be probed begins at the offset.
    #[error(
        "cannot probe {spec}: the kernel takes no probe there. An offset has to be where an instruction \
         of the function begins (objdump -d vmlinux shows them), not in what ftrace keeps for itself"
    )]
    NoInstruction {
        /// The probe.
        spec: ProbeSpec,
    },
    /// Several functions have this name.
    #[error(
        "cannot probe {spec}: {count} functions of the kernel have this name, and it does not say which is meant"
    )]
    Ambiguous {
        /// The probe.
        spec: ProbeSpec,
        /// How many.
        count: usize,
    },
    /// There is no such tracepoint.
    #[error("cannot probe {spec}: the kernel has no tracepoint of this name{}", suggestion(near))]
    UnknownTracepoint {
        /// The probe.
        spec: ProbeSpec,
        /// Names that are like it.
        near: Vec<String>,
    },
    /// No trampoline can be made for a function.
    #[error(
        "cannot probe {spec}: trampolines are for functions that the types of the kernel (CONFIG_DEBUG_INFO_BTF) \
         or, since 5.11, of its modules (CONFIG_DEBUG_INFO_BTF_MODULES) have, once; kprobe:{name} may do",
        name = spec.name()
    )]
    NoTrampoline {
        /// The probe.
        spec: ProbeSpec,
    },
    /// The kernel does not tell the types of a module.
    #[error(
        "cannot probe {spec}: a trampoline takes the types of module {module}, which the kernel does not tell: \
         it does since 5.11, with CONFIG_DEBUG_INFO_BTF_MODULES; kprobe:{module}:{name} may do",
        name = spec.name()
    )]
    NoModuleTypes {
        /// The probe.
        spec: ProbeSpec,
        /// The module.
        module: String,
    },
    /// The kernel has types of a module, but does not give them to this process.
    #[error(
        "cannot probe {spec}: the kernel does not give out the types of module {module}: {source}. It takes \
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
    /// The kernel makes no trampoline for a function, whoever asks.
    #[error("cannot probe {spec}: the kernel makes no trampoline for it: {why}")]
    TrampolineRefused {
        /// The probe.
        spec: ProbeSpec,
        /// What it says.
        why: String,
    },
    /// Trampolines of many functions would not be safe.
    #[error(
        "cannot probe {spec}: before 5.12, the kernel does not keep a trampoline's program from running inside \
         itself, and a pattern may mean what programs call: name functions in full, use kprobe:, or insist \
         (--force)"
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
        /// Names that are like it.
        near: Vec<String>,
    },
    /// What should be a pattern is none.
    #[error("`{pattern}` is no pattern of names: {what}", pattern = Escaped(pattern.as_bytes()))]
    Pattern {
        /// What was written.
        pattern: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A pattern stands for nothing that can be probed.
    #[error("cannot probe {spec}: {}", no_match(*denied, *ambiguous, *untyped))]
    NoMatch {
        /// The pattern.
        spec: ProbeSpec,
        /// How many functions match that must not be probed.
        denied: usize,
        /// And how many that share their name with others.
        ambiguous: usize,
        /// And how many that the kernel does not tell the types of, if a trampoline takes them.
        untyped: usize,
    },
    /// Patterns stand for more than one would trace by mistake.
    #[error(
        "the patterns stand for {count} probes, and more than {most} take long to attach and cost much \
         when they are hit: narrow {spec} or leave some out (-x GLOB), or lift the limit (--force)"
    )]
    TooManyMatches {
        /// The pattern that stands for the most.
        spec: ProbeSpec,
        /// How many probes all patterns stand for.
        count: usize,
        /// How many are attached without being told to.
        most: usize,
    },
    /// The names of the kernel's functions could not be read.
    #[error("cannot read the names of the kernel's functions in /proc/kallsyms: {source}")]
    Symbols {
        /// Why.
        source: io::Error,
    },
    /// It is not known where a function of a module is.
    #[error(
        "cannot probe {spec}: the kernel does not say where its functions are. It does for root, or with \
         CAP_SYSLOG, while the sysctl kernel.kptr_restrict is not 2"
    )]
    HiddenAddress {
        /// The probe.
        spec: ProbeSpec,
    },
    /// The counts of hits could not be read.
    #[error("cannot read what was counted: {source}")]
    Counts {
        /// Why.
        source: io::Error,
    },
    /// Tracefs is not there.
    #[error(
        "cannot read tracefs at /sys/kernel/tracing: {source}. Mount it: mount -t tracefs tracefs /sys/kernel/tracing"
    )]
    Tracefs {
        /// Why.
        source: io::Error,
    },
    /// A file of tracefs says something unexpected.
    #[error("{path} does not have the contents it should have: {what}")]
    Format {
        /// The file.
        path: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The kernel refused to attach a probe.
    #[error("cannot attach {spec}: {source}{}", attach_hint(source))]
    Attach {
        /// The probe.
        spec: ProbeSpec,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused a program that follows the descendants of a process.
    #[error("cannot follow the process: {source}")]
    Follow {
        /// Why.
        source: io::Error,
    },
    /// The eBPF object was not accepted.
    #[error("the kernel does not accept the tracer's eBPF object: {}{}", chain(source.as_ref()), load_hint(source.as_ref()))]
    Load {
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Its id.
        pid: u32,
    },
    /// There is no such cgroup, or it is none of version 2.
    #[error("cannot trace the cgroup {}: {}; a directory of the cgroup v2 file system is wanted, like \
             /sys/fs/cgroup/user.slice", Escaped(path.as_os_str().as_bytes()), chain(source.as_ref()))]
    NoCgroup {
        /// Its directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The command could not be started.
    #[error("cannot run `{command}`: {source}")]
    Command {
        /// The command, escaped.
        command: String,
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
    fn from(BadPattern { pattern, what }: BadPattern) -> Self {
        Self::Pattern { pattern, what }
    }
}

impl TraceError {
    pub(crate) fn load(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Load { source: source.into() }
    }
}

/// Why a pattern stands for nothing.
fn no_match(denied: usize, ambiguous: usize, untyped: usize) -> String {
    match (denied, ambiguous, untyped) {
        (0, 0, 0) => "nothing that the kernel has is matched by this pattern".to_owned(),
        (denied, 0, 0) => format!(
            "{denied} functions match, but must not be probed: the kernel forbids it, or the tracer's \
             own programs run them. A name in full is tried, whatever it is"
        ),
        (denied, ambiguous, 0) => format!(
            "{} functions match, but {ambiguous} have names that others have, too, and {denied} must not \
             be probed",
            denied + ambiguous
        ),
        (denied, ambiguous, untyped) => format!(
            "{} functions match, but of {untyped} the kernel does not tell the types, which trampolines \
             take, {ambiguous} have names that others have, too, and {denied} must not be probed",
            denied + ambiguous + untyped
        ),
    }
}

fn attach_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            ". Run as root, or with CAP_PERFMON and kernel.perf_event_paranoid at most 2"
        }
        Some(libc::EMFILE) => MORE_DESCRIPTORS,
        _ => "",
    }
}

const MORE_DESCRIPTORS: &str = ". Raise RLIMIT_NOFILE (ulimit -n)";

/// What to do about a map or program that was refused. Before 5.11, for want of lockable memory, the
/// kernel says EPERM as it does for want of a privilege.
fn load_hint(error: &(dyn std::error::Error + Send + Sync + 'static)) -> &'static str {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            Some(libc::EPERM) => {
                return ". Run as root; or, before kernel 5.11, raise RLIMIT_MEMLOCK (ulimit -l), which \
                        maps count against there";
            }
            Some(libc::EMFILE) => return MORE_DESCRIPTORS,
            _ => {}
        }
        cause = error.source();
    }
    ""
}

/// An error and its causes in one line; a verifier's log would be many.
fn chain(error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_tells_what_to_do() {
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
