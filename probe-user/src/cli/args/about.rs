//! What tells about probes, and about this machine.

use super::complete;
use clap::ValueEnum;
use clap_complete::engine::ArgValueCompleter;
use probe_user::trace::ProbeSpec;

/// List what can be probed here
///
/// Functions, tracepoints and raw tracepoints, one a line, as they are written for a trace. A name that
/// cannot be probed is an error that says why.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe list 'tcp_*'               functions, tracepoints and raw tracepoints of this name
  probe list 'tracepoint:sched:*'  tracepoints of a category
  probe list 'kprobe:fuse:*'       functions of a module
  probe list 'uprobe:libc:str*'    functions of a library
  probe list vfs_read              can it be probed, and if not, why?")]
pub(crate) struct List {
    /// A name, or a pattern with * and ?; of all sorts, or behind kprobe:, tracepoint:, rawtp: or
    /// uprobe:FILE:
    #[arg(default_value = "*")]
    pub(crate) pattern: String,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Tell what a probe gives: its arguments, and the fields that its events have
///
/// The first line is the signature; the others are the fields that are shown if none are given, with how
/// each is shown, and its type.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe info vfs_read                       what does it take?
  probe info vfs_read --members             what can be read of its arguments?
  probe info 'vfs_read(file->f_path)' -m    what can be read from there on?
  probe info tracepoint:sched:sched_switch  what does it tell?")]
pub(crate) struct Info {
    /// A probe, as it is written for a trace; with (FIELDS), of these alone
    #[arg(value_name = "PROBE", add = ArgValueCompleter::new(complete::probes))]
    pub(crate) probe: ProbeSpec,

    /// Also list the members of structures, and of what fields point to
    #[arg(short, long)]
    pub(crate) members: bool,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Tell what this kernel and these privileges allow
///
/// Each feature is tried as a trace would use it. Exits with 0 if functions can be traced, else
/// with 1.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print a script that completes command lines, with the names of probes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(probe completions bash)          in ~/.bashrc
  source <(probe completions zsh)           in ~/.zshrc, behind compinit
  probe completions fish | source           in ~/.config/fish/config.fish")]
pub(crate) struct Completions {
    /// Whose command lines
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}
