//! What can be probed here, by name.

use super::attach::unprobeable;
use super::binary::Binary;
use super::btf::{Btf, Kind, Type};
use super::error::TraceError;
use super::features;
use super::glob::{Functions, Glob};
use super::kernel_types::KernelTypes;
use super::spec::{ProbeSpec, Provider};
use super::symbols;
use super::syscall;
use super::tracefs::Tracefs;
use super::trampolines::Trampolines;
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// What a pattern stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Listing {
    /// What matches: functions, tracepoints, raw tracepoints, functions of a file, each in the order of
    /// their names.
    pub probes: Vec<Listed>,
    /// What was not looked at, and why.
    pub notes: Vec<String>,
}

/// Something that can be probed. Shown as it is written for a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Listed {
    /// The sort of hook.
    #[serde(rename = "type", serialize_with = "name_of")]
    pub provider: Provider,
    /// What it hooks: for a tracepoint, `category:name`; for a function of a program or library, `file:name`.
    #[serde(rename = "probe")]
    pub name: String,
}

fn name_of<S: Serializer>(provider: &Provider, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(provider.name())
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.provider != Provider::Kprobe {
            write!(f, "{}:", self.provider.name())?;
        }
        f.write_str(&self.name)
    }
}

/// Lists what a pattern stands for: `tcp_*`, `fentry:tcp_*`, `ksyscall:open*`, `tracepoint:sched:*`, `rawtp:sys_*`,
/// `uprobe:libc:*`. Without a provider, it stands for names of functions, tracepoints and raw tracepoints.
///
/// # Errors
///
/// If the pattern is none; if it is a name, and there is nothing of that name, or it cannot be probed;
/// or if nothing can be listed that it asks for.
pub fn list(pattern: &str) -> Result<Listing, TraceError> {
    let spec: ProbeSpec = pattern.parse()?;
    let file = spec.module().and_then(|file| Some(pattern.find(file)? + file.len())).unwrap_or(0);
    if let Some(at) = pattern[file..].find(['(', '/', '+']).map(|at| file + at) {
        return Err(spec.error(at, "a list is of names alone").into());
    }
    let mut lister = Lister::default();
    if pattern.contains(':') {
        lister.add(&spec)?;
        return Ok(lister.listing);
    }
    for provider in ["kprobe", "tracepoint:*", "rawtp"] {
        // Its characters are those of names already.
        let one: ProbeSpec = format!("{provider}:{pattern}").parse()?;
        if let Err(error) = lister.add(&one) {
            lister.errors.push(error);
        }
    }
    lister.finish(&spec)
}

/// Looks names up, and keeps what it needs for that.
#[derive(Default)]
struct Lister {
    listing: Listing,
    /// Why something was not listed, of what nobody has asked for in particular.
    errors: Vec<TraceError>,
}

impl Lister {
    /// Adds all that `spec` stands for.
    fn add(&mut self, spec: &ProbeSpec) -> Result<(), TraceError> {
        let provider = spec.provider();
        let names = match provider {
            Provider::Kprobe | Provider::Kretprobe => functions(spec)?,
            Provider::Tracepoint => tracepoints(spec)?,
            Provider::RawTracepoint => raw_tracepoints(spec)?,
            Provider::Uprobe | Provider::Uretprobe => user_functions(spec)?,
            Provider::Fentry | Provider::Fexit => trampolines(spec)?,
            Provider::Ksyscall => system_calls(spec)?,
        };
        self.listing.probes.extend(names.into_iter().map(|name| Listed { provider, name }));
        Ok(())
    }

    /// What was found of a name or pattern of any sort. That it is no name of one sort matters only if it
    /// is none of the others either; anything else is worth a note.
    fn finish(mut self, asked: &ProbeSpec) -> Result<Listing, TraceError> {
        let mut unknown = None;
        for error in self.errors {
            match error {
                TraceError::UnknownFunction { .. } | TraceError::UnknownTracepoint { .. } => {
                    unknown.get_or_insert(error);
                }
                TraceError::Blacklisted { .. } | TraceError::Ambiguous { .. } => {
                    unknown = Some(error);
                }
                TraceError::NoKprobes { .. } if is_function(asked) => unknown = Some(error),
                TraceError::NoKprobes { .. } => {
                    self.listing
                        .notes
                        .push("functions are not listed: this kernel has no kprobes".into());
                }
                _ => self.listing.notes.push(format!("tracepoints are not listed: {error}")),
            }
        }
        match unknown {
            Some(error) if self.listing.probes.is_empty() && !asked.is_glob() => Err(error),
            _ => Ok(self.listing),
        }
    }
}

fn is_function(spec: &ProbeSpec) -> bool {
    !spec.is_glob() && symbols::look_up(spec.name()).count > 0
}

fn functions(spec: &ProbeSpec) -> Result<Vec<String>, TraceError> {
    if features::kprobe_pmu().is_none() {
        return Err(TraceError::NoKprobes { spec: spec.clone() });
    }
    if !spec.is_glob() {
        let found = symbols::look_up(spec.name());
        return match found.count == 1 && !symbols::is_blacklisted(spec.name()) {
            true => Ok(vec![spec.name().to_owned()]),
            false => Err(unprobeable(spec, found)),
        };
    }
    // Without tracefs, there is another list.
    let tracefs = Tracefs::open().ok();
    let found = Functions::find(&Glob::new(spec.name())?, &[], spec.module(), tracefs.as_ref());
    Ok(found.map_err(|source| TraceError::Attach { spec: spec.clone(), source })?.names)
}

