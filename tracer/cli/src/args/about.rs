//! Commands that describe probes and this machine.

use super::{complete, value};
use clap::ValueEnum;
use clap_complete::engine::ArgValueCompleter;
use probe_tracer::ProbeSpec;

/// List the probes of this machine
///
/// Prints the matches, one per line, in the syntax of a trace. Without a prefix, these are functions, tracepoints and
/// raw tracepoints. If a name cannot be probed, the error says why.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe list 'tcp_*'               functions and tracepoints that match
  probe list 'tracepoint:sched:*'  tracepoints of a category
  probe list 'kprobe:fuse:*'       functions of a module
  probe list 'uprobe:libc:str*'    functions of a library
  probe list vfs_read              can it be probed, and if not, why?")]
pub(crate) struct List {
    /// A name, or a pattern with * and ?, optionally after a prefix: kprobe:, kretprobe:, fentry:, fexit:, ksyscall:,
    /// tracepoint:, rawtp:, uprobe:FILE: or uretprobe:FILE:
    #[arg(default_value = "*", value_parser = value::names)]
    pub(crate) pattern: String,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the arguments and fields of a probe
///
/// The first line is the signature. The others are the default fields, each with its format and its type.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe info vfs_read                       which arguments does it have?
  probe info vfs_read --members             what can be read through its arguments?
  probe info 'vfs_read(file->f_path)' -m    what can be read from there?
  probe info tracepoint:sched:sched_switch  which fields does it have?")]
pub(crate) struct Info {
    /// A probe, in the syntax of a trace; with (FIELDS), only those are shown
    #[arg(value_name = "PROBE", add = ArgValueCompleter::new(complete::probes))]
    pub(crate) probe: ProbeSpec,

    /// Also list the members of structures, and of the targets of pointers
    #[arg(short, long)]
    pub(crate) members: bool,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Check what this kernel and your privileges allow
///
/// Tries each feature as a trace would use it. Exits with 0 if functions can be traced, and with 1
/// otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print a shell completion script, which also completes the names of probes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(probe completions bash)          in ~/.bashrc
  source <(probe completions zsh)           in ~/.zshrc, after compinit
  probe completions fish | source           in ~/.config/fish/config.fish")]
pub(crate) struct Completions {
    /// The shell to complete for
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}
