//! `probe completions`: command lines that complete themselves.
//!
//! The shell asks `probe` itself, with `COMPLETE` in its environment, which answers and exits.

use super::args::{Args, Completions, Shell};
use super::print::print;
use anyhow::Result;
use clap::CommandFactory;
use clap_complete::CompleteEnv;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use probe_user::perf::Event;
use probe_user::trace::{Provider, list};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::ExitCode;

const VARIABLE: &str = "COMPLETE";
const NAME: &str = "probe";

/// Bash breaks words at colons, and replaces what is behind the last one alone.
const BASH_COLONS: &str = r#"
_probe_with_colons() {
    local line=${COMP_LINE:0:COMP_POINT}
    local current=${line##*[[:space:]\'\"]}
    if [[ $current != *:* || $COMP_WORDBREAKS != *:* ]]; then
        _clap_complete_probe "$@"
        return
    fi
    local whole=("${COMP_WORDS[@]:0:COMP_CWORD+1}") joined=
    while [[ $joined != "$current" && ${#whole[@]} -gt 1 ]]; do
        joined=${whole[${#whole[@]}-1]}$joined
        unset "whole[${#whole[@]}-1]"
    done
    local COMP_WORDS=("${whole[@]}" "$current") COMP_CWORD=${#whole[@]}
    _clap_complete_probe "$1" "$current" "$3"
    COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*:}"}"}")
}
complete -o nospace -o bashdefault -F _probe_with_colons probe
"#;

/// Answers a shell, and exits, if it is one that asks.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Args::command).var(VARIABLE).complete();
}

pub(crate) fn run(args: &Completions) -> Result<ExitCode> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, NAME, NAME, NAME, &mut script)?;
    if matches!(args.shell, Shell::Bash) {
        script.extend_from_slice(BASH_COLONS.trim_start().as_bytes());
    }
    print(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The probes that begin so: up to the next colon, as far as one is written `PROVIDER:`.
pub(crate) fn probes(begun: &OsStr) -> Vec<CompletionCandidate> {
    let Some(begun) = begun.to_str() else { return Vec::new() };
    let found = match begun.rsplit_once(':') {
        None => functions(begun),
        Some(("tracepoint" | "t", category)) => categories(begun, category),
        Some((before, _)) => names(&format!("{begun}*"), &format!("{before}:")),
    };
    found.into_iter().filter(|one| one.starts_with(begun)).map(CompletionCandidate::new).collect()
}

/// The events that begin so, behind the last comma.
pub(crate) fn events(begun: &OsStr) -> Vec<CompletionCandidate> {
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
    // All of them are more than anybody reads, and more than a shell shows in time.
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

/// The names that a pattern stands for, behind what has been typed before them. An error is for whoever runs
/// the command, not for whoever types it.
fn names(pattern: &str, before: &str) -> BTreeSet<String> {
    let own = |name: &str| name.rsplit(':').next().map(|own| format!("{before}{own}"));
    let found = list(pattern).unwrap_or_default().probes;
    found.iter().filter_map(|probe| own(&probe.name)).collect()
}
