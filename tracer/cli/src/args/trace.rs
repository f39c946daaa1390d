//! Commands that print or record every hit.

use super::complete;
use super::format::{self, ReplayFormat, one_of};
use super::ring::Ring;
use super::seal::Seal;
use super::target::{Choice, TargetArgs};
use super::value::{self, EventList};
use clap::ValueHint;
use clap_complete::engine::ArgValueCompleter;
use probe_perf::Event;
use probe_tracer::ProbeSpec;
use probe_tracer::output::{Format, Time};
use probe_user::Options;
use std::path::PathBuf;
use std::time::Duration;

/// Print an event for every hit of the probes
///
/// Events go to standard output, one per line; the command's output and the summary go to standard error. The trace ends
/// with Ctrl-C, with the command, or at a limit. The last line is the ledger, which accounts for every record.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe trace do_sys_openat2                           which processes open files?
  probe trace do_sys_openat2 -- cat /etc/hostname      what does this command open?
  probe trace tracepoint:sched:sched_process_exec      which programs start?
  probe trace 'vfs_read(file->f_path.dentry->d_name.name:str, count)/count > 4096/'
                                                       which files are read in large pieces?
  probe trace --ret ksyscall:openat -n cat             which files does cat open, or fail to open?
  probe trace --ret 'tracepoint:syscalls:sys_enter_*' -- CMD
                                                       which system calls does a command make?
  probe trace 'kretprobe:vfs_read/retval < 0/' -n cat  which reads of cat fail?
  probe trace 'uprobe:libc:getenv(arg0:str)' -- date   what does date look up in its environment?
  probe trace --longer 1ms vfs_read                    which reads take long?
  probe trace --ret 'uprobe:libc:malloc(size=arg0:u64)/retval == 0/'
                                                       which allocations fail?
  probe trace --ret --counter page-faults vfs_read     what do reads cost?
  probe trace --ret --counter cycles,instructions vfs_read
                                                       how many cycles and instructions?
  probe trace -K tracepoint:skb:kfree_skb -M 10        where are packets dropped?
  probe trace 'rawtp:sched_*' --flight-recorder 8M --trigger tracepoint:oom:mark_victim
                                                       what happened before memory ran out?
  probe trace vfs_read rawtp:sys_enter -d 5s -F jsonl  two probes, for five seconds, as JSON lines
  probe trace 'vfs_*' -x '*_lock*' -- cat /etc/hostname
                                                       what does cat do with files?")]
pub(crate) struct Trace {
    #[command(flatten)]
    pub(crate) traced: Traced,

    /// Output format
    #[arg(short = 'F', long, value_parser = one_of(format::EVENTS), default_value = "table")]
    pub(crate) format: Format,

    /// Clock to show times with, in tables and JSON lines
    #[arg(long, value_name = "CLOCK", value_parser = one_of(format::CLOCKS), default_value = "mono")]
    pub(crate) time: Time,

    #[command(flatten)]
    order: Order,

    /// Print numbers instead of the names of constants, errors, functions, devices and addresses
    #[arg(long)]
    pub(crate) raw_values: bool,
}

impl Trace {
    /// Checks what clap cannot.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.traced.flight.is_wanted() && self.order.unordered {
            return Err("--unordered does not apply to dumps, which are in the order of time");
        }
        if self.format == Format::Perfetto && self.time != Time::default() {
            return Err(TIMELINE);
        }
        self.traced.check()
    }

    /// Whether events are held, to be printed in the order of time.
    pub(crate) fn is_ordered(&self) -> bool {
        // Dumps are always ordered.
        !self.traced.flight.is_wanted() && self.order.is_ordered(self.format)
    }
}

/// Record every hit of the probes to a file, to print later or elsewhere
///
/// The file contains everything that probe replay needs: the probes, every event, the names of functions,
/// and the ledger. Recording is cheaper than printing. Ends as probe trace does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe record -o opens do_sys_openat2 -d 1m           record file opens, for a minute
  probe replay opens                                   and print it
  probe record -o waits -K -U tracepoint:sched:sched_switch -- make
  probe replay waits -F svg >waits.svg                 where does make wait?
  ssh HOST probe record -o - rawtp:sched_process_exec -d 5s | probe replay -
                                                       record there, print here")]
pub(crate) struct Record {
    /// The file to write, which is replaced if it exists; - for standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    /// Write even to a directory to which others can write
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) traced: Traced,
}

/// Print the events of a recording
///
/// Prints them as probe trace would have. A truncated or corrupt file is printed up to the fault; the error
/// says where it is, and the exit status is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe replay opens                                   as a table
  probe replay opens -F jsonl --time local             as JSON lines, with the time of day
  probe replay waits -F folded | flamegraph.pl >waits.svg
                                                       its stacks, counted")]
pub(crate) struct Replay {
    /// The file to read; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// End after N events
    #[arg(short = 'M', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_events: Option<u64>,

    /// Output format
    #[arg(short = 'F', long, value_parser = one_of(format::REPLAY), default_value = "table")]
    pub(crate) format: ReplayFormat,

    /// Clock to show times with, in tables and JSON lines
    #[arg(long, value_name = "CLOCK", value_parser = one_of(format::CLOCKS), default_value = "mono")]
    pub(crate) time: Time,

    #[command(flatten)]
    order: Order,

    /// Print numbers instead of the names of constants, errors, functions, devices and addresses
    #[arg(long)]
    pub(crate) raw_values: bool,
}

const TIMELINE: &str =
    "--time applies to tables and JSON lines; a timeline has the kernel's monotonic times";

