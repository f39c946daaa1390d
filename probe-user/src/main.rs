//! `probe`: shows what the kernel does.

mod cli {
    pub(crate) mod aggregate;
    pub(crate) mod args;
    pub(crate) mod aux;
    pub(crate) mod aux_files;
    pub(crate) mod aux_records;
    pub(crate) mod check;
    pub(crate) mod completions;
    pub(crate) mod count;
    pub(crate) mod ending;
    pub(crate) mod exit;
    pub(crate) mod file;
    pub(crate) mod flight;
    pub(crate) mod follow;
    pub(crate) mod info;
    pub(crate) mod latency;
    pub(crate) mod ledger;
    pub(crate) mod list;
    pub(crate) mod output;
    pub(crate) mod patterns;
    pub(crate) mod print;
    pub(crate) mod privileges;
    pub(crate) mod progress;
    pub(crate) mod record;
    pub(crate) mod replay;
    pub(crate) mod ring;
    pub(crate) mod sample;
    pub(crate) mod stack;
    pub(crate) mod symbols;
    pub(crate) mod trace;
}

use clap::Parser;
use cli::args::{Args, Command};
use probe_user::Escaped;
use probe_user::trace::{ProbeSpec, TraceError};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::completions::answer();
    let args = Args::try_parse().unwrap_or_else(|error| refuse(&error));
    let level = match args.verbose {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    };
    let mut logger = env_logger::Builder::new();
    logger.filter_level(level).format_target(false);
    if args.verbose == 0 {
        // What it warns of comes back as an error where it matters.
        logger.filter_module("aya", log::LevelFilter::Error);
    }
    logger.init();
    let result = match args.command {
        Command::Trace(trace) => cli::trace::run(&trace, level),
        Command::Record(record) => cli::record::run(&record, level),
        Command::Replay(replay) => cli::replay::run(&replay),
        Command::List(list) => cli::list::run(&list),
        Command::Info(info) => cli::info::run(&info),
        Command::Count(count) => cli::count::run(&count),
        Command::Latency(latency) => cli::latency::run(&latency),
        Command::Sample(sample) => cli::sample::run(&sample),
        Command::Stack(stack) => cli::stack::run(&stack),
        Command::Check(check) => cli::check::run(&check),
        Command::Completions(completions) => cli::completions::run(&completions),
    };
    result.unwrap_or_else(|error| {
        // Nobody may be there to read it.
        let _ = match error.downcast_ref::<TraceError>() {
            // Several lines, and nothing in them that is to be escaped.
            Some(TraceError::Field(error)) => writeln!(std::io::stderr(), "probe: {error}"),
            _ => writeln!(std::io::stderr(), "probe: {}", Escaped(error.to_string().as_bytes())),
        };
        ExitCode::FAILURE
    })
}

/// Says why the command line is none, or what was asked about it, and exits.
///
/// The error quotes the argument, so it is made anew from arguments that are safe to show. Those are
/// as wrong as the true ones: no argument of ours that is not safe is right, other than the command and
/// a probe, and a probe has a way to be written that is.
fn refuse(error: &clap::Error) -> ! {
    match Args::try_parse_from(std::env::args_os().map(|arg| shown(&arg))) {
        Err(shown) => shown.exit(),
        Ok(_) => clap::Error::new(error.kind()).exit(),
    }
}

/// An argument, made safe to show.
fn shown(arg: &OsStr) -> String {
    let escaped = Escaped(arg.as_bytes()).to_string();
    if *arg == *escaped {
        return escaped;
    }
    let spec = arg.to_str().and_then(|arg| arg.parse::<ProbeSpec>().ok());
    spec.map_or(escaped, |spec| spec.to_string())
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_is_right_stays_right_when_it_is_shown() {
        for (arg, expected) in [
            ("vfs_read", "vfs_read"),
            ("f/a ==\n1/", "kprobe:f/a == 1/"),
            ("f/comm == \"\u{202e}\"/", "kprobe:f/comm == \"\\xe2\\x80\\xae\"/"),
            ("f/a ==\n/", "f/a ==\\n/"),
            ("5\n", "5\\n"),
        ] {
            assert_eq!(shown(arg.as_ref()), expected);
        }
    }
}
