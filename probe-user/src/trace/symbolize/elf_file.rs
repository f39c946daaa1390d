//! A file that has code.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A file whose code was mapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::trace) struct ElfFile {
    pub(in crate::trace) path: PathBuf,
    pub(in crate::trace) inode: u64,
}

impl ElfFile {
    /// Whether another file is at its path by now, or in the eyes of who asks.
    pub(super) fn is_replaced(&self) -> io::Result<bool> {
        Ok(fs::metadata(&self.path)?.ino() != self.inode)
    }
}
