//! Answers, on standard output.

use anyhow::Result;
use std::io::{self, Write};

/// Prints a text in one piece.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()), "the answer")
}

/// Whether something could be written, which an error calls `what`.
pub(crate) fn written(result: io::Result<()>, what: &str) -> Result<()> {
    match result {
        // Whoever reads it has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => anyhow::bail!("cannot write {what}: {error}"),
        Ok(()) => Ok(()),
    }
}
