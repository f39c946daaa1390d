//! The file of `probe sample --aux` that describes tasks and their mappings.

use crate::output::directory::Directory;
use crate::output::file::OutputFile;
use anyhow::{Result, anyhow};
use probe_perf::record::Record;
use probe_perf::{Event, Flags, Sampler, Software, Target};
use probe_tracer::output::RecordLines;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::sync::Arc;

/// The size of each ring, in bytes; context switches are frequent.
const RING: usize = 512 << 10;

/// The file, `records.jsonl`.
pub(crate) struct Records {
    path: PathBuf,
    lines: RecordLines<BufWriter<OutputFile>>,
    written: io::Result<()>,
}

impl Records {
    /// A sampler of tasks and mappings, with the clock of the trace. It continues when a trace has no room
    /// left.
    pub(crate) fn sampler(target: Target, flags: Flags) -> Result<Sampler> {
        let tasks = Flags::COMM | Flags::COMM_EXEC | Flags::TASK | Flags::CONTEXT_SWITCH;
        // Without the kernel, it takes no more privileges than a trace of user space.
        let event = Event::from(Software::Dummy).user_only();
        let builder = Sampler::builder().event(event).target(target).perf_clock();
        let builder = builder.flags(tasks | Flags::MMAP | Flags::MMAP2 | flags);
        let builder = builder.bytes_per_ring(RING).wake_after_bytes(RING as u32 / 4);
        Ok(builder.open()?)
    }

    pub(crate) fn create(dir: &Arc<Directory>) -> Result<Self> {
        // Each line is of use by itself.
        let file = OutputFile::create(dir, "records.jsonl")?.named()?;
        let path = file.path().to_owned();
        let lines = RecordLines::new(BufWriter::new(file));
        Ok(Self { path, lines, written: Ok(()) })
    }

    /// Writes a record, unless an earlier one failed.
    pub(crate) fn write(&mut self, record: &Record<'_>) {
        if self.written.is_ok() {
            self.written = self.lines.write(record);
        }
    }

    /// Writes at most `most` available records, and returns the first error of writing.
    pub(crate) fn take(&mut self, sampler: &mut Sampler, most: usize) -> Result<()> {
        for _ in 0..most {
            match sampler.next_record() {
                Some(Ok(record)) => self.write(&record),
                Some(Err(error)) => log::warn!("{error}"),
                None => break,
            }
        }
        let written = std::mem::replace(&mut self.written, Ok(()));
        let written = written.and_then(|()| self.lines.flush());
        written.map_err(|error| anyhow!("cannot write {}: {error}", self.path.display()))
    }
}
