//! Traces in files: everything that an output needs, for later and elsewhere.
//!
//! A [`Recorder`] writes what a tracer gives it; a [`Recording`] gives it again, to whatever consumer. The
//! names of addresses are looked up when they are recorded: nothing of the traced programs has to be there
//! when it is read. `docs/recording.md` describes the format.
//!
//! ```no_run
//! use probe_user::Stop;
//! use probe_user::trace::output::{Format, Printer};
//! use probe_user::trace::recording::{Recorder, Recording};
//! use probe_user::trace::{Symbols, Tracer};
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

mod block;
mod error;
mod format;
mod header;
mod input;
mod notes;
mod reader;
mod symbols;
#[cfg(test)]
mod tests;
mod writer;

pub use error::RecordingError;
pub use reader::Recording;
pub use writer::Recorder;
