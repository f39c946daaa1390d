//! The file of `probe sample --aux` that tells of tasks and their mappings.

use super::file::create;
use anyhow::{Result, anyhow};
use probe_user::perf::record::Record;
use probe_user::perf::{Flags, Sampler, Scope, Software};
use probe_user::trace::output::RecordLines;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// Bytes of each ring: switches come often.
const RING: usize = 512 << 10;

/// The file, `records.jsonl`.
pub(super) struct Records {
    path: PathBuf,
    lines: RecordLines<BufWriter<File>>,
    written: io::Result<()>,
}

impl Records {
    /// What tells of tasks and mappings, by the clock of the trace. It does not end when a trace has no room.
    pub(super) fn sampler(scope: Scope, flags: Flags) -> Result<Sampler> {
        let tasks = Flags::COMM | Flags::COMM_EXEC | Flags::TASK | Flags::CONTEXT_SWITCH;
        let builder = Sampler::builder().event(Software::Dummy).scope(scope).perf_clock();
        let builder = builder.flags(tasks | Flags::MMAP | Flags::MMAP2 | flags);
        let builder = builder.bytes_per_ring(RING).wake_after_bytes(RING as u32 / 4);
        Ok(builder.open()?)
    }

    pub(super) fn create(dir: &Path) -> Result<Self> {
        let path = dir.join("records.jsonl");
        let lines = RecordLines::new(BufWriter::new(create(&path)?));
        Ok(Self { path, lines, written: Ok(()) })
    }

    /// Writes a record, unless one before could not be written.
    pub(super) fn write(&mut self, record: &Record<'_>) {
        if self.written.is_ok() {
            self.written = self.lines.write(record);
        }
    }

    /// Writes what there is now, at most so many records, and says whether everything could be written.
    pub(super) fn take(&mut self, sampler: &mut Sampler, most: usize) -> Result<()> {
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
