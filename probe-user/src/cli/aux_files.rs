//! The files of `probe sample --aux`.

use super::aux_records::Records;
use super::file::create;
use anyhow::{Result, anyhow};
use probe_user::perf::{AuxFlags, AuxPiece, AuxTrace, AuxTraces};
use signal_hook::consts::SIGUSR2;
use signal_hook::low_level::pipe;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The file of a CPU, or thread, without its end.
pub(super) fn name(trace: &AuxTrace) -> String {
    match (trace.cpu(), trace.thread()) {
        (Some(cpu), _) => format!("cpu-{cpu}"),
        (None, thread) => format!("thread-{}", thread.unwrap_or_default()),
    }
}

/// A file of all data.
pub(super) struct Output {
    path: PathBuf,
    file: File,
    pub(super) bytes: u64,
    pub(super) pieces: u64,
    /// Bytes that the ring does not tell of.
    pub(super) skipped: u64,
    /// Records that it had no room for.
    pub(super) lost: u64,
    pub(super) truncated: u64,
    partial: u64,
    collided: u64,
}

impl Output {
    pub(super) fn create(dir: &Path, name: &str) -> Result<Self> {
        let path = dir.join(format!("{name}.aux"));
        let file = create(&path)?;
        let (bytes, pieces, skipped, lost) = (0, 0, 0, 0);
        let (truncated, partial, collided) = (0, 0, 0);
        Ok(Self { path, file, bytes, pieces, skipped, lost, truncated, partial, collided })
    }

    /// Takes the pieces that a trace has, until there are so many bytes.
    pub(super) fn take(
        &mut self,
        trace: &mut AuxTrace,
        records: &mut Records,
        most: u64,
    ) -> Result<()> {
        let before = self.bytes;
        while self.bytes - before < most
            && let Some(piece) = trace.next_piece_and(|record| records.write(record))
        {
            write(&mut self.file, &self.path, &piece)?;
            self.bytes += piece.len() as u64;
            self.pieces += 1;
            let has = |flag| u64::from(piece.flags.contains(flag));
            self.truncated += has(AuxFlags::TRUNCATED);
            self.partial += has(AuxFlags::PARTIAL);
            self.collided += has(AuxFlags::COLLISION);
        }
        Ok(())
    }

    pub(super) fn line(&self) -> String {
        let Self { bytes, pieces, skipped, lost, truncated, partial, collided, path, .. } = self;
        format!(
            "{bytes:>14} {pieces:>8} {skipped:>10} {lost:>6} {truncated:>9} {partial:>8} {collided:>8} {}\n",
            file_name(path)
        )
    }
}

/// Snapshots of all traces.
pub(super) struct Snapshots<'d> {
    asked: UnixStream,
    dir: &'d Path,
    pub(super) files: Vec<Snapshot>,
    pub(super) count: u64,
    /// What each trace has lost up to its last snapshot, in records.
    told_losses: BTreeMap<String, u64>,
}

impl<'d> Snapshots<'d> {
    /// None yet. From here on, SIGUSR2 does not end the process, but asks for one.
    pub(super) fn prepare(dir: &'d Path) -> Result<Self> {
        let (asked, asks) = UnixStream::pair()?;
        asked.set_nonblocking(true)?;
        pipe::register(SIGUSR2, asks)?;
        Ok(Self { asked, dir, files: Vec::new(), count: 0, told_losses: BTreeMap::new() })
    }

    /// Readable when one is asked for.
    pub(super) fn asked(&self) -> BorrowedFd<'_> {
        self.asked.as_fd()
    }

    /// Whether somebody wants one, however often he said so.
    pub(super) fn is_asked(&mut self) -> bool {
        let mut is_asked = false;
        while matches!(self.asked.read(&mut [0; 64]), Ok(1..)) {
            is_asked = true;
        }
        is_asked
    }

    /// Writes what all traces have at one moment, each to a file, and has them go on.
    pub(super) fn take(&mut self, traces: &mut AuxTraces, records: &mut Records) -> Result<()> {
        self.count += 1;
        traces.disable()?;
        for trace in traces.traces() {
            let of = name(trace);
            let path = self.dir.join(format!("{of}.{}.aux", self.count));
            let mut file = create(&path)?;
            let write = |piece: AuxPiece<'_>| {
                write(&mut file, &path, &piece)?;
                Ok::<_, anyhow::Error>((piece.len(), piece.position, piece.flags))
            };
            let taken = trace.snapshot_and(write, |record| records.write(record));
            let (bytes, from, flags) = taken.map_err(|error| failed("take", &path, &error))??;
            let lost = trace.lost_records();
            let lost = lost - self.told_losses.insert(of, lost).unwrap_or(0);
            self.files.push(Snapshot { path, bytes, from, lost, flags });
        }
        Ok(())
    }
}

/// A file of the newest data.
pub(super) struct Snapshot {
    path: PathBuf,
    pub(super) bytes: usize,
    /// Where it begins, in all that was written.
    from: u64,
    /// Records that the ring had no room for, since the snapshot before.
    pub(super) lost: u64,
    pub(super) flags: AuxFlags,
}

impl Snapshot {
    pub(super) fn line(&self) -> String {
        let Self { path, bytes, from, lost, flags } = self;
        let has = |flag| u8::from(flags.contains(flag));
        format!(
            "{bytes:>14} {from:>14} {lost:>6} {:>9} {:>8} {:>8} {}\n",
            has(AuxFlags::TRUNCATED),
            has(AuxFlags::PARTIAL),
            has(AuxFlags::COLLISION),
            file_name(path)
        )
    }
}

fn write(file: &mut File, path: &Path, piece: &AuxPiece<'_>) -> Result<()> {
    let written = file.write_all(piece.bytes).and_then(|()| file.write_all(piece.wrapped));
    written.map_err(|error| failed("write", path, &error))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn failed(what: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("cannot {what} {}: {error}", path.display())
}
