//! The command line.

use super::{completions, patterns, ring};
use clap::{ArgAction, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use probe_user::common::trace::COMM_LEN;
use probe_user::perf::{Event, EventError};
use probe_user::trace::output;
use probe_user::trace::{ProbeSpec, Scope, TraceError, TracedCommand, TracerBuilder};
use probe_user::{Options, cpus};
use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::str::FromStr;
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
    Record(Record),
    Replay(Replay),
    List(List),
    Info(Info),
    Count(Count),
    Latency(Latency),
    Stack(Stack),
    Sample(Sample),
    Check(Check),
    Completions(Completions),
}

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
    #[arg(value_name = "PROBE", add = ArgValueCompleter::new(completions::probes))]
    pub(crate) probe: ProbeSpec,

    /// Also list the members of structures, and of what fields point to
    #[arg(short, long)]
    pub(crate) members: bool,

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

/// What is traced, of whom, and until when.
#[derive(Debug, clap::Args)]
pub(crate) struct Traced {
    /// What to probe: FUNCTION or kprobe:FUNCTION, kretprobe:FUNCTION, MODULE:FUNCTION,
    /// ksyscall:NAME, tracepoint:CATEGORY:NAME, rawtp:NAME, uprobe:FILE:FUNCTION,
    /// uretprobe:FILE:FUNCTION; then perhaps (FIELDS) and /CONDITION/. A name with * or ? in it is all that
    /// match
    #[arg(required = true, value_name = "PROBE", add = ArgValueCompleter::new(completions::probes))]
    pub(crate) probes: Vec<ProbeSpec>,

    #[command(flatten)]
    pub(crate) choice: Choice,

    /// End after so many events
    #[arg(short = 'M', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_events: Option<u64>,

    /// End after this time, like 10s or 500ms
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    #[command(flatten)]
    pub(crate) target: Target,

    /// Tell entry and return in one event, when the function returns, of the kernel or of a program: arguments,
    /// retval and latency
    #[arg(short, long)]
    pub(crate) ret: bool,

    /// Tell only calls that took longer, like 1ms or 10us; implies --ret
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) longer: Option<Duration>,

    /// Tell what the CPU counted in each call, as perf names it: page-faults, cycles, cpu-clock,
    /// CATEGORY:TRACEPOINT; up to four, with commas between them. It counts whatever else it runs meanwhile, too;
    /// of a call that ends on another CPU, it is not known. In fields and conditions, they are counter, counter2,
    /// and so on. Takes --ret
    #[arg(long = "counter", value_name = "EVENT", add = ArgValueCompleter::new(completions::events))]
    counters: Vec<EventList>,

    /// Tell one in N hits of each probe, on each CPU: 1/100
    #[arg(long, value_name = "1/N", value_parser = one_in)]
    pub(crate) sample: Option<NonZeroU32>,

    /// Tell at most N hits of each probe in a second: 100/s
    #[arg(long, value_name = "N/s", value_parser = per_second)]
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

/// Where events wait until they are read.
#[derive(Debug, clap::Args)]
pub(crate) struct Ring {
    /// Ring buffer for each CPU: a power of two, like 64K or 1M. The default is 8M, less on machines with
    /// more than 8 CPUs, and 1M without CAP_IPC_LOCK
    #[arg(short = 'B', long, value_name = "BYTES", value_parser = bytes)]
    buffer_size: Option<usize>,
}

impl Ring {
    pub(crate) fn options(&self) -> Options {
        Options::new().bytes_per_cpu(self.buffer_size.unwrap_or_else(ring::bytes))
    }
}

/// Events that are kept, and told when one asks for them.
#[derive(Debug, clap::Args)]
pub(crate) struct Flight {
    /// Keep the latest events of each CPU in this much memory, over older ones, and tell them when there is a
    /// dump: at the end, with SIGUSR2, and with --trigger
    #[arg(long = "flight-recorder", value_name = "BYTES", value_parser = bytes, conflicts_with = "buffer_size")]
    bytes: Option<usize>,

