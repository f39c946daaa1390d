//! Sampling of CPUs and events, and hardware traces.

use super::complete;
use super::format::{self, one_of};
use super::seal::Seal;
use super::target::AtEnd;
use super::value::{self, CpuList, EventList, PidList};
use clap::ValueHint;
use clap_complete::engine::ArgValueCompleter;
use probe_perf::{Event, Flags, Target};
use probe_tracer::User;
use probe_tracer::output::StackFormat;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

/// Sample stacks to show where CPU time goes, or where events happen
///
/// Takes samples at a fixed rate, counts them by task and stack, and prints the counts at the end. -f svg draws a
/// flame graph. Needs no eBPF. Ends with Ctrl-C, with the command or the process, or after the duration.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe sample -a -d 10s                               what do the CPUs do?
  probe sample -F 999 -o make.svg -- make              where does make spend its time?
  probe sample -e page-faults -c 1 -p 4711 -d 10s      where does this process touch new memory?
  probe sample -e sched:sched_process_exec -a -d 1m    which code starts programs?
  probe sample -e intel_pt//u --aux trace -- make      a branch trace of make, for decoders")]
pub(crate) struct Sample {
    /// Events to sample, as perf names them, separated by commas: cpu-clock, page-faults, cycles:u,
    /// LLC-load-misses, CATEGORY:TRACEPOINT, PMU/TERM=VALUE,.../, r1a8. Every PMU has the terms config=N, config1=N
    /// and so on, name=NAME, and period=N or freq=N, which override --count and --freq. A PMU name without its number
    /// stands for all of them (imc for imc_0 and imc_1), and so does a pattern. The default is cpu-clock, which
    /// every machine has
    #[arg(short = 'e', long = "event", value_name = "EVENT", add = ArgValueCompleter::new(complete::events))]
    events: Vec<EventList>,

    /// Samples per second [default: 99; for tracepoints, every hit]
    #[arg(short = 'F', long, value_name = "N", value_parser = value::frequency)]
    pub(crate) freq: Option<NonZeroU64>,

    /// Take a sample every N events; for clocks, every N nanoseconds
    #[arg(short, long, value_name = "N", conflicts_with = "freq", value_parser = value::events_per_sample)]
    pub(crate) count: Option<NonZeroU64>,

    /// Sample all CPUs; the default without another target
    #[arg(short, long, conflicts_with_all = ["pid", "tid"])]
    pub(crate) all_cpus: bool,

    /// Sample these CPUs, like 0,2-3
    #[arg(short = 'C', long = "cpu", value_name = "CPUS", value_parser = value::cpu_list,
        conflicts_with_all = ["pid", "tid", "all_cpus"])]
    pub(crate) cpus: Option<CpuList>,

    /// Sample these processes and the children that they create from now on, and end with them
    #[arg(short, long, value_name = "PID,...", value_parser = value::any_pids,
        conflicts_with_all = ["command", "tid"])]
    pub(crate) pid: Option<PidList>,

    /// Sample this thread, and end with it
    #[arg(short, long, value_name = "TID", value_parser = value::thread,
        conflicts_with = "command")]
    pub(crate) tid: Option<u32>,

    /// Sample the existing threads of the process, each with a ring of its own, and no children
    #[arg(long, conflicts_with_all = ["all_cpus", "cpus", "tid"])]
    pub(crate) per_thread: bool,

    /// Also count the samples of this `probe` process itself
    #[arg(long)]
    pub(crate) include_self: bool,

    /// End after this time, like 10s or 500ms; seconds need no unit
    #[arg(short, long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) duration: Option<Duration>,

    /// Output format [default: the one that the extension of --output names (.svg or .folded), or else table]
    #[arg(short, long, value_parser = one_of(format::STACKS))]
    format: Option<StackFormat>,

    /// The file to write, which is replaced if it exists; - for standard output. It appears only once it is complete
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Write even to a directory to which others can write
    #[arg(long)]
    pub(crate) force: bool,

    /// Size of the ring buffer of each CPU or thread, like 64K or 1M, rounded up to a power of two
    #[arg(short = 'B', long, value_name = "BYTES", value_parser = value::bytes, default_value = "512K")]
    pub(crate) buffer_size: usize,

    #[command(flatten)]
    pub(crate) aux: Aux,

    #[command(flatten)]
    pub(crate) seal: Seal,

    /// Sample this command and its descendants, from its first instruction until it exits, and exit with its
    /// status. Its standard output goes to standard error
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,

    /// Run the command as this user, by number or by name, with the user's groups and none of your privileges
    #[arg(long, value_name = "USER", value_parser = value::user, requires = "command")]
    pub(crate) user: Option<User>,

    /// What happens to the command if sampling ends before it
    #[arg(long, value_enum, value_name = "ACTION", default_value_t, requires = "command")]
    pub(crate) at_end: AtEnd,
}