fn system_calls(spec: &ProbeSpec) -> Result<Vec<String>, TraceError> {
    if features::kprobe_pmu().is_none() {
        return Err(TraceError::NoKprobes { spec: spec.clone() });
    }
    let tracefs = Tracefs::open()?;
    if spec.is_glob() {
        return syscall::matching(spec, &tracefs);
    }
    syscall::format(spec, &tracefs).map(|_| vec![spec.name().to_owned()])
}

fn trampolines(spec: &ProbeSpec) -> Result<Vec<String>, TraceError> {
    let types = &mut KernelTypes::default();
    if !spec.is_glob() {
        return types.trampoline(spec).map(|_| vec![spec.name().to_owned()]);
    }
    Ok(Trampolines::find(spec, &[], Tracefs::open().ok().as_ref(), types)?.names)
}

fn tracepoints(spec: &ProbeSpec) -> Result<Vec<String>, TraceError> {
    let tracefs = Tracefs::open()?;
    let found = tracefs.matching(&Glob::new(spec.name())?);
    if found.is_empty() && !spec.is_glob() {
        // Says what is like it.
        tracefs.id(spec)?;
    }
    Ok(found)
}

pub(super) fn raw_tracepoints(spec: &ProbeSpec) -> Result<Vec<String>, TraceError> {
    let glob = Glob::new(spec.name())?;
    let names = match Btf::kernel() {
        Ok(kernel) => in_btf(&Arc::new(kernel), &glob),
        Err(_) => in_tracefs(&Tracefs::open()?, &glob),
    };
    if names.is_empty() && !spec.is_glob() {
        let near = Tracefs::open().map(|tracefs| tracefs.near_raw(spec.name())).unwrap_or_default();
        return Err(TraceError::UnknownTracepoint { spec: spec.clone(), near });
    }
    Ok(names.into_iter().collect())
}

fn user_functions(spec: &ProbeSpec) -> Result<Vec<String>, TraceError> {
    let failed = |source| TraceError::Binary { spec: spec.clone(), source };
    let file = spec.module().unwrap_or_default();
    let binary = Binary::open(file).map_err(failed)?;
    let names = match spec.is_glob() {
        true => {
            let glob = Glob::new(spec.name())?;
            binary.matching(|name| glob.matches(name)).names
        }
        false => {
            binary.place(spec.name(), 0).map_err(failed)?;
            vec![spec.name().to_owned()]
        }
    };
    Ok(names.iter().map(|name| format!("{file}:{name}")).collect())
}

/// Where there are no types, they are those of tracepoints' events, which may be called otherwise.
fn in_tracefs(tracefs: &Tracefs, glob: &Glob) -> BTreeSet<String> {
    let events = tracefs.matching(&Glob::any()).into_iter();
    let names = events.filter_map(|event| Some(event.split_once(':')?.1.to_owned()));
    names.filter(|name| glob.matches(name)).collect()
}

/// Raw tracepoints have types: those of the kernel, and of its modules.
fn in_btf(kernel: &Arc<Btf>, glob: &Glob) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut add = |btf: &Btf| {
        let types = btf.own_all(Kind::Typedef).filter_map(|(_, ty)| match ty {
            Type::Typedef { name, .. } => name.strip_prefix("btf_trace_"),
            _ => None,
        });
        names.extend(types.filter(|name| glob.matches(name)).map(str::to_owned));
    };
    add(kernel);
    for module in Btf::modules() {
        if let Ok(module) = Btf::module(&module, kernel.clone()) {
            add(&module);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_written_for_a_trace() {
        for (provider, name, written) in [
            (Provider::Kprobe, "vfs_read", "vfs_read"),
            (Provider::Kretprobe, "vfs_read", "kretprobe:vfs_read"),
            (Provider::Tracepoint, "sched:sched_switch", "tracepoint:sched:sched_switch"),
            (Provider::RawTracepoint, "sys_enter", "rawtp:sys_enter"),
        ] {
            let listed = Listed { provider, name: name.to_owned() };
            assert_eq!(listed.to_string(), written);
            let spec: ProbeSpec = written.parse().unwrap();
            assert_eq!((spec.provider(), spec.name()), (provider, name));
        }
    }

    #[test]
    fn a_list_is_of_names() {
        for (pattern, told) in [
            ("vfs_*(count)", "a list is of names alone"),
            ("vfs_*/pid/", "a list is of names alone"),
            ("uprobe:/a/b+c:f*+1", "what is meant by a pattern has no offset"),
            ("uprobe:/a/b+c:f/pid/", "a list is of names alone"),
            ("tracepoint:sched", "a tracepoint is written tracepoint:CATEGORY:NAME"),
            ("a b", "no name of the kernel has this character"),
        ] {
            let error = list(pattern).unwrap_err().to_string();
            assert!(error.contains(told), "{pattern}: {error}");
        }
    }
}
