//! A process that writes at a steady rate, slowly enough for every tracer to print each write.

use std::convert::Infallible;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The subcommand's name.
const NAME: &str = "pace";

/// Writes in a second.
const RATE: u32 = 20_000;

/// The command that writes to its standard output.
pub(super) fn command() -> io::Result<Vec<String>> {
    let own = std::env::current_exe()?;
    Ok(vec![own.to_string_lossy().into_owned(), NAME.to_owned()])
}

/// Writes for ever, without sleeping: a CPU that idles between two writes is slow when it wakes up.
pub(crate) fn run() -> io::Result<Infallible> {
    let mut output = io::stdout().lock();
    let mut next = Instant::now();
    loop {
        output.write_all(b"x")?;
        output.flush()?;
        next += Duration::from_secs(1) / RATE;
        while Instant::now() < next {
            std::hint::spin_loop();
        }
    }
}
