//! Recordings: traces in files, for any output at a later time or on another machine.
//!
//! A [`Recorder`] writes what it receives from a tracer; a [`Recording`] replays it to any consumer. Names of
//! addresses are looked up during recording, so the traced programs are not needed for reading.
//! `docs/recording.md` describes the format.
//!
//! ```no_run
//! use probe_user::Stop;
//! use probe_tracer::output::{Format, Printer};
//! use probe_tracer::recording::{Recorder, Recording};
//! use probe_tracer::{Symbols, Tracer};
//! use std::fs::File;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut tracer = Tracer::builder().probe("tracepoint:sched:sched_switch".parse()?).attach()?;
//! let probes = tracer.probes().to_vec();
//! let mut recorder = Recorder::new(File::create("switches")?, probes, Symbols::none());
//! recorder.start()?;
//! tracer.run(&Stop::new()?, &mut recorder)?;
//! let ledger = tracer.close(&mut recorder)?;
//! recorder.finish(&ledger)?;
//!
//! let mut recording = Recording::open(File::open("switches")?)?;
//! let mut printer = Printer::new(std::io::stdout(), Format::Jsonl, recording.probes().to_vec())
//!     .origin(recording.origin().clone())
//!     .symbols(recording.symbols());
//! printer.start()?;
//! let _ = recording.replay(&mut printer)?;
//! printer.finish(recording.close()?)?;
//! # Ok(())
//! # }
//! ```

mod format;
mod header;
mod input;
mod name_sizes;
mod notes;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use input::RecordingError;
pub use reader::Recording;
pub use writer::Recorder;
