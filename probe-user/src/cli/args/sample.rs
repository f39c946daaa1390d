//! What samples CPUs, or keeps what hardware traces.

use super::complete;
use super::format::StackFormat;
use super::value::{self, CpuList, EventList};
use clap::ValueHint;
use clap_complete::engine::ArgValueCompleter;
use probe_user::perf::Event;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

/// Tell where CPUs spend their time, or where events happen: the ways that lead there
///
/// Samples are taken so many times a second, and counted by the task and the functions that called each other;
/// they are printed at the end. As a flame graph, it is a picture. Without eBPF. Ends with Ctrl-C, with the command
/// or the process, or after the duration.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe sample -a -d 10s                               what do the CPUs do?
  probe sample -F 999 -f svg -o make.svg -- make       where does make spend its time?
  probe sample -e page-faults -c 1 -p 4711 -d 10s      where does this process touch new memory?
  probe sample -e sched:sched_process_exec -c 1 -a -d 1m
                                                       from where are programs started?
  probe sample -e intel_pt//u --aux trace -- make      where does make branch to? For decoders")]
pub(crate) struct Sample {
    /// What to sample, as perf names it: cpu-clock, page-faults, cycles:u, LLC-load-misses,
    /// CATEGORY:TRACEPOINT, PMU/TERM=VALUE,.../, r1a8; several with commas between them. Terms of any PMU are
    /// config=N, config1=N and so on, name=NAME, and period=N or freq=N, which go before --count and --freq. PMUs that
    /// differ by a number, as imc_0 and imc_1 do, are all meant without it, and so are those that a pattern matches.
    /// The default is cpu-clock, which every machine has
    #[arg(short = 'e', long = "event", value_name = "EVENT", add = ArgValueCompleter::new(complete::events))]
    events: Vec<EventList>,

    /// Samples a second
    #[arg(short = 'F', long, value_name = "N", default_value = "99")]
    pub(crate) freq: NonZeroU64,

    /// One sample for every so many of the event; of clocks, nanoseconds
    #[arg(short, long, value_name = "N", conflicts_with = "freq")]
    pub(crate) count: Option<NonZeroU64>,

    /// Sample all CPUs: the default, unless it is said who
    #[arg(short, long, conflicts_with_all = ["pid", "tid"])]
    pub(crate) all_cpus: bool,

    /// Sample these CPUs, like 0,2-3
    #[arg(short = 'C', long = "cpu", value_name = "CPUS", value_parser = value::cpu_list,
        conflicts_with_all = ["pid", "tid", "all_cpus"])]
    pub(crate) cpus: Option<CpuList>,

    /// Sample this process, and what it makes from now on, and end with them
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["command", "tid"])]
    pub(crate) pid: Option<u32>,

    /// Sample this thread, and end with it
    #[arg(short, long, value_name = "TID", value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with = "command")]
    pub(crate) tid: Option<u32>,

    /// Sample the threads that the process has, and nothing that it makes: each has a ring
    #[arg(long, conflicts_with_all = ["all_cpus", "cpus"])]
    pub(crate) per_thread: bool,

    /// End after this time, like 10s or 500ms
    #[arg(short, long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) duration: Option<Duration>,

    /// How ways are written
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) format: StackFormat,

    /// A file to write to, which is replaced if it is there
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Ring buffer for each CPU, or thread: a power of two, like 64K or 1M
    #[arg(short = 'B', long, value_name = "BYTES", value_parser = value::bytes, default_value = "512K")]
    buffer_size: usize,

    #[command(flatten)]
    pub(crate) aux: Aux,

    /// Sample this command and what it makes, from its first instruction until it exits, and exit with its
    /// status. Its standard output goes to standard error
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl Sample {
    /// All events that are named.
    pub(crate) fn events(&self) -> Vec<Event> {
        value::each_of(&self.events).collect()
    }

    /// Bytes of each ring.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.buffer_size
    }
}

/// What hardware traces, instead of samples.
#[derive(Debug, clap::Args)]
pub(crate) struct Aux {
    /// Write what the hardware traces of the event (its AUX area) as it is, without samples: to cpu-N.aux in
    /// this directory, or thread-N.aux, and what tasks did meanwhile, to records.jsonl. What is there is replaced
    #[arg(long = "aux", value_name = "DIR", value_hint = ValueHint::DirPath, requires = "events",
        conflicts_with_all = ["freq", "count", "format", "output", "buffer_size"])]
    pub(crate) dir: Option<PathBuf>,

    /// AUX area for each CPU, or thread: a power of two, like 64K or 1M
    #[arg(short = 'm', long = "aux-size", value_name = "BYTES", value_parser = value::bytes,
        default_value = "4M", requires = "dir")]
    pub(crate) size: usize,

    /// Keep the newest data alone, over older data, and write it with SIGUSR2 and at the end: to cpu-N.1.aux,
    /// cpu-N.2.aux, and so on
    #[arg(long, requires = "dir")]
    pub(crate) snapshot: bool,
}
