//! Completion of option values: the names of probes and events.

use clap_complete::engine::CompletionCandidate;
use probe_perf::Event;
use probe_tracer::{Provider, list};
use std::collections::BTreeSet;
use std::ffi::OsStr;

/// The probes that begin with this text, up to the next colon.
pub(super) fn probes(begun: &OsStr) -> Vec<CompletionCandidate> {
    let Some(begun) = begun.to_str() else { return Vec::new() };
    let found = match begun.rsplit_once(':') {
        None => functions(begun),
        Some(("tracepoint" | "t", category)) => categories(begun, category),
        Some((before, _)) => names(&format!("{begun}*"), &format!("{before}:")),
    };
    found.into_iter().filter(|one| one.starts_with(begun)).map(CompletionCandidate::new).collect()
}

/// The events that begin with the text after the last comma.
pub(super) fn events(begun: &OsStr) -> Vec<CompletionCandidate> {
    let Some(begun) = begun.to_str() else { return Vec::new() };
    let last = begun.rfind(',').map_or(0, |comma| comma + 1);
    let (before, begun) = begun.split_at(last);
    let mut found = match begun.split_once(':') {
        Some((category, _)) => names(&format!("tracepoint:{begun}*"), &format!("{category}:")),
        None => categories(begun, begun),
    };
    found.extend(Event::names());
    let wanted = found.into_iter().filter(|one| one.starts_with(begun));
    wanted.map(|one| CompletionCandidate::new(format!("{before}{one}"))).collect()
}

fn functions(begun: &str) -> BTreeSet<String> {
    let mut found: BTreeSet<_> =
        Provider::ALL.iter().map(|provider| format!("{}:", provider.name())).collect();
    // Without a prefix there are too many to read, and too many for a shell to show in time.
    if begun.len() > 1 {
        found.extend(names(&format!("kprobe:{begun}*"), ""));
    }
    found
}

fn categories(begun: &str, category: &str) -> BTreeSet<String> {
    let start = &begun[..begun.len() - category.len()];
    let events = list(&format!("tracepoint:{category}*:*")).unwrap_or_default().probes;
    let category = |name: &str| Some(format!("{start}{}:", name.split_once(':')?.0));
    events.iter().filter_map(|event| category(&event.name)).collect()
}

/// The names that match a pattern, each after the given prefix. Errors are ignored here: the command reports
/// them when it runs.
fn names(pattern: &str, before: &str) -> BTreeSet<String> {
    let own = |name: &str| name.rsplit(':').next().map(|own| format!("{before}{own}"));
    let found = list(pattern).unwrap_or_default().probes;
    found.iter().filter_map(|probe| own(&probe.name)).collect()
}
