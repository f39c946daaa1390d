//! The parts of a pipe in a bpffs, where they outlive the process that has loaded them.

use crate::error::OpenError;
use crate::pipe::parts::PipeParts;
use probe_common::control::{
    CONTROL_MAP, EAGER_MAP, EVENTS_MAP, FLUSH_PROGRAM, OUTPUTS_MAP, SCRATCH_MAP, TALLY_MAP,
};
use probe_sys::bpf;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl PipeParts {
    /// Pins all parts in a directory of a bpffs, each under its own name, and creates the directory if there is none.
    /// [`EvPipe::from_pinned`](crate::EvPipe::from_pinned) opens a pipe from there, in any process.
    ///
    /// Attached programs outlive their process only if their links are pinned, too, which is up to you.
    ///
    /// # Errors
    ///
    /// If the directory cannot be created, or a part cannot be pinned: usually because the directory is in no bpffs, or
    /// has another part of this name. Nothing stays pinned then.
    pub fn pin(&self, directory: impl AsRef<Path>) -> Result<(), OpenError> {
        let directory = directory.as_ref();
        let failed = |path: &Path| {
            let path = path.to_owned();
            |cause| OpenError::Pin { path, cause }
        };
        let created = std::fs::create_dir(directory);
        if let Err(error) = &created
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return created.map_err(failed(directory));
        }
        let mut pinned: Vec<PathBuf> = Vec::new();
        for (name, part) in self.named() {
            let path = directory.join(name);
            if let Err(error) = c_path(&path).and_then(|path| bpf::pin(part, &path)) {
                for path in pinned {
                    // What was pinned a moment ago can be removed.
                    let _ = std::fs::remove_file(path);
                }
                if created.is_ok() {
                    let _ = std::fs::remove_dir(directory);
                }
                return Err(failed(&path)(error));
            }
            pinned.push(path);
        }
        Ok(())
    }

    /// The parts that are pinned in a directory.
    pub(crate) fn from_pinned(directory: &Path) -> Result<Self, OpenError> {
        let open = |name| open_pinned(&directory.join(name));
        let parts = Self::new(open(EVENTS_MAP)?).map_err(|cause| OpenError::MapInfo { cause })?;
        let parts =
            parts.tally(open(TALLY_MAP)?, open(OUTPUTS_MAP)?)?.scratch(open(SCRATCH_MAP)?)?;
        parts
            .adaptive(open(EAGER_MAP)?, open(CONTROL_MAP)?, open(FLUSH_PROGRAM)?)
            .map_err(|cause| OpenError::MapInfo { cause })
    }

    /// The parts that there are, with their names.
    fn named(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        let mut named = vec![(EVENTS_MAP, self.events.as_fd())];
        if let Some(tally) = &self.tally {
            let (tally, outputs) = tally.maps();
            named.extend([(TALLY_MAP, tally), (OUTPUTS_MAP, outputs)]);
        }
        if let Some(scratch) = &self.scratch {
            named.push((SCRATCH_MAP, scratch.map()));
        }
        if let Some(adaptive) = &self.adaptive {
            named.extend([
                (EAGER_MAP, adaptive.eager.as_fd()),
                (CONTROL_MAP, adaptive.control.as_fd()),
                (FLUSH_PROGRAM, adaptive.flush.as_fd()),
            ]);
        }
        named
    }
}

/// Opens a map or program that is pinned at `path`.
pub(crate) fn open_pinned(path: &Path) -> Result<OwnedFd, OpenError> {
    let opened = c_path(path).and_then(|path| bpf::open_pinned(&path));
    opened.map_err(|cause| OpenError::Pinned { path: path.to_owned(), cause })
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}
