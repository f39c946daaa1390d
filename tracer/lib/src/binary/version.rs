//! Versions of files.

use rustix::fs::fstat;
use std::fs::File;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How old a change must be before the next one is sure to have another time: more than a tick of the kernel's clock.
const TICK: Duration = Duration::from_millis(20);

/// How old a change must be on a file system that stores times in steps of one or two seconds.
const COARSE_TICK: Duration = Duration::from_secs(3);

/// A file, and how it was when it last changed. A later file with the same inode has another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    size: i64,
    /// In seconds and nanoseconds.
    modified: (i64, u32),
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
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
        })
    }

    /// Whether every later version is sure to differ. Call this before you read the file.
    pub(crate) fn is_final(&self) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let changed = Duration::new(seconds.max(0).cast_unsigned(), nanoseconds);
        let tick = if nanoseconds == 0 { COARSE_TICK } else { TICK };
        // A file system may report any time.
        let settled = UNIX_EPOCH.checked_add(changed).and_then(|time| time.checked_add(tick));
        settled.is_some_and(|time| time <= SystemTime::now())
    }

    /// Whether it is a version of the same file.
    pub(super) fn is_of_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_in_the_past_is_final() {
        let version = FileVersion::of(&tempfile::tempfile().unwrap()).unwrap();
        let is_final = |changed| FileVersion { changed, ..version }.is_final();
        let past = [(i64::MIN, 0), (0, 0), (1_000_000_000, 5)];
        assert_eq!(past.map(is_final), [true; 3]);
        let future = [(i64::MAX, 0), (i64::MAX, 999_999_999), (i64::MAX - 1, 0), (1 << 40, 7)];
        assert_eq!(future.map(is_final), [false; 4]);
    }
}
