//! Hooks: which probes exist, what patterns match, what can be read there, and how programs are
//! attached.
//!
//! Each provider has a file with its implementation of [`Hook`], and [`of`] is the table of them. A new provider needs
//! its file, its line in the table, and its name and syntax in [`Provider`].

pub(crate) mod architecture;
pub(crate) mod attach;
mod compat;
pub(crate) mod expand;
mod fentry;
pub(crate) mod info;
mod instead;
mod kprobe;
mod ksyscall;
pub(crate) mod list;
mod raw_tracepoint;
mod syscall_notes;
mod tracepoint;
mod uprobe;

pub(crate) use instead::no_call;

use crate::binary::{Binary, Process};
use crate::error::{Result, TraceError};
use crate::kernel::clones::Clones;
use crate::kernel::compat_calls::CompatCalls;
use crate::kernel::functions::Functions;
use crate::kernel::symbols;
use crate::kernel::types::KernelTypes;
use crate::object::Side;
use crate::resolve::FieldSource;
use crate::resolve::probe::Probe;
use crate::spec::{ProbeSpec, Provider};
use crate::tracefs::Tracefs;
use attach::{Attacher, Link, Part, Together};
use expand::{Choice, Expansion, LeftOut};
use info::FileOffset;
use probe_perf::pattern::Glob;
use std::collections::HashMap;
use std::path::PathBuf;

/// The fields of a hook.
type Fields = Result<Box<dyn FieldSource>>;

/// Where the caller of a probed function is found when the stack of a hit is read. At its entry, the function has no frame
/// yet, and frame pointers lead from it to its caller's caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// In the stack that the kernel reads, or no function was entered.
    InStack,
    /// In the registers or on top of the stack, where the programs find it.
    AtEntry,
    /// Nowhere.
    Lost,
}

/// What a provider does.
pub(crate) trait Hook: Sync {
    /// The prefix of a spec under which this provider lists a name without a provider. `None` if
    /// the provider does not list such names.
    fn default_prefix(&self) -> Option<&'static str> {
        None
    }

    /// Lists the names that a spec matches.
    fn list(&self, spec: &ProbeSpec, host: &mut Host) -> Result<Vec<String>>;

    /// Finds the probes that a pattern matches, and what is left out.
    fn expand(&self, pattern: &ProbeSpec, choice: &Choice, host: &mut Host) -> Result<Expansion> {
        choice.names(pattern, self.list(pattern, host)?)
    }

    /// The probe that a spec without a pattern is.
    fn own(&self, spec: &ProbeSpec, _host: &mut Host) -> ProbeSpec {
        spec.clone()
    }

    /// The probes that a spec stands for besides `own`, those of its name. A trace goes on without those that cannot be
    /// had, with a warning.
    fn besides(
        &self,
        _spec: &ProbeSpec,
        _own: &[ProbeSpec],
        _choice: &Choice,
        _host: &mut Host,
    ) -> Result<Vec<ProbeSpec>> {
        Ok(Vec::new())
    }

    /// How the matches of a pattern are attached, which limits their number.
    fn bulk(&self) -> Bulk {
        Bulk::OneByOne
    }

    /// What can be read where a probe is hit or, with `as_call`, where the call returns.
    fn fields(&self, spec: &ProbeSpec, as_call: bool, host: &mut Host) -> Fields;

    /// Whether the programs read registers and the stack pointer, which depend on the architecture.
    fn reads_registers(&self) -> bool {
        false
    }

    /// Whether the kernel counts all hits that it does not pass on.
    fn counts_missed(&self) -> bool {
        true
    }

    /// Whether the kernel skips hits while another program runs on the CPU.
    fn may_be_skipped(&self) -> bool {
        false
    }

    /// Whether the kernel puts another return address in place of a kernel function's own when a probe is hit.
    fn replaces_return_address(&self) -> bool {
        false
    }

    /// Where the caller of the probed function is found when the probe is hit.
    fn caller(&self, _spec: &ProbeSpec, _host: &mut Host) -> Caller {
        Caller::InStack
    }

    /// Why no probe of this hook would be hit, and how to change that.
    fn switched_off(&self, _spec: &ProbeSpec) -> Option<&'static str> {
        None
    }

    /// What a user of this hook should know. The spec may be a pattern.
    fn notes(&self, _spec: &ProbeSpec, _as_call: bool, _host: &mut Host) -> Vec<String> {
        Vec::new()
    }

    /// Checks that the hook exists, for providers whose [`fields`](Self::fields) do not depend on
    /// the name.
    fn check(&self, _spec: &ProbeSpec, _host: &mut Host) -> Result<()> {
        Ok(())
    }

    /// The location of the hook in a program or library, if it is in one.
    fn file_offset(&self, _spec: &ProbeSpec) -> Result<Option<FileOffset>> {
        Ok(None)
    }

    /// Attaches this part of the probe of this number.
    fn attach(
        &self,
        attacher: &mut Attacher<'_>,
        spec: &ProbeSpec,
        part: Part,
        number: u32,
    ) -> Result<Link>;

    /// Attaches many functions, numbered from `first` on, with few links. Only for providers whose probes are attached
    /// [at once](Bulk::AtOnce).
    fn attach_at_once(
        &self,
        _attacher: &mut Attacher<'_>,
        probes: &[Probe],
        first: usize,
    ) -> Result<Together> {
        Ok(Together { others: (first..first + probes.len()).collect(), ..Together::default() })
    }

    /// Whether a probe's calls are those of the kernel or of programs; `None` if it cannot be a call. The spec may be a pattern.
    fn calls(&self, _spec: &ProbeSpec) -> Option<Side> {
        None
    }
}

