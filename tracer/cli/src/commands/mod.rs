//! The subcommands.

mod about;
mod aggregate;
mod aux;
pub(crate) mod completions;
mod replay;
mod sample;
mod stack;
mod trace;

use crate::args::Command;
use anyhow::Result;
use log::LevelFilter;
use std::process::ExitCode;

/// Runs a subcommand and returns the exit status of the process.
pub(crate) fn run(command: &Command, level: LevelFilter) -> Result<ExitCode> {
    match command {
        Command::Trace(args) => trace::trace(args, level),
        Command::Record(args) => trace::record(args, level),
        Command::Replay(args) => replay::run(args),
        Command::List(args) => about::list(args),
        Command::Info(args) => about::info(args),
        Command::Count(args) => aggregate::count(args),
        Command::Latency(args) => aggregate::latency(args),
        Command::Sample(args) => sample::run(args),
        Command::Stack(args) => stack::run(args),
        Command::Check(args) => about::check(args),
        Command::Completions(args) => completions::run(args),
    }
}
