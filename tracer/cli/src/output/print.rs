//! Text on standard output and standard error.

use super::{Patient, stdout};
use anyhow::Result;
use probe_sys::escape::Escaped;
use probe_tracer::output::json_line;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};

/// Prints a text in one piece.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = stdout();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()), "the output")
}

/// Prints a value as one JSON object, or as the text.
pub(crate) fn print_as(json: bool, value: &impl Serialize, text: impl Display) -> Result<()> {
    print(&if json { json_line(value) } else { harmless(&text.to_string()) })
}

/// Escapes what could affect a terminal in lines of text.
pub(crate) fn harmless(lines: &str) -> String {
    let escaped = |line: &str| match line.strip_suffix('\n') {
        Some(line) => format!("{}\n", Escaped(line.as_bytes())),
        None => Escaped(line.as_bytes()).to_string(),
    };
    lines.split_inclusive('\n').map(escaped).collect()
}

/// Prints a line on standard error.
pub(crate) fn report(line: impl Display) {
    report_as_is(&format!("probe: {}\n", harmless(&line.to_string())));
}

/// Prints lines on standard error, in one piece. A failed write there is no reason to fail, and cannot be reported.
pub(crate) fn report_as_is(lines: &str) {
    let _ = Patient(io::stderr()).write_all(lines.as_bytes());
}

/// Checks the result of a write. Errors call the data `what`.
pub(crate) fn written(result: io::Result<()>, what: &str) -> Result<()> {
    match result {
        // It needs no more.
        result if is_closed(&result) => Ok(()),
        Err(error) => anyhow::bail!("cannot write {what}: {error}"),
        Ok(()) => Ok(()),
    }
}

/// Whether a write failed because the reader has closed the pipe.
pub(crate) fn is_closed(result: &io::Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