impl Sample {
    /// The events to sample.
    pub(crate) fn events(&self) -> Vec<Event> {
        value::each_of(&self.events).collect()
    }

    /// The requested format, or else the one that the output file's extension names, or else a table.
    pub(crate) fn format(&self) -> StackFormat {
        let of_file = || format::named_by(format::STACKS, self.output.as_deref()?);
        self.format.or_else(of_file).unwrap_or(StackFormat::Table)
    }

    /// Which CPUs or tasks are sampled. `command` is the id of the stopped command.
    pub(crate) fn target(&self, command: Option<u32>) -> Target {
        let listed = self.pid.as_ref().map(|list| list.0.clone());
        let processes = command.map(|pid| vec![pid]).or(listed);
        match (&self.cpus, processes, self.tid) {
            (Some(cpus), ..) => Target::Cpus(cpus.0.clone()),
            _ if self.all_cpus => Target::System,
            (_, Some(pids), _) if self.per_thread => Target::Processes(pids),
            (_, Some(pids), _) => Target::ProcessesAndChildren(pids),
            (.., Some(tid)) => Target::Thread(tid),
            _ => Target::System,
        }
    }

    /// Checks what clap cannot.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let has_target = self.pid.is_some() || !self.command.is_empty();
        match self.per_thread && !has_target {
            true => {
                Err("--per-thread samples the threads of a process: give --pid PID, or a command")
            }
            false => Ok(()),
        }
    }

    /// For a command, enables the events when it executes its program. Otherwise the caller enables them.
    pub(crate) fn on_exec(&self, command: Option<u32>) -> Flags {
        let is_of_command = command.is_some() && self.cpus.is_none() && !self.all_cpus;
        if is_of_command { Flags::ENABLE_ON_EXEC } else { Flags::empty() }
    }
}

/// Hardware traces instead of samples.
#[derive(Debug, clap::Args)]
pub(crate) struct Aux {
    /// Write the hardware trace of the event (its AUX area) as raw data instead of samples: to cpu-N.aux or
    /// thread-N.aux in this directory, with the records that decoders need in records.jsonl. Existing files
    /// are replaced. A file appears only once it is complete
    #[arg(long = "aux", value_name = "DIR", value_hint = ValueHint::DirPath, requires = "events",
        conflicts_with_all = ["freq", "count", "format", "output", "buffer_size", "include_self"])]
    pub(crate) dir: Option<PathBuf>,

    /// Size of the AUX area of each CPU or thread, like 64K or 1M, rounded up to a power of two
    #[arg(short = 'm', long = "aux-size", value_name = "BYTES", value_parser = value::bytes,
        default_value = "4M", requires = "dir")]
    pub(crate) size: usize,

    /// Keep only the newest data, and write it on SIGUSR2 and at the end: to cpu-N.1.aux, cpu-N.2.aux, and
    /// so on
    #[arg(long, requires = "dir")]
    pub(crate) snapshot: bool,
}
