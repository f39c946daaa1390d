//! `probe record`.

use super::args::Record;
use super::{file, trace};
use anyhow::{Result, ensure};
use probe_user::trace::recording::Recorder;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(args: &Record, level: log::LevelFilter) -> Result<ExitCode> {
    // In the order of their CPUs: names are looked up as soon as can be, and there is time for the order
    // of time later.
    trace::traced(&args.traced, false, level, |probes, symbols| {
        let writer = create(&args.output)?;
        Ok(Recorder::new(writer, probes, symbols).limit(args.traced.max_events))
    })
}

fn create(path: &Path) -> Result<Box<dyn Write>> {
    if path == Path::new("-") {
        let stdout = io::stdout();
        ensure!(!stdout.is_terminal(), "a recording is nothing for a terminal: write it to a file");
        return Ok(Box::new(stdout));
    }
    Ok(Box::new(file::create(path)?))
}
