//! What tells, or keeps, every hit.

use super::complete;
use super::format::{Format, ReplayFormat, Time};
use super::ring::Ring;
use super::target::{Choice, Target};
use super::value::{self, EventList};
use clap::ValueHint;
use clap_complete::engine::ArgValueCompleter;
use probe_user::Options;
use probe_user::perf::Event;
use probe_user::trace::ProbeSpec;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

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
  probe trace 'vfs_read(file->f_path.dentry->d_name.name:str, count)/count > 4096/'
                                                       which files are read in large pieces?
  probe trace --ret ksyscall:openat -n cat             which files does cat open, or fail to?
  probe trace 'kretprobe:vfs_read/retval < 0/' -n cat  which reads of cat fail?
  probe trace 'uprobe:libc:getenv(arg0:str)' -- date   what does date look up?
  probe trace --longer 1ms vfs_read                    which reads take long?
  probe trace --ret 'uprobe:libc:malloc(size=arg0:u64)/retval == 0/'
                                                       who gets no memory?
  probe trace --ret --counter page-faults vfs_read     what do reads cost?
  probe trace --ret --counter cycles,instructions vfs_read
                                                       and how much of that are instructions?
  probe trace -K tracepoint:skb:kfree_skb -M 10        where are packets dropped?
  probe trace 'rawtp:*' --flight-recorder 8M --trigger tracepoint:oom:mark_victim
                                                       what went on before memory ran out?
  probe trace vfs_read rawtp:sys_enter -d 5s -F jsonl  two probes, for five seconds, as JSON
  probe trace 'vfs_*' -x '*_lock*' -- cat /etc/hostname
                                                       what does cat do with files?")]
pub(crate) struct Trace {
    #[command(flatten)]
    pub(crate) traced: Traced,

    /// How events are written
    #[arg(short = 'F', long, value_enum, default_value_t)]
    pub(crate) format: Format,

    /// How times are shown
    #[arg(long, value_enum, default_value_t, value_name = "CLOCK")]
    pub(crate) time: Time,

    #[command(flatten)]
    order: Order,
}

impl Trace {
    /// Whether events are held, to be printed in the order of time.
    pub(crate) fn is_ordered(&self) -> bool {
        // Dumps are, whatever one says.
        !self.traced.flight.is_wanted()
            && self.order.is_ordered(!matches!(self.format, Format::Jsonl))
    }
}

/// Keep every hit of the probes in a file, to print them later or elsewhere
///
/// The file has all that probe replay needs: what is traced, every event, the names of functions, and what
/// became of every record. What takes long to print takes little to record. Ends as probe trace does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe record -o opens do_sys_openat2 -d 1m           keep who opens files, for a minute
  probe replay opens                                   and print it
  probe record -o waits -K -U tracepoint:sched:sched_switch -- make
  probe replay waits -F svg >waits.svg                 where does make wait?
  ssh HOST probe record -o - rawtp:sched_process_exec -d 5s | probe replay -
                                                       record there, print here")]
pub(crate) struct Record {
    /// The file, which is replaced if it is there; - for standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    #[command(flatten)]
    pub(crate) traced: Traced,
}

/// Print the events of a file that probe record made
///
/// As probe trace would have printed them. A file that is cut off, or wrong somewhere, is printed up to
/// there; then it says where, and exits with 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe replay opens                                   as a table
  probe replay opens -F jsonl --time local             as JSON, with the time of day
  probe replay waits -F folded | flamegraph.pl >waits.svg
                                                       the stacks that it has, counted")]
pub(crate) struct Replay {
    /// The file; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// End after so many events
    #[arg(short = 'M', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_events: Option<u64>,

    /// How events are written
    #[arg(short = 'F', long, value_enum, default_value_t)]
    pub(crate) format: ReplayFormat,

    /// How times are shown
    #[arg(long, value_enum, default_value_t, value_name = "CLOCK")]
    pub(crate) time: Time,

    #[command(flatten)]
    order: Order,
}

impl Replay {
    /// The same of a recording.
    pub(crate) fn is_ordered(&self) -> bool {
        self.order.is_ordered(!matches!(self.format, ReplayFormat::Jsonl))
    }
}

