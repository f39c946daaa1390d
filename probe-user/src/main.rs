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
    let mut logger = env_logger::Builder::new();
    logger.filter_level(level).format_target(false);
    if args.verbose == 0 {
        // What it warns of comes back as an error where it matters.
        logger.filter_module("aya", log::LevelFilter::Error);
    }
    logger.init();
    let result = match args.command {
        Command::Trace(trace) => cli::trace::run(&trace, level),
    };
    result.unwrap_or_else(|error| {
        eprintln!("probe: {error}");
        ExitCode::FAILURE
    })
}