    /// Dump with every hit of this probe, of those who are traced: written as PROBE, with a /CONDITION/ or
    /// without
    #[arg(long = "trigger", value_name = "PROBE", requires = "bytes", add = ArgValueCompleter::new(completions::probes))]
    pub(crate) triggers: Vec<ProbeSpec>,
}

impl Flight {
    /// Whether events are kept.
    pub(crate) fn is_wanted(&self) -> bool {
        self.bytes.is_some()
    }
}

impl Traced {
    /// All events that are counted in calls.
    pub(crate) fn counters(&self) -> impl Iterator<Item = Event> {
        each_of(&self.counters)
    }

    /// How the pipe of the trace is opened.
    pub(crate) fn options(&self) -> Options {
        match self.flight.bytes {
            Some(bytes) => Options::new().bytes_per_cpu(bytes).overwrite(),
            None => self.ring.options(),
        }
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

/// Count the hits of each probe, and print them at the end
///
/// They are counted in the kernel: a hit costs little, and none is lost. Ends with Ctrl-C, with the
/// command, or after the duration.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe count 'vfs_*' -- cat /etc/hostname             how often does cat run each of these?
  probe count 'tcp_*' -x '*_timer*' -d 10s             what does TCP do in ten seconds?
  probe count 'tracepoint:sched:*' -d 1s -F jsonl      events of the scheduler, as JSON
  probe count 'vfs_read/count > 4096/' -n postgres     how many large reads?")]
pub(crate) struct Count {
    #[command(flatten)]
    pub(crate) probes: Aggregate,

    /// How counts are written
    #[arg(short = 'F', long, value_enum, default_value_t)]
    pub(crate) format: CountFormat,
}

/// Time the calls of functions, and print a histogram of each at the end
///
/// They are timed and added up in the kernel: none is told by itself, and none is lost. Ends with Ctrl-C,
/// with the command, or after the duration.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe latency vfs_read -d 10s                        how long do reads take?
  probe latency 'vfs_*' -- cat /etc/hostname           and what else cat does with files?
  probe latency 'vfs_fsync_range/retval == 0/' -n postgres
                                                       and what postgres waits for?
  probe latency uprobe:libc:getaddrinfo -d 10s         how long do names take to be found?
  probe latency do_nanosleep -d 5s -F svg >sleeps.svg  as a picture")]
pub(crate) struct Latency {
    #[command(flatten)]
    pub(crate) probes: Aggregate,

    /// How latencies are written
    #[arg(short = 'F', long, value_enum, default_value_t)]
    pub(crate) format: LatencyFormat,
}

/// Count the ways that lead to a function, and print them at the end
///
/// Each way is the task's name and the functions that called each other, down to the one that is probed: one
/// counts how often it was taken. As a flame graph, it is a picture. Ends with Ctrl-C, with the command, or
/// after the duration.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe stack vfs_fsync_range -d 10s                    who waits for the disk?
  probe stack tracepoint:skb:kfree_skb -d 10s           where are packets dropped?
  probe stack -K -U 'vfs_read/count > 4096/' -n postgres -F svg >reads.svg
                                                        where in postgres are large reads?
  probe stack tracepoint:sched:sched_switch -d 5s -F folded | flamegraph.pl >switches.svg")]
pub(crate) struct Stack {
    #[command(flatten)]
    pub(crate) probes: Aggregate,

    /// Tell the functions of the kernel: the default, without --user-stack
    #[arg(short = 'K', long)]
    pub(crate) kernel_stack: bool,

    /// Tell the functions of the process: as far as it is compiled with frame pointers, and exists when they
    /// are looked up
    #[arg(short = 'U', long)]
    pub(crate) user_stack: bool,

    #[command(flatten)]
    pub(crate) ring: Ring,

    /// How ways are written
    #[arg(short = 'F', long, value_enum, default_value_t)]
    pub(crate) format: StackFormat,
}

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
    #[arg(short = 'e', long = "event", value_name = "EVENT", add = ArgValueCompleter::new(completions::events))]
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
    #[arg(short = 'C', long = "cpu", value_name = "CPUS", value_parser = cpu_list,
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
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    /// How ways are written
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) format: StackFormat,

