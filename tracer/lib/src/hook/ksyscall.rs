//! System calls: probed at the kernel function that implements one, with the arguments of its
//! tracepoint. 32-bit calls have functions of their own, each of which is a probe of its own.

use super::attach::{Attacher, Link, Part};
use super::expand::{Choice, Expansion};
use super::kprobe::{self, Kprobe};
use super::{Caller, Fields, Hook, Host, syscall_notes};
use crate::error::{Result, TraceError};
use crate::kernel::compat_calls::like;
use crate::kernel::features;
use crate::kernel::symbols;
use crate::object::Side;
use crate::resolve::SyscallFields;
use crate::spec::{ProbeSpec, Provider};
use crate::tracefs::{Format, Tracefs};
use probe_perf::nearest::nearest;
use probe_perf::pattern::Glob;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

/// The prefix of these functions, which depends on the architecture
/// (`arch/*/include/asm/syscall_wrapper.h`).
#[cfg(target_arch = "aarch64")]
const FUNCTION: &str = "__arm64_sys_";
#[cfg(not(target_arch = "aarch64"))]
const FUNCTION: &str = "__x64_sys_";

/// The category of these tracepoints, the prefix of their names, and both.
const CATEGORY: &str = "syscalls";
const SIDE: &str = "sys_enter_";
const TRACEPOINT: &str = "syscalls:sys_enter_";

/// The entry of a system call.
pub(super) struct Ksyscall;

impl Hook for Ksyscall {
    fn reads_registers(&self) -> bool {
        true
    }

    fn switched_off(&self, _spec: &ProbeSpec) -> Option<&'static str> {
        features::kprobes_are_off().or_else(features::ftrace_is_off)
    }

    fn may_be_skipped(&self) -> bool {
        true
    }

    fn list(&self, spec: &ProbeSpec, host: &mut Host) -> Result<Vec<String>> {
        kprobe::pmu(spec)?;
        if spec.is_glob() {
            return names(spec, host);
        }
        let own = self.own(spec, host);
        self.fields(&own, false, host)?;
        Ok(vec![own.name().to_owned()])
    }

    fn expand(&self, pattern: &ProbeSpec, choice: &Choice, host: &mut Host) -> Result<Expansion> {
        choice.names(pattern, names(pattern, host)?)
    }

    /// A call that only 32-bit programs have need not be marked as such.
    fn own(&self, spec: &ProbeSpec, host: &mut Host) -> ProbeSpec {
        let name = spec.name();
        let is_native = |tracefs: &Tracefs| has_tracepoint(tracefs, name);
        if spec.compat_call().is_none()
            && host.tracefs().is_ok_and(|tracefs| !is_native(tracefs))
            && host.compat_calls().function(name).is_some()
        {
            return spec.for_compat_call(name);
        }
        spec.clone()
    }

    /// The functions that 32-bit programs call instead.
    fn besides(
        &self,
        spec: &ProbeSpec,
        own: &[ProbeSpec],
        choice: &Choice,
        host: &mut Host,
    ) -> Result<Vec<ProbeSpec>> {
        if spec.compat_call().is_some() {
            return Ok(Vec::new());
        }
        let tracefs = host.tracefs()?;
        let native = own.iter().filter(|one| one.compat_call().is_none());
        let native: Vec<_> = native.map(|one| own_name(tracefs, one.name()).into_owned()).collect();
        let known: HashSet<_> = own.iter().filter_map(ProbeSpec::compat_call).collect();
        let calls = host.compat_calls();
        let all: BTreeSet<_> = native.iter().flat_map(|name| calls.of_call(name)).collect();
        let wanted = all.iter().filter(|name| !known.contains(&***name));
        let specs = wanted.map(|name| spec.for_compat_call(name));
        Ok(specs.filter(|one| !choice.excludes(one.name())).collect())
    }

    fn fields(&self, spec: &ProbeSpec, as_call: bool, host: &mut Host) -> Fields {
        let Some(name) = spec.compat_call() else {
            let format = format(spec, host.tracefs()?)?;
            return Ok(Box::new(SyscallFields::new(spec.name(), format, as_call)));
        };
        compat_function(spec, name, host)?;
        let tracefs = host.tracefs()?;
        let (format, common) = like(name)
            .filter(|(native, _)| has_tracepoint(tracefs, native))
            .find_map(|(native, common)| Some((format_of(spec, native, tracefs).ok()?, common)))
            .unwrap_or((Format::default(), Some(0)));
        let format = match common {
            Some(common) => format.with_first_arguments(common),
            None => format,
        };
        Ok(Box::new(SyscallFields::compat(name, format, as_call)))
    }

    fn caller(&self, _spec: &ProbeSpec, host: &mut Host) -> Caller {
        if host.types.follow_frame_pointers() { Caller::AtEntry } else { Caller::InStack }
    }

    fn notes(&self, spec: &ProbeSpec, as_call: bool, _host: &mut Host) -> Vec<String> {
        let call = spec.compat_call().unwrap_or(spec.name());
        let mut notes = syscall_notes::notes(call, spec.predicate(), as_call);
        // Without addresses, nothing shows which functions serve 32-bit programs as well.
        if spec.compat_call().is_none() && symbols::are_hidden() {
            notes.push(format!(
                "system calls of 32-bit programs are not seen, because the kernel hides the addresses of their functions: {}",
                symbols::TO_SEE
            ));
        }
        notes
    }

    /// Probes the function that implements the system call.
    fn attach(
        &self,
        attacher: &mut Attacher<'_>,
        spec: &ProbeSpec,
        part: Part,
        number: u32,
    ) -> Result<Link> {
        let function = match spec.compat_call() {
            Some(name) => compat_function(spec, name, &mut attacher.host)?,
            None => format!("{FUNCTION}{}", own_name(attacher.host.tracefs()?, spec.name())),
        };
        let function = spec.named_as(Provider::Kprobe, &function);
        Kprobe { returns: false }.attach(attacher, &function, part, number)
    }

    fn calls(&self, _spec: &ProbeSpec) -> Option<Side> {
        Some(Side::Kernel)
    }
}