impl Replay {
    /// Checks what clap cannot.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let Order { ordered, unordered } = self.order;
        let is_of_events = self.raw_values || ordered || unordered || self.time != Time::default();
        match self.format {
            ReplayFormat::Stacks(_) if is_of_events => Err(
                "--time, --ordered, --unordered and --raw-values apply to single events, which are not printed in this format",
            ),
            ReplayFormat::Events(Format::Perfetto) if self.time != Time::default() => Err(TIMELINE),
            _ => Ok(()),
        }
    }

    /// Whether events are held, to be printed in the order of time. A stream would have to end before any is printed.
    pub(crate) fn is_ordered(&self, format: Format, is_stream: bool) -> bool {
        if is_stream { self.order.ordered } else { self.order.is_ordered(format) }
    }
}

/// Probes, targets and limits of a trace.
#[derive(Debug, clap::Args)]
pub(crate) struct Traced {
    /// What to probe: FUNCTION or kprobe:FUNCTION, kretprobe:FUNCTION, fentry:FUNCTION, fexit:FUNCTION,
    /// MODULE:FUNCTION, ksyscall:NAME, tracepoint:CATEGORY:NAME, rawtp:NAME, uprobe:FILE:FUNCTION,
    /// uretprobe:FILE:FUNCTION; optionally followed by (FIELDS) and /PREDICATE/. A name with * or ? stands
    /// for every match
    #[arg(required = true, value_name = "PROBE", add = ArgValueCompleter::new(complete::probes))]
    pub(crate) probes: Vec<ProbeSpec>,

    #[command(flatten)]
    pub(crate) choice: Choice,

    /// End after N events
    #[arg(short = 'M', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_events: Option<u64>,

    /// End after this time, like 10s or 500ms; seconds need no unit
    #[arg(short, long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) duration: Option<Duration>,

    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// Report each call of a function or a system call in one event, when it returns, with its arguments,
    /// retval and latency
    #[arg(short, long)]
    pub(crate) ret: bool,

    /// Report only calls that took longer than this, like 1ms or 10us (a number without a unit is in seconds);
    /// implies --ret
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) longer: Option<Duration>,

    /// Report what the CPU counted during each call: up to four perf events, separated by commas, such as
    /// page-faults, cycles, cpu-clock or CATEGORY:TRACEPOINT. A count includes everything that the CPU ran
    /// meanwhile, and is unknown if the call ends on another CPU. Fields and predicates call the counters
    /// counter, counter2, and so on. Requires --ret or --longer
    #[arg(long = "counter", value_name = "EVENT", add = ArgValueCompleter::new(complete::events))]
    counters: Vec<EventList>,

    /// Report one in N hits of each probe, on each CPU, like 1/100
    #[arg(long, value_name = "1/N", value_parser = value::one_in)]
    pub(crate) sample: Option<u32>,

    /// Report at most N hits of each probe a second, like 100/s
    #[arg(long, value_name = "N/s", value_parser = value::per_second)]
    pub(crate) rate: Option<u32>,

    /// Show the kernel stack of each event
    #[arg(short = 'K', long)]
    pub(crate) kernel_stack: bool,

    /// Show the user stack of each event. The program and its libraries need frame pointers. If a process ended before its
    /// first event was printed, only addresses in files that it loaded during the trace get names
    #[arg(short = 'U', long)]
    pub(crate) user_stack: bool,

    #[command(flatten)]
    pub(crate) ring: Ring,

    #[command(flatten)]
    pub(crate) flight: Flight,

    /// Exit with status 3 if the kernel skipped hits, and with 4 if events are missing for any other reason
    #[arg(long)]
    pub(crate) require_complete: bool,

    #[command(flatten)]
    pub(crate) seal: Seal,
}

impl Traced {
    /// All events to count during calls.
    pub(crate) fn counters(&self) -> impl Iterator<Item = Event> {
        value::each_of(&self.counters)
    }

    /// Checks what clap cannot.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if !self.counters.is_empty() && !self.ret && self.longer.is_none() {
            return Err("--counter counts during calls: give --ret, too");
        }
        self.target.check()
    }

    /// The options of the pipe of this trace.
    pub(crate) fn options(&self) -> Options {
        match self.flight.bytes {
            Some(bytes) => Options::new().bytes_per_cpu(bytes).overwrite(),
            None => self.ring.options(),
        }
    }
}

/// The flight recorder, which keeps events until a dump is requested.
#[derive(Debug, clap::Args)]
pub(crate) struct Flight {
    /// Keep only the latest events, in this much memory for each CPU, and print them in a dump: at the end, on
    /// SIGUSR2, and on --trigger
    #[arg(long = "flight-recorder", value_name = "BYTES", value_parser = value::bytes, conflicts_with = "buffer_size")]
    bytes: Option<usize>,

    /// Dump on every hit of this probe by a traced target; optionally with a /PREDICATE/
    #[arg(long = "trigger", value_name = "PROBE", requires = "bytes", add = ArgValueCompleter::new(complete::probes))]
    pub(crate) triggers: Vec<ProbeSpec>,
}

impl Flight {
    /// Whether the flight recorder is on.
    pub(crate) fn is_wanted(&self) -> bool {
        self.bytes.is_some()
    }
}

/// In which order events are printed.
#[derive(Debug, clap::Args)]
pub(crate) struct Order {
    /// Sort the events of all CPUs by time, holding each until no older one can arrive; the default except
    /// for JSON lines, and for a recording that is replayed while it comes through a pipe
    #[arg(long)]
    ordered: bool,

    /// Print events at once, in the order of each CPU; the default for JSON lines
    #[arg(long, conflicts_with = "ordered")]
    unordered: bool,
}

impl Order {
    /// Whether events in this format are held, to be printed in the order of time.
    pub(crate) fn is_ordered(&self, format: Format) -> bool {
        if format == Format::Jsonl { self.ordered } else { !self.unordered }
    }
}
