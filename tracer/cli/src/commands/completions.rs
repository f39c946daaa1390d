//! `probe completions`: shell completion.
//!
//! The shell runs `probe` with `COMPLETE` in its environment; `probe` then answers and exits.

use crate::args::{Args, Completions, Shell};
use crate::output::print::print;
use crate::running::privileges;
use anyhow::Result;
use clap::CommandFactory;
use clap_complete::CompleteEnv;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use std::ffi::OsString;
use std::process::ExitCode;

const VARIABLE: &str = "COMPLETE";
const NAME: &str = "probe";

/// Bash splits words at colons and replaces only the part after the last one.
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

/// If a shell asks for completions, answers it and exits.
pub(crate) fn answer() {
    // clap takes these values for no request, too.
    let is_asked = |shell: OsString| !shell.is_empty() && shell != "0";
    if std::env::var_os(VARIABLE).is_some_and(is_asked) {
        // Completions of names are lists. There is nobody to report an error to.
        let _ = privileges::give_up_but_to_look();
    }
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
