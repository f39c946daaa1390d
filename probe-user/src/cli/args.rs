//! The command line.

use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use probe_user::trace::ProbeSpec;
use probe_user::trace::output;
use std::ffi::OsString;
use std::time::Duration;

/// Shows what the kernel does: every call of a function, every hit of a tracepoint.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub(crate) struct Args {
    /// Show what the eBPF programs and the tracer log; twice for every hit
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Trace(Trace),
    Check(Check),
}

/// Bytes of ring for each CPU, unless told otherwise.
pub(crate) const RING: usize = 1 << 20;

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

/// Print an event for every hit of the probes
///
/// Events go to standard output, one a line; everything else goes to standard error. Ends with
/// Ctrl-C, with the command, or with one of the limits, and then tells what became of every record.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe trace do_sys_openat2                           who opens files?
  probe trace do_sys_openat2 -- cat /etc/hostname      what does this command open?
  probe trace tracepoint:sched:sched_process_exec      which programs are started?
  probe trace vfs_read rawtp:sys_enter -d 5s -F jsonl  two probes, for five seconds, as JSON")]
pub(crate) struct Trace {
    /// What to probe: FUNCTION or kprobe:FUNCTION, tracepoint:CATEGORY:NAME, rawtp:NAME
    #[arg(required = true, value_name = "PROBE")]
    pub(crate) probes: Vec<ProbeSpec>,

    /// End after so many events
    #[arg(short = 'M', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_events: Option<u64>,

    /// End after this time, like 10s or 500ms
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    /// Trace this process alone, and end with it
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["command", "all"])]
    pub(crate) pid: Option<u32>,

    /// Ring buffer for each CPU: a power of two, like 64K or 1M
    #[arg(short = 'B', long, value_name = "BYTES", default_value = "1M", value_parser = bytes)]
    pub(crate) buffer_size: usize,

    /// Give up every privilege once the probes are attached: CPUs that come later are not traced
    #[arg(long)]
    pub(crate) sealed: bool,

    /// How events are written
    #[arg(short = 'F', long, value_enum, default_value_t)]
    pub(crate) format: Format,

    /// Trace everybody, not the command and its descendants alone
    #[arg(short, long)]
    pub(crate) all: bool,

    /// Trace this command and its descendants, from before its first instruction until it exits,
    /// and exit with its status. Its standard output goes to standard error
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns
    #[default]
    Table,
    /// One JSON object a line
    Jsonl,
}

impl From<Format> for output::Format {
    fn from(format: Format) -> Self {
        match format {
            Format::Table => Self::Table,
            Format::Jsonl => Self::Jsonl,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration.is_zero() => Err("it has to be more than nothing".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(format!("{error}; write it like 10s or 500ms")),
    }
}

fn bytes(text: &str) -> Result<usize, String> {
    // 64K is 65,536, as everybody who sizes rings means it.
    let parsed = parse_size::Config::new().with_binary().parse_size(text);
    parsed
        .map_err(|error| format!("{error}; write it like 65536, 64K or 1M"))
        .and_then(|bytes| usize::try_from(bytes).map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(bytes("4096"), Ok(4096));
        let Command::Trace(trace) = Args::parse_from(["probe", "trace", "f"]).command else {
            panic!("not a trace");
        };
        assert_eq!(trace.buffer_size, RING);
        assert_eq!(bytes("64K"), Ok(64 << 10));
        assert_eq!(bytes("1MiB"), Ok(1 << 20));
        assert!(bytes("-1").is_err());
        assert!(bytes("x").is_err());
    }

    #[test]
    fn probes_are_apart_from_the_command() {
        let args =
            Args::parse_from(["probe", "trace", "a", "rawtp:b", "-M", "3", "--", "cat", "-M"]);
        let Command::Trace(trace) = args.command else { panic!("{args:?}") };
        assert_eq!(trace.probes.len(), 2);
        assert_eq!(trace.max_events, Some(3));
        assert_eq!(trace.command, ["cat", "-M"]);
    }
}
