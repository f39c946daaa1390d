//! `probe`: shows what the kernel does.

mod cli {
    pub(crate) mod args;
    pub(crate) mod check;
    pub(crate) mod exit;
    pub(crate) mod trace;
}

use clap::Parser;
use cli::args::{Args, Command};
use probe_user::Escaped;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

fn main() -> ExitCode {
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
        Command::Check(check) => cli::check::run(&check),
    };
    result.unwrap_or_else(|error| {
        // Nobody may be there to read it.
        let error = error.to_string();
        let _ = writeln!(std::io::stderr(), "probe: {}", Escaped(error.as_bytes()));
        ExitCode::FAILURE
    })
}

/// Says why the command line is none, or what was asked about it, and exits.
///
/// The error quotes the argument, so it is made anew from arguments that are safe to show. Those are
/// as wrong as the true ones: no argument of ours, other than the command, may hold a backslash.
fn refuse(error: &clap::Error) -> ! {
    let args = std::env::args_os().map(|arg| Escaped(arg.as_bytes()).to_string());
    match Args::try_parse_from(args) {
        Err(shown) => shown.exit(),
        Ok(_) => clap::Error::new(error.kind()).exit(),
    }
}