/// How the matches of a pattern are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bulk {
    /// With as few links as the kernel allows.
    AtOnce,
    /// Each by itself, sharing one program where the kernel has attach cookies.
    OneByOne,
    /// Each by itself, with a program of its own.
    OwnPrograms,
}

/// The table of providers.
pub(crate) fn of(provider: Provider) -> &'static dyn Hook {
    match provider {
        Provider::Kprobe => &kprobe::Kprobe { returns: false },
        Provider::Kretprobe => &kprobe::Kprobe { returns: true },
        Provider::Fentry => &fentry::Fentry { returns: false },
        Provider::Fexit => &fentry::Fentry { returns: true },
        Provider::Tracepoint => &tracepoint::Tracepoint,
        Provider::RawTracepoint => &raw_tracepoint::RawTracepoint,
        Provider::Uprobe => &uprobe::Uprobe { returns: false },
        Provider::Uretprobe => &uprobe::Uprobe { returns: true },
        Provider::Ksyscall => &ksyscall::Ksyscall,
    }
}

/// Whether a probe's calls are those of the kernel or of programs; `None` if it cannot be a call.
pub(crate) fn calls(spec: &ProbeSpec) -> Option<Side> {
    of(spec.provider()).calls(spec)
}

/// What hooks look up on this machine: tracefs, opened when it is first needed, and the kernel's
/// types.
#[derive(Debug, Default)]
pub(crate) struct Host {
    tracefs: Option<Tracefs>,
    pub(crate) types: KernelTypes,
    /// The processes that are traced, if they are running ones.
    targets: Vec<u32>,
    /// The file that this process will execute, if it waits for the trace to begin.
    program: Option<PathBuf>,
    /// Programs and libraries, by the names that were given.
    pub(crate) binaries: HashMap<String, Binary>,
    /// What to say about 32-bit programs, once they have been looked for.
    compat: Option<Option<String>>,
    /// The functions of 32-bit system calls, once they are needed.
    compat_calls: Option<CompatCalls>,
    /// The functions whose names do not tell everything, once they are needed.
    clones: Option<Clones>,
    /// The targets whose files may differ from those that this process sees, once they have been inspected.
    processes: Option<Vec<Process>>,
}

impl Host {
    /// For a trace of these processes, or of all if there are none. `program` is the file that the process has yet to
    /// execute.
    pub(crate) fn of_targets(targets: Vec<u32>, program: Option<PathBuf>) -> Self {
        Self { targets, program, ..Self::default() }
    }

    /// With this tracefs.
    #[cfg(test)]
    pub(crate) fn with_tracefs(tracefs: Tracefs) -> Self {
        Self { tracefs: Some(tracefs), ..Self::default() }
    }

    /// The processes whose files are meant, if they may be others than this process sees.
    fn processes(&mut self) -> &[Process] {
        let look = |&pid: &u32| {
            Process::of(pid).unwrap_or_else(|error| {
                log::warn!(
                    "cannot inspect the files of process {pid} ({error}); paths and names are looked up as probe sees them, not as the process does"
                );
                None
            })
        };
        let Self { targets, processes, .. } = self;
        processes.get_or_insert_with(|| targets.iter().filter_map(look).collect())
    }

    /// The functions of 32-bit system calls.
    fn compat_calls(&mut self) -> &CompatCalls {
        self.compat_calls.get_or_insert_with(CompatCalls::read)
    }

    /// The functions whose names do not tell everything.
    fn clones(&mut self) -> &Clones {
        self.clones.get_or_insert_with(Clones::read)
    }

    /// Tracefs, opened once.
    fn tracefs(&mut self) -> Result<&Tracefs> {
        let tracefs = match self.tracefs.take() {
            Some(tracefs) => tracefs,
            None => Tracefs::open()?,
        };
        Ok(self.tracefs.insert(tracefs))
    }

    /// What a spec means. Without a provider, `sched:sched_switch` is the tracepoint, as perf writes it, unless a module
    /// of this name has such a function.
    pub(crate) fn meant(&mut self, spec: ProbeSpec) -> ProbeSpec {
        let Some((module, name)) = spec.module_or_category() else { return spec };
        let Some(tracepoint) = spec.as_tracepoint() else { return spec };
        let events = self.tracefs().map(|tracefs| tracefs.category(module));
        let is_function = match events {
            Ok(None) => true,
            // Only a loaded module has functions.
            Err(_) => symbols::is_loaded(module) || module == symbols::NO_MODULE,
            Ok(Some(_)) if !symbols::is_loaded(module) => false,
            Ok(Some(_)) if spec.is_glob() => true,
            Ok(Some(category)) => {
                let functions = symbols::addresses(Some(module)).unwrap_or_default();
                functions.contains_key(name) || !category.join(name).is_dir()
            }
        };
        if is_function { spec } else { tracepoint }
    }

    /// The functions that match a pattern and none of `exclude`, and what is left out. Without tracefs,
    /// they are searched in the symbol table.
    fn functions(
        &mut self,
        pattern: &ProbeSpec,
        exclude: &[Glob],
    ) -> Result<(Vec<String>, LeftOut)> {
        let traceable = self.tracefs().ok().map(Tracefs::traceable);
        let glob = Glob::new(pattern.name())?;
        let found = Functions::find(&glob, exclude, pattern.module(), traceable)
            .map_err(|source| TraceError::Symbols { source })?;
        let (denied, ambiguous) = (found.denied, found.ambiguous.len());
        Ok((found.names, LeftOut { denied, ambiguous, ..LeftOut::new(pattern) }))
    }
}