/// The kernel's name of a system call.
fn own_name<'n>(tracefs: &Tracefs, name: &'n str) -> Cow<'n, str> {
    let own = tracefs.own_name(CATEGORY, &format!("{SIDE}{name}")).into_owned();
    own.strip_prefix(SIDE).map_or(name.into(), |own| own.to_owned().into())
}

/// Whether a system call of this name has a tracepoint, as those of 64-bit programs have.
fn has_tracepoint(tracefs: &Tracefs, name: &str) -> bool {
    let event = format!("{SIDE}{}", own_name(tracefs, name));
    tracefs.category(CATEGORY).is_some_and(|events| events.join(event).is_dir())
}

/// The function of a 32-bit system call.
fn compat_function(spec: &ProbeSpec, name: &str, host: &mut Host) -> Result<String> {
    let calls = host.compat_calls();
    calls.function(name).ok_or_else(|| {
        let near = nearest(name, calls.names().map(str::to_owned));
        TraceError::UnknownSyscall { spec: spec.clone(), near }
    })
}

/// The arguments of a system call, taken from its tracepoint.
fn format(spec: &ProbeSpec, tracefs: &Tracefs) -> Result<Format> {
    match format_of(spec, spec.name(), tracefs) {
        Err(TraceError::UnknownTracepoint { .. }) => {
            let near = nearest(spec.name(), native_names(tracefs, "*")?);
            Err(TraceError::UnknownSyscall { spec: spec.clone(), near })
        }
        format => format,
    }
}

/// The arguments of the system call of this name.
fn format_of(spec: &ProbeSpec, name: &str, tracefs: &Tracefs) -> Result<Format> {
    tracefs.format(&spec.named_as(Provider::Tracepoint, &format!("{TRACEPOINT}{name}")))
}

/// The system calls that a pattern matches, in order; those of 32-bit programs only if they have no others of their names,
/// or if the pattern asks for them.
fn names(pattern: &ProbeSpec, host: &mut Host) -> Result<Vec<String>> {
    let only = pattern.compat_call();
    let native = match only {
        Some(_) => Vec::new(),
        None => native_names(host.tracefs()?, pattern.name())?,
    };
    let glob = Glob::new(only.unwrap_or(pattern.name()))?;
    let calls = host.compat_calls().names().filter(|name| glob.matches(name));
    let calls: Vec<_> = calls.map(str::to_owned).collect();
    let tracefs = host.tracefs()?;
    let others = calls.iter().filter(|name| only.is_some() || !has_tracepoint(tracefs, name));
    let others = others.map(|name| pattern.for_compat_call(name).name().to_owned());
    Ok(native.into_iter().chain(others).collect())
}

/// The system calls of 64-bit programs that a pattern matches, in order.
fn native_names(tracefs: &Tracefs, pattern: &str) -> Result<Vec<String>> {
    let glob = Glob::new(&format!("{TRACEPOINT}{pattern}"))?;
    let own = |name: String| name.strip_prefix(TRACEPOINT).map(str::to_owned);
    Ok(tracefs.matching(&glob).into_iter().filter_map(own).collect())
}