    /// A file to write to, which is replaced if it is there
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Ring buffer for each CPU, or thread: a power of two, like 64K or 1M
    #[arg(short = 'B', long, value_name = "BYTES", value_parser = bytes, default_value = "512K")]
    buffer_size: usize,

    #[command(flatten)]
    pub(crate) aux: Aux,

    /// Sample this command and what it makes, from its first instruction until it exits, and exit with its
    /// status. Its standard output goes to standard error
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
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
    #[arg(short = 'm', long = "aux-size", value_name = "BYTES", value_parser = bytes,
        default_value = "4M", requires = "dir")]
    pub(crate) size: usize,

    /// Keep the newest data alone, over older data, and write it with SIGUSR2 and at the end: to cpu-N.1.aux,
    /// cpu-N.2.aux, and so on
    #[arg(long, requires = "dir")]
    pub(crate) snapshot: bool,
}

impl Sample {
    /// All events that are named.
    pub(crate) fn events(&self) -> Vec<Event> {
        each_of(&self.events).collect()
    }

    /// Bytes of each ring.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.buffer_size
    }
}

/// Events, with commas between them.
#[derive(Clone, Debug)]
struct EventList(Vec<Event>);

fn each_of(lists: &[EventList]) -> impl Iterator<Item = Event> {
    lists.iter().flat_map(|EventList(events)| events).cloned()
}

impl FromStr for EventList {
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        Event::list(text).map(Self)
    }
}

/// CPUs, by their ids.
#[derive(Clone, Debug)]
pub(crate) struct CpuList(pub(crate) Vec<u32>);

/// What is added up, and until when.
#[derive(Debug, clap::Args)]
pub(crate) struct Aggregate {
    /// What to probe: as for probe trace, without fields
    #[arg(required = true, value_name = "PROBE", add = ArgValueCompleter::new(completions::probes))]
    pub(crate) probes: Vec<ProbeSpec>,

    #[command(flatten)]
    pub(crate) choice: Choice,

    /// End after this time, like 10s or 500ms
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    #[command(flatten)]
    pub(crate) target: Target,
}

impl Aggregate {
    /// Probes what is chosen.
    pub(crate) fn choose(&self, builder: TracerBuilder) -> Result<TracerBuilder, TraceError> {
        let builder = self.probes.iter().cloned().fold(builder, TracerBuilder::probe);
        patterns::choose(builder, &self.choice)
    }
}

/// Who is traced.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Target {
    /// Trace this process alone, and end with it
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["command", "all"])]
    pub(crate) pid: Option<u32>,

    /// Trace what the process of --pid forks from now on, too; the end of that process is still the end
    #[arg(long, requires = "pid")]
    pub(crate) children: bool,

    /// Trace a cgroup alone, and those in it: a directory like /sys/fs/cgroup/user.slice
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) cgroup: Option<PathBuf>,

    /// Trace this thread alone
    #[arg(short, long, value_name = "TID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tid: Option<u32>,

    /// Trace threads of this name alone (up to 15 bytes)
    #[arg(short = 'n', long, value_name = "NAME", value_parser = comm)]
    pub(crate) comm: Option<String>,

    /// Trace this user alone: a number or a name
    #[arg(short, long, value_name = "USER", value_parser = user)]
    pub(crate) uid: Option<u32>,

    /// Trace everybody, not the command and its descendants alone
    #[arg(short, long)]
    pub(crate) all: bool,

    /// Trace this command and its descendants, from before its first instruction until it exits,
    /// and exit with its status. Its standard output goes to standard error
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl Target {
    /// The command, if there is one, held until the probes are attached.
    pub(crate) fn hold(&self) -> Result<Option<TracedCommand>, TraceError> {
        match self.command.as_slice() {
            [] => Ok(None),
            command => TracedCommand::hold(command).map(Some),
        }
    }

    /// Traces nobody else. The command is held.
    pub(crate) fn narrow(
        &self,
        builder: TracerBuilder,
        command: Option<&TracedCommand>,
    ) -> TracerBuilder {
        let scope = match (self.pid, command) {
            (Some(pid), _) if self.children => Scope::Descendants(pid),
            (Some(pid), _) => Scope::Process(pid),
            (None, Some(command)) if !self.all => Scope::Descendants(command.pid()),
            _ => Scope::Everybody,
        };
        let mut builder = builder.scope(scope);
        if let Some(cgroup) = &self.cgroup {
            builder = builder.cgroup(cgroup);
        }
        if let Some(tid) = self.tid {
            builder = builder.thread(tid);
        }
        if let Some(comm) = &self.comm {
            builder = builder.named(comm);
        }
        if let Some(uid) = self.uid {
            builder = builder.user(uid);
        }
        builder
    }
}

