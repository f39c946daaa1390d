//! Kernel functions by trampolines: each needs a program of its own.

use super::attach::{Attacher, Link, Part};
use super::expand::{Choice, Expansion, LeftOut};
use super::instead::instead;
use super::kprobe::in_module;
use super::{Bulk, Caller, Fields, Hook, Host};
use crate::error::{Result, TraceError};
use crate::kernel::btf::NoPrototype;
use crate::kernel::clones;
use crate::kernel::features;
use crate::kernel::symbols::{self, NO_MODULE};
use crate::kernel::types::{KernelTypes, TypedFunction};
use crate::resolve::{FunctionFields, Moment};
use crate::spec::ProbeSpec;
use probe_perf::pattern::Glob;
use probe_sys::bpf;
use probe_sys::bpf::load::Trampoline;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The entry or the return of a kernel function whose types are known. At the return, the arguments
/// are still available.
pub(super) struct Fentry {
    pub(super) returns: bool,
}

impl Hook for Fentry {
    fn switched_off(&self, _spec: &ProbeSpec) -> Option<&'static str> {
        features::ftrace_is_off()
    }

    fn list(&self, spec: &ProbeSpec, host: &mut Host) -> Result<Vec<String>> {
        if !spec.is_glob() {
            return function(spec, host).map(|_| vec![in_module(spec, spec.name())]);
        }
        Ok(matching(spec, &[], host)?.0.iter().map(|name| in_module(spec, name)).collect())
    }

    fn expand(&self, pattern: &ProbeSpec, choice: &Choice, host: &mut Host) -> Result<Expansion> {
        if !choice.no_limit && !features::guards_trampolines() {
            return Err(TraceError::UnguardedTrampolines { spec: pattern.clone() });
        }
        let (names, left_out) = matching(pattern, &choice.exclude, host)?;
        Expansion::of_pattern(&names, left_out)
    }

    /// The programs have no registers. On arm64, trampolines make a frame for the function.
    fn caller(&self, _spec: &ProbeSpec, host: &mut Host) -> Caller {
        match cfg!(target_arch = "x86_64") && host.types.follow_frame_pointers() {
            true => Caller::Lost,
            false => Caller::InStack,
        }
    }

    fn bulk(&self) -> Bulk {
        Bulk::OwnPrograms
    }

    fn fields(&self, spec: &ProbeSpec, _as_call: bool, host: &mut Host) -> Fields {
        let types = function(spec, host)?.types;
        let moment = if self.returns { Moment::Exit } else { Moment::Entry };
        match FunctionFields::trampoline(types, spec.name(), moment) {
            Ok(source) => Ok(Box::new(source)),
            Err(_) => Err(TraceError::NoTrampoline { spec: spec.clone() }),
        }
    }

    fn notes(&self, spec: &ProbeSpec, _as_call: bool, host: &mut Host) -> Vec<String> {
        clones::note(spec.name(), &host.clones().made_of(spec.name())).into_iter().collect()
    }

    fn attach(
        &self,
        attacher: &mut Attacher<'_>,
        spec: &ProbeSpec,
        _part: Part,
        number: u32,
    ) -> Result<Link> {
        let function = function(spec, &mut attacher.host)?;
        let module = match &function.module {
            Some(module) => Some(module_types(&mut attacher.module_types, spec, module)?),
            None => None,
        };
        let trampoline = Trampoline { module, function: function.id.0, returns: self.returns };
        let name = format!("{}_by_number", spec.provider().name());
        let program = match attacher.object.trampoline(&name, trampoline, number)? {
            Ok(program) => program,
            Err(error) if is_refusal(&error.source) => return Err(refused(spec, &error.log)),
            Err(error) => return Err(TraceError::load(error)),
        };
        match bpf::open_trampoline(program.as_fd()) {
            Ok(link) => Ok(Link::Program { link, program }),
            Err(error) if is_refusal(&error) => Err(refused(spec, &error.to_string())),
            Err(source) => Err(TraceError::Attach { spec: spec.clone(), source }),
        }
    }
}

/// The functions with types that match a pattern and none of `exclude`, and what is left out.
fn matching(
    pattern: &ProbeSpec,
    exclude: &[Glob],
    host: &mut Host,
) -> Result<(Vec<String>, LeftOut)> {
    check_module(pattern, &mut host.types)?;
    let (mut names, mut left_out) = host.functions(pattern, exclude)?;
    host.types.expect_many();
    names.retain(|name| {
        let counted = match host.types.function(name, pattern.module()) {
            Ok(function) if count(&function, name, host) > 1 => Err(NoPrototype::Ambiguous),
            function => function.map(drop),
        };
        match counted {
            Ok(()) => {}
            Err(NoPrototype::Unknown) => left_out.untyped += 1,
            Err(NoPrototype::Ambiguous) => left_out.ambiguous += 1,
        }
        counted.is_ok()
    });
    Ok((names, left_out))
}

