//! `probe`: traces functions and tracepoints of the kernel, and functions of programs.

mod args;
mod commands;
mod output;
mod refusal;
mod running;

use args::Args;
use output::print::{harmless, report_as_is};
use probe_sys::escape::Escaped;
use probe_tracer::TraceError;
use signal_hook::consts::SIGXFSZ;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    probe_tracer::allow_symbol_reader();
    commands::completions::answer();
    let args: Vec<_> = std::env::args_os().collect();
    let args = Args::of(&args).unwrap_or_else(|error| refusal::refuse(&error));
    let level = match args.verbose {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    };
    let mut logger = env_logger::Builder::new();
    logger.filter_level(level).format(|out, record| {
        writeln!(out, "[{:<5}] {}", record.level(), harmless(&record.args().to_string()))
    });
    match args.verbose {
        // Where its warnings matter, they also come back as errors.
        0 => drop(logger.filter_module("aya", log::LevelFilter::Error)),
        // The steps of loading an object: thousands of lines.
        1 => drop(logger.filter_module("aya", log::LevelFilter::Info)),
        _ => {}
    }
    logger.init();
    // Reaching a file's size limit is then a write error, and does not end the process. The command gets the default action.
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::default()) {
        log::warn!("a file's size limit will end this process: {error}");
    }
    if let Err(error) = running::signals::follow_children() {
        log::warn!("the status of the command will be missing: {error}");
    }
    commands::run(&args.command, level).unwrap_or_else(|error| {
        if let Some(&TraceError::Interrupted(signal)) = error.downcast_ref() {
            return ExitCode::from(128u8.saturating_add(signal as u8));
        }
        let text = match error.downcast_ref::<TraceError>() {
            // This error has several lines, and nothing in it needs escaping.
            Some(TraceError::Field(error)) => error.to_string(),
            _ => Escaped(error.to_string().as_bytes()).to_string(),
        };
        report_as_is(&format!("probe: {text}\n"));
        ExitCode::FAILURE
    })
}
