//! Which file it is, and what it contained at a time.

use rustix::fs::fstat;
use std::fs::File;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How old a change must be before the next one is sure to have another time: more than a tick of the kernel's clock.
const TICK: Duration = Duration::from_millis(20);

/// A file as it is since it last changed. A later file with the same inode has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    /// In seconds and nanoseconds.
    changed: (i64, u32),
}

impl FileVersion {
    /// The version of an open file.
    ///
    /// # Errors
    ///
    /// If the kernel does not describe the file.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let stat = fstat(file)?;
        let changed = (stat.st_ctime, stat.st_ctime_nsec as u32);
        Ok(Self { device: stat.st_dev, inode: stat.st_ino, changed })
    }

    /// Whether no later version can look the same. Ask before you read the file.
    pub(crate) fn is_final(&self) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let changed = Duration::new(seconds.max(0).cast_unsigned(), nanoseconds);
        UNIX_EPOCH + changed + TICK <= SystemTime::now()
    }

    /// Whether it is a version of the same file.
    pub(super) fn is_of_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}