/// The function that a trampoline is for.
fn function(spec: &ProbeSpec, host: &mut Host) -> Result<TypedFunction> {
    check_module(spec, &mut host.types)?;
    let function = host.types.function(spec.name(), spec.module());
    let count = match &function {
        Ok(function) => count(function, spec.name(), host),
        // Functions that share a name and differ in their types have none.
        Err(_) => host.clones().count(spec.module().unwrap_or(NO_MODULE), spec.name()),
    };
    match function {
        _ if count > 1 => {
            let first = symbols::look_up(spec.name(), spec.module()).first;
            Err(TraceError::Ambiguous { spec: spec.clone(), count, first })
        }
        Ok(function) => Ok(function),
        Err(_) => Err(TraceError::NoTrampoline { spec: spec.clone() }),
    }
}

/// The number of functions that have the name of this one where it is. Types may list one of them, and the kernel would
/// take the first that it finds.
fn count(function: &TypedFunction, name: &str, host: &mut Host) -> usize {
    host.clones().count(function.module.as_deref().unwrap_or(NO_MODULE), name)
}

/// Checks that the types of the function's module are known, if the spec names a module.
fn check_module(spec: &ProbeSpec, types: &mut KernelTypes) -> Result<()> {
    let Some(name) = spec.module().filter(|name| *name != NO_MODULE) else { return Ok(()) };
    if types.modules(Some(name)).next().is_some() {
        return Ok(());
    }
    let (named, module) = (spec.clone(), name.to_owned());
    Err(match symbols::is_loaded(name) {
        true => TraceError::NoModuleTypes { spec: named, module },
        false => TraceError::UnknownModule { spec: named, module, instead: instead(spec) },
    })
}

/// The types of a module, opened once.
fn module_types<'t>(
    opened: &'t mut HashMap<String, OwnedFd>,
    spec: &ProbeSpec,
    module: &str,
) -> Result<BorrowedFd<'t>> {
    if !opened.contains_key(module) {
        let (spec, name) = (|| spec.clone(), || module.to_owned());
        let types = bpf::btf::of_module(module)
            .map_err(|source| TraceError::ModuleTypes { spec: spec(), module: name(), source })?
            .ok_or_else(|| TraceError::NoModuleTypes { spec: spec(), module: name() })?;
        opened.insert(name(), types);
    }
    Ok(opened[module].as_fd())
}

/// Whether the kernel refuses a trampoline there regardless of privileges.
fn is_refusal(error: &io::Error) -> bool {
    /// `ENOTSUPP`, which is not meant to reach user space.
    const NOT_SUPPORTED: i32 = 524;
    const REFUSALS: [i32; 7] = [
        libc::EINVAL,
        libc::ENOENT,
        libc::EOPNOTSUPP,
        NOT_SUPPORTED,
        // Another program is attached there already, or too many are.
        libc::EBUSY,
        libc::E2BIG,
        // ftrace does not patch this function.
        libc::ENODEV,
    ];
    error.raw_os_error().is_some_and(|errno| REFUSALS.contains(&errno))
}

/// Finds the reason in the verifier's log: its last line, apart from statistics.
fn refused(spec: &ProbeSpec, log: &str) -> TraceError {
    const STATISTICS: [&str; 3] = ["processed ", "stack depth ", "verification time "];
    let is_reason =
        |line: &&str| !line.is_empty() && !STATISTICS.iter().any(|one| line.starts_with(one));
    let why = log.lines().map(str::trim).rfind(is_reason);
    TraceError::TrampolineRefused { spec: spec.clone(), why: why.unwrap_or_default().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_a_refused_trampoline_fits_a_line() {
        let spec = "fexit:do_exit".parse().unwrap();
        let log = "func#0 @0\n\
            Attaching fexit/fmod_ret to __noreturn function 'do_exit' is rejected.\n\
            verification time 7 usec\nstack depth 0+0\nprocessed 0 insns (limit 1000000)\n\n";
        let message = refused(&spec, log).to_string();
        let expected = "cannot probe fexit:do_exit: the kernel refuses a trampoline for it: \
            Attaching fexit/fmod_ret to __noreturn function 'do_exit' is rejected.";
        assert_eq!(message, expected);
        for (errno, is_it) in [(libc::EINVAL, true), (libc::EPERM, false), (libc::ENOMEM, false)] {
            assert_eq!(is_refusal(&io::Error::from_raw_os_error(errno)), is_it, "{errno}");
        }
    }
}
