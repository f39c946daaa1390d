//! What adds hits up.

use super::format::{CountFormat, LatencyFormat, StackFormat};
use super::ring::Ring;
use super::target::{Choice, Target};
use super::{complete, value};
use clap_complete::engine::ArgValueCompleter;
use probe_user::trace::{ProbeSpec, TraceError, TracerBuilder};
use std::time::Duration;

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

/// What is added up, and until when.
#[derive(Debug, clap::Args)]
pub(crate) struct Aggregate {
    /// What to probe: as for probe trace, without fields
    #[arg(required = true, value_name = "PROBE", add = ArgValueCompleter::new(complete::probes))]
    pub(crate) probes: Vec<ProbeSpec>,

    #[command(flatten)]
    pub(crate) choice: Choice,

    /// End after this time, like 10s or 500ms
    #[arg(short, long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) duration: Option<Duration>,

    #[command(flatten)]
    pub(crate) target: Target,
}

impl Aggregate {
    /// Probes what is chosen.
    pub(crate) fn choose(&self, builder: TracerBuilder) -> Result<TracerBuilder, TraceError> {
        self.choice.probe(&self.probes, builder)
    }
}