/// What is traced, of whom, and until when.
#[derive(Debug, clap::Args)]
pub(crate) struct Traced {
    /// What to probe: FUNCTION or kprobe:FUNCTION, kretprobe:FUNCTION, MODULE:FUNCTION,
    /// ksyscall:NAME, tracepoint:CATEGORY:NAME, rawtp:NAME, uprobe:FILE:FUNCTION,
    /// uretprobe:FILE:FUNCTION; then perhaps (FIELDS) and /CONDITION/. A name with * or ? in it is all that
    /// match
    #[arg(required = true, value_name = "PROBE", add = ArgValueCompleter::new(complete::probes))]
    pub(crate) probes: Vec<ProbeSpec>,

    #[command(flatten)]
    pub(crate) choice: Choice,

    /// End after so many events
    #[arg(short = 'M', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_events: Option<u64>,

    /// End after this time, like 10s or 500ms
    #[arg(short, long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) duration: Option<Duration>,

    #[command(flatten)]
    pub(crate) target: Target,

    /// Tell entry and return in one event, when the function returns, of the kernel or of a program: arguments,
    /// retval and latency
    #[arg(short, long)]
    pub(crate) ret: bool,

    /// Tell only calls that took longer, like 1ms or 10us; implies --ret
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) longer: Option<Duration>,

    /// Tell what the CPU counted in each call, as perf names it: page-faults, cycles, cpu-clock,
    /// CATEGORY:TRACEPOINT; up to four, with commas between them. It counts whatever else it runs meanwhile, too;
    /// of a call that ends on another CPU, it is not known. In fields and conditions, they are counter, counter2,
    /// and so on. Takes --ret
    #[arg(long = "counter", value_name = "EVENT", add = ArgValueCompleter::new(complete::events))]
    counters: Vec<EventList>,

    /// Tell one in N hits of each probe, on each CPU: 1/100
    #[arg(long, value_name = "1/N", value_parser = value::one_in)]
    pub(crate) sample: Option<NonZeroU32>,

    /// Tell at most N hits of each probe in a second: 100/s
    #[arg(long, value_name = "N/s", value_parser = value::per_second)]
    pub(crate) rate: Option<NonZeroU32>,

    /// Tell the functions of the kernel that led there, with each event
    #[arg(short = 'K', long)]
    pub(crate) kernel_stack: bool,

    /// Tell the functions of the process that led there, with each event: as far as it is compiled with frame
    /// pointers, and exists when the event is printed
    #[arg(short = 'U', long)]
    pub(crate) user_stack: bool,

    #[command(flatten)]
    pub(crate) ring: Ring,

    #[command(flatten)]
    pub(crate) flight: Flight,

    /// Give up every privilege once the probes are attached: CPUs that come later are not traced
    #[arg(long)]
    pub(crate) sealed: bool,
}

impl Traced {
    /// All events that are counted in calls.
    pub(crate) fn counters(&self) -> impl Iterator<Item = Event> {
        value::each_of(&self.counters)
    }

    /// How the pipe of the trace is opened.
    pub(crate) fn options(&self) -> Options {
        match self.flight.bytes {
            Some(bytes) => Options::new().bytes_per_cpu(bytes).overwrite(),
            None => self.ring.options(),
        }
    }
}

/// Events that are kept, and told when one asks for them.
#[derive(Debug, clap::Args)]
pub(crate) struct Flight {
    /// Keep the latest events of each CPU in this much memory, over older ones, and tell them when there is a
    /// dump: at the end, with SIGUSR2, and with --trigger
    #[arg(long = "flight-recorder", value_name = "BYTES", value_parser = value::bytes, conflicts_with = "buffer_size")]
    bytes: Option<usize>,

    /// Dump with every hit of this probe, of those who are traced: written as PROBE, with a /CONDITION/ or
    /// without
    #[arg(long = "trigger", value_name = "PROBE", requires = "bytes", add = ArgValueCompleter::new(complete::probes))]
    pub(crate) triggers: Vec<ProbeSpec>,
}

impl Flight {
    /// Whether events are kept.
    pub(crate) fn is_wanted(&self) -> bool {
        self.bytes.is_some()
    }
}

/// In which order events are printed.
#[derive(Debug, clap::Args)]
pub(crate) struct Order {
    /// Print events of all CPUs in the order of time, each held for as long as one that is older may
    /// take to arrive: the default for all formats but JSON lines
    #[arg(long)]
    ordered: bool,

    /// Print events at once, in the order of their CPU: the default for JSON lines
    #[arg(long, conflicts_with = "ordered")]
    unordered: bool,
}

impl Order {
    fn is_ordered(&self, by_default: bool) -> bool {
        if by_default { !self.unordered } else { self.ordered }
    }
}