/// Which of a pattern's matches are probed.
#[derive(Debug, clap::Args)]
pub(crate) struct Choice {
    /// Leave out what matches, of all that patterns match
    #[arg(short = 'x', long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,

    /// Probe more than 10,000 functions, 1,000 where each is attached by itself, or 500 where each takes a program
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum CountFormat {
    /// Aligned columns
    #[default]
    Table,
    /// One JSON object a line
    Jsonl,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LatencyFormat {
    /// A histogram for each function
    #[default]
    Table,
    /// One JSON object a line, for each function
    #[value(alias = "json")]
    Jsonl,
    /// A picture
    Svg,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum StackFormat {
    /// A line for each function, the most frequent way first
    #[default]
    Table,
    /// A line for each way, for programs that draw flame graphs
    Folded,
    /// A flame graph
    Svg,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns
    #[default]
    Table,
    /// One JSON object a line
    Jsonl,
    /// A timeline for ui.perfetto.dev or chrome://tracing
    Perfetto,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ReplayFormat {
    /// Aligned columns
    #[default]
    Table,
    /// One JSON object a line
    Jsonl,
    /// A timeline for ui.perfetto.dev or chrome://tracing
    Perfetto,
    /// A line for each way that led to a hit, for programs that draw flame graphs
    Folded,
    /// A flame graph
    Svg,
}

/// How times are shown.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Time {
    /// CLOCK_MONOTONIC: since the system was started
    #[default]
    Mono,
    /// The clock on the wall, here; in JSON, as a second member `local`
    Local,
    /// Since the event before; in JSON, as a second member `delta`, in nanoseconds
    Delta,
}

impl Trace {
    /// Whether events are held, to be printed in the order of time.
    pub(crate) fn is_ordered(&self) -> bool {
        // Dumps are, whatever one says.
        !self.traced.flight.is_wanted()
            && self.order.is_ordered(!matches!(self.format, Format::Jsonl))
    }
}

impl Replay {
    /// The same of a recording.
    pub(crate) fn is_ordered(&self) -> bool {
        self.order.is_ordered(!matches!(self.format, ReplayFormat::Jsonl))
    }
}

impl Order {
    fn is_ordered(&self, by_default: bool) -> bool {
        if by_default { !self.unordered } else { self.ordered }
    }
}

impl From<Time> for output::Time {
    fn from(time: Time) -> Self {
        match time {
            Time::Mono => Self::Mono,
            Time::Local => Self::Local,
            Time::Delta => Self::Delta,
        }
    }
}

impl From<LatencyFormat> for output::LatencyFormat {
    fn from(format: LatencyFormat) -> Self {
        match format {
            LatencyFormat::Table => Self::Table,
            LatencyFormat::Jsonl => Self::Jsonl,
            LatencyFormat::Svg => Self::Svg,
        }
    }
}

impl From<StackFormat> for output::StackFormat {
    fn from(format: StackFormat) -> Self {
        match format {
            StackFormat::Table => Self::Table,
            StackFormat::Folded => Self::Folded,
            StackFormat::Svg => Self::Svg,
        }
    }
}

impl From<Format> for output::Format {
    fn from(format: Format) -> Self {
        match format {
            Format::Table => Self::Table,
            Format::Jsonl => Self::Jsonl,
            Format::Perfetto => Self::Perfetto,
        }
    }
}

/// Reads `1/100`.
fn one_in(text: &str) -> Result<NonZeroU32, String> {
    let number = text.strip_prefix("1/").and_then(|number| number.parse().ok());
    number.ok_or_else(|| "one in how many? 1/100 is one in a hundred".to_owned())
}

/// Reads `100/s`, or `100`.
fn per_second(text: &str) -> Result<NonZeroU32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).parse().ok();
    number.ok_or_else(|| "how many in a second? 100/s is a hundred".to_owned())
}

fn cpu_list(text: &str) -> Result<CpuList, String> {
    match cpus::parse(text) {
        Ok(cpus) if cpus.is_empty() => Err("no CPU is none: write them like 0,2-3".into()),
        Ok(cpus) => Ok(CpuList(cpus)),
        Err(error) => Err(error.to_string()),
    }
}

fn comm(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("it has to have a byte at least".into()),
        len if len < COMM_LEN => Ok(text.to_owned()),
        len => Err(format!("it has {len} bytes, and the kernel keeps {} of a name", COMM_LEN - 1)),
    }
}

