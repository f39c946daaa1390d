//! Which files beside a program may be read: users choose their names, and opening a pipe or a device may wait for ever.
//!
//! The checks precede the opening by another component, so a user may still replace a file in between. The
//! [service](super::service) therefore waits for an answer for a limited time only.

use crate::object::namespaces::innermost_id;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether a program or library at a path, with the DWARF package beside it, may be opened by that path.
pub(super) fn may_open(path: &Path) -> bool {
    let Ok(program) = fs::metadata(path) else {
        // Nothing is opened.
        return true;
    };
    let mut package = OsString::from(path);
    package.push(".dwp");
    program.is_file()
        && fs::symlink_metadata(package).map_or(true, |package| is_of(&package, program.uid()))
}

/// Whether the file in which a process lists its generated code may be opened.
pub(super) fn may_open_perf_map(pid: u32) -> bool {
    let process = format!("/proc/{pid}");
    let check = || {
        let innermost = innermost_id(&fs::read_to_string(format!("{process}/status")).ok()?)?;
        let map = format!("{process}/root/tmp/perf-{innermost}.map");
        let owner = fs::metadata(process).ok()?.uid();
        Some(is_of(&fs::symlink_metadata(map).ok()?, owner))
    };
    check().unwrap_or(false)
}

/// Whether it is a regular file, and neither a link nor owned by anybody but the owner and root.
fn is_of(file: &Metadata, owner: u32) -> bool {
    file.is_file() && [0, owner].contains(&file.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (program, package) = (path("x"), path("x.dwp"));
        assert!(may_open(&program));
        fs::write(&program, "").unwrap();
        assert!(may_open(&program));
        fs::write(&package, "").unwrap();
        assert!(may_open(&program));
        fs::remove_file(&package).unwrap();
        symlink(&program, &package).unwrap();
        assert!(!may_open(&program));
        fs::remove_file(&package).unwrap();
        mknodat(CWD, &package, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(!may_open(&program));
        assert!(!may_open(&package) && !may_open(dir.path()) && !may_open(Path::new("/dev/null")));
    }
}
