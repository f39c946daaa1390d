//! Lists what can be probed here, by name.

use super::instead::instead;
use super::{Host, of};
use crate::error::TraceError;
use crate::kernel::symbols;
use crate::spec::{ProbeSpec, Provider, foreign};
use serde::{Serialize, Serializer};
use std::fmt;

/// What a pattern matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Listing {
    /// The matches: functions, tracepoints, raw tracepoints, functions of a file, each sorted by
    /// name.
    pub probes: Vec<Listed>,
    /// What was not searched, and why.
    pub notes: Vec<String>,
}

/// Something that can be probed. It prints as a spec for a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Listed {
    /// The type of hook.
    #[serde(rename = "type", serialize_with = "name_of")]
    pub provider: Provider,
    /// The name of the hook: `category:name` for a tracepoint, `file:name` for a function of a
    /// program or library.
    #[serde(rename = "probe")]
    pub name: String,
}

fn name_of<S: Serializer>(provider: &Provider, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(provider.name())
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.provider != Provider::DEFAULT {
            write!(f, "{}:", self.provider.name())?;
        }
        f.write_str(&self.name)
    }
}

/// Lists what a pattern matches: `tcp_*`, `fentry:tcp_*`, `ksyscall:open*`, `tracepoint:sched:*`,
/// `rawtp:sys_*`, `uprobe:libc:*`. Without a provider, it matches functions, tracepoints and raw
/// tracepoints.
///
/// # Errors
///
/// If the pattern is not valid, if it is a plain name that does not exist or cannot be probed, or
/// if nothing that it asks for can be listed.
pub fn list(pattern: &str) -> Result<Listing, TraceError> {
    let spec: ProbeSpec = pattern.parse()?;
    if spec.fields().is_some() || spec.predicate().is_some() || spec.offset() != 0 {
        return Err(spec.error_at_fields("a list takes only names").into());
    }
    let (mut host, mut listing) = (Host::default(), Listing::default());
    let spec = host.meant(spec);
    if pattern.contains(':') {
        listing.add(&spec, &mut host)?;
        return Ok(listing);
    }
    // That one provider does not have the name is an error only if no other has it either. Any other
    // failure becomes a note.
    let mut unknown = None;
    for prefix in Provider::ALL.into_iter().filter_map(|one| of(one).default_prefix()) {
        // Only the provider is new: the characters of the name have been checked.
        let one: ProbeSpec = format!("{prefix}{pattern}").parse()?;
        let Err(error) = listing.add(&one, &mut host) else { continue };
        match error {
            TraceError::UnknownFunction { .. } | TraceError::UnknownTracepoint { .. } => {
                unknown.get_or_insert(error);
            }
            TraceError::Blacklisted { .. } | TraceError::Ambiguous { .. } => unknown = Some(error),
            TraceError::NoKprobes { .. } if is_function(&spec) => unknown = Some(error),
            TraceError::NoKprobes { .. } => {
                listing.notes.push("functions are not listed: this kernel has no kprobes".into());
            }
            _ => listing.notes.push(format!("tracepoints are not listed: {error}")),
        }
    }
    match unknown {
        Some(
            TraceError::UnknownFunction { near, .. } | TraceError::UnknownTracepoint { near, .. },
        ) if listing.probes.is_empty() && !spec.is_glob() => {
            Err(match foreign::kind(spec.name()) {
                Some(what) => spec.error(0, what).into(),
                None => TraceError::UnknownName {
                    name: spec.name().to_owned(),
                    near,
                    instead: instead(&spec),
                },
            })
        }
        Some(error) if listing.probes.is_empty() && !spec.is_glob() => Err(error),
        _ => Ok(listing),
    }
}

impl Listing {
    /// Adds everything that `spec` matches.
    fn add(&mut self, spec: &ProbeSpec, host: &mut Host) -> Result<(), TraceError> {
        let provider = spec.provider();
        let names = of(provider).list(spec, host)?;
        self.probes.extend(names.into_iter().map(|name| Listed { provider, name }));
        Ok(())
    }
}

fn is_function(spec: &ProbeSpec) -> bool {
    !spec.is_glob() && symbols::look_up(spec.name(), spec.module()).count > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_probes_print_as_specs_for_a_trace() {
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
    fn lists_take_only_names() {
        for (pattern, message) in [
            ("vfs_*(count)", "a list takes only names"),
            ("vfs_*/pid/", "a list takes only names"),
            ("uprobe:/a/b+c:f*+1", "a pattern cannot have an offset"),
            ("uprobe:/a/b+c:f/pid/", "a list takes only names"),
            ("tracepoint:sched", "a tracepoint is written tracepoint:CATEGORY:NAME"),
            ("a b", "kernel names contain no spaces"),
        ] {
            let error = list(pattern).unwrap_err().to_string();
            assert!(error.contains(message), "{pattern}: {error}");
        }
    }
}