fn user(text: &str) -> Result<u32, String> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    match nix::unistd::User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err("there is no user of this name".into()),
        Err(errno) => Err(format!("cannot look up users: {}", errno.desc())),
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
        assert_eq!(bytes("64K"), Ok(64 << 10));
        assert_eq!(bytes("1MiB"), Ok(1 << 20));
        assert!(bytes("-1").is_err());
        assert!(bytes("x").is_err());
    }

    #[test]
    fn a_table_is_ordered_and_json_is_not_unless_one_says_so() {
        for (args, is_ordered) in [
            (&[][..], true),
            (&["--ordered"], true),
            (&["--unordered"], false),
            (&["-F", "jsonl"], false),
            (&["-F", "jsonl", "--ordered"], true),
            (&["-F", "jsonl", "--unordered"], false),
        ] {
            let args = Args::parse_from(["probe", "trace", "f"].iter().chain(args));
            let Command::Trace(trace) = args.command else { panic!("not a trace") };
            assert_eq!(trace.is_ordered(), is_ordered, "{trace:?}");
        }
    }

    #[test]
    fn events_are_apart_from_each_other() {
        let list = "cs,software/config=2,config1=0/u";
        let args = Args::parse_from(["probe", "sample", "-e", list, "-e", "faults"]);
        let Command::Sample(sample) = args.command else { panic!("{args:?}") };
        let events: Vec<_> = sample.events().iter().map(Event::to_string).collect();
        assert_eq!(events, ["context-switches", "software/config=2,config1=0/u", "page-faults"]);
    }

    #[test]
    fn counters_are_apart_from_each_other() {
        let list = "cs,software/config=2,config1=0/u";
        let args = ["probe", "trace", "--ret", "--counter", list, "--counter", "faults", "f"];
        let Command::Trace(trace) = Args::parse_from(args).command else { panic!("{args:?}") };
        let counters: Vec<_> = trace.traced.counters().map(|event| event.to_string()).collect();
        assert_eq!(counters, ["context-switches", "software/config=2,config1=0/u", "page-faults"]);
    }

    #[test]
    fn a_trace_of_the_hardware_is_no_sample() {
        let parse = |rest: &[&str]| {
            Args::try_parse_from(["probe", "sample", "-e", "cs"].iter().chain(rest)).map(drop)
        };
        assert!(parse(&["--aux", "dir", "-m", "64K", "--snapshot"]).is_ok());
        for wrong in [
            &["--snapshot"][..],
            &["-m", "64K"],
            &["--aux", "dir", "-F", "99"],
            &["--aux", "dir", "-c", "1"],
            &["--aux", "dir", "-f", "svg"],
            &["--aux", "dir", "-o", "file"],
            &["--aux", "dir", "-B", "64K"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(Args::try_parse_from(["probe", "sample", "--aux", "dir"]).is_err());
    }

    #[test]
    fn probes_are_apart_from_the_command() {
        let args =
            Args::parse_from(["probe", "trace", "a", "rawtp:b", "-M", "3", "--", "cat", "-M"]);
        let Command::Trace(trace) = args.command else { panic!("{args:?}") };
        assert_eq!(trace.traced.probes.len(), 2);
        assert_eq!(trace.traced.max_events, Some(3));
        assert_eq!(trace.traced.target.command, ["cat", "-M"]);
    }
}
