//! Functions by trampolines: a program for each, loaded for it.

use super::super::error::TraceError;
use super::super::spec::{ProbeSpec, Provider};
use super::{Attacher, Link};
use crate::sys::bpf;
use crate::sys::bpf::load::Trampoline;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

impl Attacher<'_> {
    pub(super) fn trampoline(&mut self, spec: &ProbeSpec, number: u32) -> Result<Link, TraceError> {
        let function = self.types.trampoline(spec)?;
        let module = match &function.module {
            Some(module) => Some(module_types(&mut self.module_types, spec, module)?),
            None => None,
        };
        let returns = spec.provider() == Provider::Fexit;
        let place = Trampoline { module, function: function.id.0, returns };
        let name = format!("{}_by_number", spec.provider().name());
        let program = match self.object.trampoline(&name, place, number)? {
            Ok(program) => program,
            Err(error) if is_no_place(&error.source) => return Err(refused(spec, &error.log)),
            Err(error) => return Err(TraceError::load(error)),
        };
        match bpf::open_trampoline(program.as_fd()) {
            Ok(link) => Ok(Link::Program { _link: link, program }),
            Err(error) if is_no_place(&error) => Err(refused(spec, &error.to_string())),
            Err(source) => Err(TraceError::Attach { spec: spec.clone(), source }),
        }
    }
}

/// The types of a module, opened once.
fn module_types<'t>(
    opened: &'t mut HashMap<String, OwnedFd>,
    spec: &ProbeSpec,
    module: &str,
) -> Result<BorrowedFd<'t>, TraceError> {
    let types: &OwnedFd = match opened.entry(module.to_owned()) {
        Entry::Occupied(opened) => opened.into_mut(),
        Entry::Vacant(unopened) => {
            let (spec, module) = (spec.clone(), module.to_owned());
            match bpf::btf::of_module(&module) {
                Ok(Some(types)) => unopened.insert(types),
                Ok(None) => return Err(TraceError::NoModuleTypes { spec, module }),
                Err(source) => return Err(TraceError::ModuleTypes { spec, module, source }),
            }
        }
    };
    Ok(types.as_fd())
}

/// Whether the kernel will not have a trampoline there, whoever asks.
fn is_no_place(error: &io::Error) -> bool {
    /// `ENOTSUPP`, which user space should not see.
    const NOT_SUPPORTED: i32 = 524;
    const NO_PLACE: [i32; 7] = [
        libc::EINVAL,
        libc::ENOENT,
        libc::EOPNOTSUPP,
        NOT_SUPPORTED,
        // Something else is there already, or too many are.
        libc::EBUSY,
        libc::E2BIG,
        // The function is not one that ftrace patches.
        libc::ENODEV,
    ];
    error.raw_os_error().is_some_and(|errno| NO_PLACE.contains(&errno))
}

/// What the kernel says last is why, but for its statistics.
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
    fn why_a_trampoline_is_refused_is_told_in_a_line() {
        let spec = "fexit:do_exit".parse().unwrap();
        let log = "func#0 @0\n\
            Attaching fexit/fmod_ret to __noreturn function 'do_exit' is rejected.\n\
            verification time 7 usec\nstack depth 0+0\nprocessed 0 insns (limit 1000000)\n\n";
        let told = refused(&spec, log).to_string();
        let expected = "cannot probe fexit:do_exit: the kernel makes no trampoline for it: \
            Attaching fexit/fmod_ret to __noreturn function 'do_exit' is rejected.";
        assert_eq!(told, expected);
        for (errno, is_it) in [(libc::EINVAL, true), (libc::EPERM, false), (libc::ENOMEM, false)] {
            assert_eq!(is_no_place(&io::Error::from_raw_os_error(errno)), is_it, "{errno}");
        }
    }
}
