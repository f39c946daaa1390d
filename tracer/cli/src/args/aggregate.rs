//! Commands that aggregate hits.

use super::format::{self, CountFormat, one_of};
use super::ring::Ring;
use super::seal::Seal;
use super::target::{Choice, TargetArgs};
use super::{complete, value};
use clap_complete::engine::ArgValueCompleter;
use probe_tracer::output::{LatencyFormat, StackFormat};
use probe_tracer::{ProbeSpec, TraceError, TracerBuilder};
use std::time::Duration;

/// Count the hits of each probe, and print them at the end
///
/// Hits are counted in the kernel, so each costs little and no ring can overflow. The summary reports hits
/// that the kernel skipped. Ends with Ctrl-C, with the command, or after the duration.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe count 'vfs_*' -- cat /etc/hostname             how often does cat call each of these?
  probe count 'tcp_*' -x '*_timer*' -d 10s             what does TCP do in ten seconds?
  probe count 'tracepoint:sched:*' -d 1s -F jsonl      scheduler events, as JSON lines
  probe count 'vfs_read/count > 4096/' -n postgres     how many large reads?")]
pub(crate) struct Count {
    #[command(flatten)]
    pub(crate) probes: Aggregate,

    /// Output format
    #[arg(short = 'F', long, value_parser = one_of(format::COUNTS), default_value = "table")]
    pub(crate) format: CountFormat,
}

/// Time calls of functions or system calls, and print histograms at the end
///
/// Calls are timed and added up in the kernel, without an event for each. The summary reports calls that
/// could not be timed. Ends with Ctrl-C, with the command, or after the duration.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe latency vfs_read -d 10s                        how long do reads take?
  probe latency 'vfs_*' -- cat /etc/hostname           how long do the file operations of cat take?
  probe latency 'vfs_fsync_range/retval == 0/' -n postgres
                                                       how long does postgres wait for the disk?
  probe latency 'tracepoint:syscalls:sys_enter_*' -- CMD
                                                       in which system calls does a command spend its time?
  probe latency uprobe:libc:getaddrinfo -d 10s         how long do name lookups take?
  probe latency do_nanosleep -d 5s -F svg >sleeps.svg  as a picture")]
pub(crate) struct Latency {
    #[command(flatten)]
    pub(crate) probes: Aggregate,

    /// Output format
    #[arg(short = 'F', long, value_parser = one_of(format::LATENCIES), default_value = "table")]
    pub(crate) format: LatencyFormat,
}

/// Count the stacks that lead to a function, and print them at the end
///
/// A stack is the name of the task and the chain of calls down to the probed function. -F svg draws a flame
/// graph. Ends with Ctrl-C, with the command, or after the duration.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  probe stack vfs_fsync_range -d 10s                    which code waits for the disk?
  probe stack tracepoint:skb:kfree_skb -d 10s           where are packets dropped?
  probe stack -K -U 'vfs_read/count > 4096/' -n postgres -F svg >reads.svg
                                                        where in postgres are large reads?
  probe stack tracepoint:sched:sched_switch -d 5s -F folded | flamegraph.pl >switches.svg")]
pub(crate) struct Stack {
    #[command(flatten)]
    pub(crate) probes: Aggregate,

    /// Count kernel stacks; the default without --user-stack
    #[arg(short = 'K', long)]
    pub(crate) kernel_stack: bool,

    /// Count user stacks. The program and its libraries need frame pointers. If a process ended before its first hit was
    /// read, only addresses in files that it loaded during the trace get names
    #[arg(short = 'U', long)]
    pub(crate) user_stack: bool,

    #[command(flatten)]
    pub(crate) ring: Ring,

    /// Output format
    #[arg(short = 'F', long, value_parser = one_of(format::STACKS), default_value = "table")]
    pub(crate) format: StackFormat,
}

/// Probes, targets and limits of an aggregation.
#[derive(Debug, clap::Args)]
pub(crate) struct Aggregate {
    /// What to probe, as for probe trace, without fields
    #[arg(required = true, value_name = "PROBE", add = ArgValueCompleter::new(complete::probes))]
    pub(crate) probes: Vec<ProbeSpec>,

    #[command(flatten)]
    pub(crate) choice: Choice,

    /// End after this time, like 10s or 500ms; seconds need no unit
    #[arg(short, long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) duration: Option<Duration>,

    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) seal: Seal,
}

impl Aggregate {
    /// Adds the chosen probes to the builder.
    pub(crate) fn choose(&self, builder: TracerBuilder) -> Result<TracerBuilder, TraceError> {
        self.choice.probe(&self.probes, builder)
    }
}
