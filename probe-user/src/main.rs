//! `probe`: shows what the kernel does.

mod cli {
    pub(crate) mod args;
    pub(crate) mod exit;
    pub(crate) mod trace;
}

use clap::Parser;
use cli::args::{Args, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    let level = match args.verbose {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    };
    env_logger::Builder::new().filter_level(level).format_target(false).init();
    let result = match args.command {
        Command::Trace(trace) => cli::trace::run(&trace, level),
    };
    result.unwrap_or_else(|error| {
        eprintln!("probe: {error}");
        ExitCode::FAILURE
    })
}
