//! The files of `probe sample --aux`.

use crate::commands::aux::records::Records;
use crate::output::directory::Directory;
use crate::output::file::OutputFile;
use anyhow::{Result, anyhow};
use probe_perf::{AuxFlags, AuxPiece, AuxTrace, AuxTraces};
use signal_hook::consts::SIGUSR2;
use signal_hook::low_level::pipe;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the file of a CPU or thread, without its extension.
pub(crate) fn name(trace: &AuxTrace) -> String {
    match (trace.cpu(), trace.thread()) {
        (Some(cpu), _) => format!("cpu-{cpu}"),
        (None, thread) => format!("thread-{}", thread.unwrap_or_default()),
    }
}

/// A file with all data of a trace.
pub(crate) struct Output {
    file: OutputFile,
    pub(crate) bytes: u64,
    pub(crate) pieces: u64,
    /// Bytes that the ring has no record of.
    pub(crate) skipped: u64,
    /// Records for which the ring had no room.
    pub(crate) lost: u64,
    pub(crate) truncated: u64,
    partial: u64,
    collided: u64,
}

impl Output {
    pub(crate) fn create(dir: &Arc<Directory>, name: &str) -> Result<Self> {
        let file = OutputFile::create(dir, format!("{name}.aux"))?;
        let [bytes, pieces, skipped, lost, truncated, partial, collided] = [0; 7];
        Ok(Self { file, bytes, pieces, skipped, lost, truncated, partial, collided })
    }

    /// Lets another process name the files.
    pub(crate) fn named_by_a_process(outputs: &mut [Self]) {
        let mut files: Vec<_> = outputs.iter_mut().map(|one| &mut one.file).collect();
        OutputFile::named_by_a_process(&mut files);
    }

    /// The directory to which its file still needs access.
    pub(crate) fn directory(&self) -> Option<&Directory> {
        self.file.directory()
    }

    /// Writes the pieces that the trace has, until at least `most` bytes were written.
    pub(crate) fn take(
        &mut self,
        trace: &mut AuxTrace,
        records: &mut Records,
        most: u64,
    ) -> Result<()> {
        let before = self.bytes;
        while self.bytes - before < most
            && let Some(piece) = trace.next_piece(|record| records.write(record))
        {
            write(&mut self.file, &piece)?;
            self.bytes += piece.len() as u64;
            self.pieces += 1;
            let has = |flag| u64::from(piece.flags.contains(flag));
            self.truncated += has(AuxFlags::TRUNCATED);
            self.partial += has(AuxFlags::PARTIAL);
            self.collided += has(AuxFlags::COLLISION);
        }
        Ok(())
    }

    /// Lets the file appear. Returns its line of the table.
    pub(crate) fn finish(self) -> Result<String> {
        let Self { file, bytes, pieces, skipped, lost, truncated, partial, collided } = self;
        let line = format!(
            "{bytes:>14} {pieces:>8} {skipped:>10} {lost:>6} {truncated:>9} {partial:>8} {collided:>8} {}\n",
            file_name(file.path())
        );
        file.finish().map(|()| line)
    }
}

/// The snapshots of all traces.
pub(crate) struct Snapshots {
    requests: UnixStream,
    dir: Arc<Directory>,
    pub(crate) files: Vec<Snapshot>,
    pub(crate) count: u64,
    /// The records that each trace had lost at its last snapshot.
    reported_losses: BTreeMap<String, u64>,
}

impl Snapshots {
    /// No snapshots yet. From now on, SIGUSR2 requests one instead of ending the process.
    pub(crate) fn prepare(dir: Arc<Directory>) -> Result<Self> {
        let (requests, sender) = UnixStream::pair()?;
        requests.set_nonblocking(true)?;
        pipe::register(SIGUSR2, sender)?;
        Ok(Self { requests, dir, files: Vec::new(), count: 0, reported_losses: BTreeMap::new() })
    }

    /// Where files are created.
    pub(crate) fn directory(&self) -> &Directory {
        &self.dir
    }

    /// Readable when a snapshot is requested.
    pub(crate) fn requests(&self) -> BorrowedFd<'_> {
        self.requests.as_fd()
    }

    /// Whether a snapshot is requested, once for any number of requests.
    pub(crate) fn is_requested(&mut self) -> bool {
        let mut is_requested = false;
        while matches!(self.requests.read(&mut [0; 64]), Ok(1..)) {
            is_requested = true;
        }
        is_requested
    }

    /// Writes the contents of all traces at one moment, each to a file, and lets them continue.
    pub(crate) fn take(&mut self, traces: &mut AuxTraces, records: &mut Records) -> Result<()> {
        self.count += 1;
        traces.disable()?;
        for trace in traces.traces() {
            let of = name(trace);
            let name = format!("{of}.{}.aux", self.count);
            let mut file = OutputFile::create(&self.dir, name)?;
            let path = file.path().to_owned();
            let write = |piece: AuxPiece<'_>| {
                write(&mut file, &piece)?;
                Ok::<_, anyhow::Error>((piece.len(), piece.position, piece.flags))
            };
            let taken = trace.snapshot(write, |record| records.write(record));
            let (bytes, from, flags) = taken.map_err(|error| failed("take", &path, &error))??;
            file.finish()?;
            let lost = trace.lost_records();
            let lost = lost - self.reported_losses.insert(of, lost).unwrap_or(0);
            self.files.push(Snapshot { path, bytes, from, lost, flags });
        }
        Ok(())
    }
}

/// A file with the newest data of a trace.
pub(crate) struct Snapshot {
    path: PathBuf,
    pub(crate) bytes: usize,
    /// Its start in the sequence of all data, in bytes, if the hardware reports it.
    from: Option<u64>,
    /// Records for which the ring had no room since the previous snapshot.
    pub(crate) lost: u64,
    pub(crate) flags: AuxFlags,
}

impl Snapshot {
    pub(crate) fn line(&self) -> String {
        let Self { path, bytes, from, lost, flags } = self;
        let has = |flag| u8::from(flags.contains(flag));
        let from = from.map_or_else(|| "-".to_owned(), |from| from.to_string());
        format!(
            "{bytes:>14} {from:>14} {lost:>6} {:>9} {:>8} {:>8} {}\n",
            has(AuxFlags::TRUNCATED),
            has(AuxFlags::PARTIAL),
            has(AuxFlags::COLLISION),
            file_name(path)
        )
    }
}

fn write(file: &mut OutputFile, piece: &AuxPiece<'_>) -> Result<()> {
    let written = file.write_all(piece.bytes).and_then(|()| file.write_all(piece.wrapped));
    written.map_err(|error| failed("write", file.path(), &error))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn failed(what: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("cannot {what} {}: {error}", path.display())
}
