//! The command line.

mod about;
mod aggregate;
mod complete;
mod format;
mod ring;
mod sample;
mod target;
mod trace;
mod value;

pub(crate) use about::{Check, Completions, Info, List, Shell};
pub(crate) use aggregate::{Aggregate, Count, Latency, Stack};
pub(crate) use format::{CountFormat, LatencyFormat, ReplayFormat};
pub(crate) use sample::Sample;
pub(crate) use target::Target;
pub(crate) use trace::{Flight, Record, Replay, Trace, Traced};

use clap::{ArgAction, Parser, Subcommand};

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

#[cfg(test)]
mod tests {
    use super::*;
    use probe_user::perf::Event;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
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
