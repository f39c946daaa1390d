//! The command line.

mod about;
mod aggregate;
mod complete;
pub(crate) mod foreign;
mod format;
mod ring;
mod sample;
mod seal;
mod target;
mod trace;
mod value;

pub(crate) use about::{Check, Completions, Info, List, Shell};
pub(crate) use aggregate::{Aggregate, Count, Latency, Stack};
pub(crate) use format::{CountFormat, ReplayFormat};
pub(crate) use ring::default_ring_bytes;
pub(crate) use sample::Sample;
pub(crate) use seal::Seal;
pub(crate) use target::{AtEnd, Choice, TargetArgs};
pub(crate) use trace::{Flight, Record, Replay, Trace, Traced};

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use std::ffi::OsStr;

/// Trace functions and tracepoints of the kernel, and functions of programs
#[derive(Debug, Parser)]
#[command(name = "probe", version, arg_required_else_help = true)]
pub(crate) struct Args {
    /// Show the log of the tracer and its eBPF programs; give it twice to log every hit
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Parses a command line. A command that is announced has to follow: without one, the whole system would be traced.
    pub(crate) fn of<A: AsRef<OsStr>>(args: &[A]) -> Result<Self, clap::Error> {
        let parsed = Self::try_parse_from(args.iter().map(AsRef::as_ref))?;
        let refused = |kind, why| Err(Self::command().error(kind, why));
        if args.iter().position(|arg| arg.as_ref() == "--").is_some_and(|at| at + 1 == args.len()) {
            return refused(ErrorKind::TooFewValues, "no command follows --");
        }
        match parsed.command.check() {
            Err(why) => refused(ErrorKind::ArgumentConflict, why),
            Ok(()) => Ok(parsed),
        }
    }
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

impl Command {
    /// Checks what clap cannot.
    fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Trace(trace) => trace.check(),
            Self::Record(Record { traced, .. }) => traced.check(),
            Self::Replay(replay) => replay.check(),
            Self::Count(Count { probes, .. })
            | Self::Latency(Latency { probes, .. })
            | Self::Stack(Stack { probes, .. }) => probes.target.check(),
            Self::Sample(sample) => sample.check(),
            Self::List(_) | Self::Info(_) | Self::Check(_) | Self::Completions(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_perf::Event;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn a_table_is_ordered_by_default_and_json_is_not() {
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
    fn lists_of_events_are_split() {
        let list = "cs,software/config=2,config1=0/u";
        let args = Args::parse_from(["probe", "sample", "-e", list, "-e", "faults"]);
        let Command::Sample(sample) = args.command else { panic!("{args:?}") };
        let args = ["probe", "trace", "--ret", "--counter", list, "--counter", "faults", "f"];
        let Command::Trace(trace) = Args::parse_from(args).command else { panic!("{args:?}") };
        for events in [sample.events(), trace.traced.counters().collect()] {
            let events: Vec<_> = events.iter().map(Event::to_string).collect();
            assert_eq!(
                events,
                ["context-switches", "software/config=2,config1=0/u", "page-faults"]
            );
        }
    }

    #[test]
    fn options_of_samples_and_hardware_traces_conflict() {
        let parse = |rest: &[&str]| {
            Args::try_parse_from(["probe", "sample", "-e", "cs"].iter().chain(rest)).map(drop)
        };
        assert!(parse(&["--aux", "dir", "-m", "64K", "--snapshot"]).is_ok());
        for invalid in [
            &["--snapshot"][..],
            &["-m", "64K"],
            &["--aux", "dir", "-F", "99"],
            &["--aux", "dir", "-c", "1"],
            &["--aux", "dir", "-f", "svg"],
            &["--aux", "dir", "-o", "file"],
            &["--aux", "dir", "-B", "64K"],
            &["--aux", "dir", "--include-self"],
            &["-t", "1", "--per-thread"],
            &["-a", "--at-end", "wait"],
        ] {
            assert!(parse(invalid).is_err(), "{invalid:?}");
        }
        assert!(Args::try_parse_from(["probe", "sample", "--aux", "dir"]).is_err());
    }

    #[test]
    fn the_name_of_the_output_says_what_is_written() {
        for (args, format) in [
            ("", "Table"),
            ("-o cpu", "Table"),
            ("-o cpu.txt", "Table"),
            ("-o .svg", "Table"),
            ("-o cpu.svg", "Svg"),
            ("-o svg.folded", "Folded"),
            ("-o cpu.svg -f folded", "Folded"),
            ("-o - -f svg", "Svg"),
        ] {
            let args = format!("probe sample {args}");
            let Command::Sample(sample) =
                Args::of(&Vec::from_iter(args.split_whitespace())).unwrap().command
            else {
                panic!("{args}");
            };
            assert_eq!(format!("{:?}", sample.format()), format, "{args}");
        }
    }

    #[test]
    fn options_without_effect_are_refused() {
        let is_refused = |args: &[&str]| Args::of(&[&["probe"], args].concat()).is_err();
        let recorder = ["trace", "f", "--flight-recorder", "1M"];
        assert!(!is_refused(&recorder) && is_refused(&[&recorder[..], &["--unordered"]].concat()));
        for format in ["folded", "svg"] {
            let replay = ["replay", "file", "-F", format];
            assert!(!is_refused(&replay));
            for option in ["--ordered", "--unordered", "--raw-values", "--time=local"] {
                assert!(is_refused(&[&replay[..], &[option]].concat()), "{option}");
            }
        }
        assert!(!is_refused(&["replay", "file", "--raw-values", "--time=local"]));
        for command in [["trace", "f"], ["replay", "file"]] {
            let timeline = [&command[..], &["-F", "perfetto"]].concat();
            assert!(!is_refused(&timeline), "{command:?}");
            assert!(is_refused(&[&timeline[..], &["--time=local"]].concat()), "{command:?}");
        }
    }

    #[test]
    fn a_command_follows_two_dashes() {
        let of = |rest: &[&str]| Args::of(&[&["probe", "trace", "f"], rest].concat()).is_ok();
        assert!(of(&[]) && of(&["--", "git", "log", "--"]) && of(&["--", "--"]));
        assert!(!of(&["--"]));
    }

    #[test]
    fn options_that_say_nothing_together_are_refused() {
        let error = |args: &str| {
            let args: Vec<_> = args.split(' ').collect();
            Args::of(&args).err().map(|error| (error.exit_code(), error.to_string()))
        };
        for (args, why) in [
            ("probe trace f --children -p 1,2", "one process"),
            ("probe count f -t 17 -- true", "-a"),
            ("probe trace f --counter faults", "--ret"),
            ("probe sample --per-thread", "--pid"),
            ("probe trace f -x [", "'['"),
            ("probe list f(", "f("),
        ] {
            let (code, shown) = error(args).unwrap();
            assert!(code == 2 && shown.contains(why), "{args}: {shown}");
        }
        for args in [
            "probe trace f --children -p 1",
            "probe trace f -a -t 17 -- true",
            "probe trace f --longer 1ms --counter faults",
            "probe sample --per-thread -- true",
            "probe sample --per-thread -p 17",
        ] {
            assert_eq!(error(args), None, "{args}");
        }
    }

    #[test]
    fn options_of_the_command_are_not_those_of_probe() {
        let args =
            Args::parse_from(["probe", "trace", "a", "rawtp:b", "-M", "3", "--", "cat", "-M"]);
        let Command::Trace(trace) = args.command else { panic!("{args:?}") };
        assert_eq!(trace.traced.probes.len(), 2);
        assert_eq!(trace.traced.max_events, Some(3));
        assert_eq!(trace.traced.target.command, ["cat", "-M"]);
    }
}
