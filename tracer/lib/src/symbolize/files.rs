//! Opening the files of observed processes, for the [reader](crate::binary::reader).

use crate::binary::beside::{Opened, is_owned};
use crate::binary::root::{Links, Root};
use crate::binary::{map_file, of_descriptor, regular};
use crate::object::namespaces::innermost_id;
use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens the file of a mapping: by the mapping, which takes a privilege (5.9+), or else by its path, if that still leads
/// to it.
pub(super) fn mapped(
    pid: u32,
    root: Option<&Arc<Root>>,
    range: &Range<u64>,
    path: &Path,
    inode: u64,
) -> io::Result<Opened> {
    let link = format!("/proc/{pid}/{}", map_file(range));
    match open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => Opened::checked(file, root, path),
        Err(error) => at(root.ok_or(error)?, path, inode),
    }
}

/// Opens the file that this process sees at a path, if it is this one.
pub(super) fn at(root: &Arc<Root>, path: &Path, inode: u64) -> io::Result<Opened> {
    let (within, inside) = root.locate(path)?;
    let opened = Opened::checked(within.find(&inside, Links::Followed)?, Some(root), path)?;
    match opened.file.metadata()?.ino() == inode {
        true => Ok(opened),
        false => Err(io::Error::other("another file is in its place")),
    }
}

/// The id of a process in its own PID namespace.
pub(super) fn own_id(pid: u32) -> Option<u32> {
    innermost_id(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// Opens the file in which a process lists its generated code, under the rules of perf: it belongs to the user of the process, or to
/// root. `own_id` is the id of the process in its own PID namespace.
pub(super) fn perf_map(pid: u32, root: &Root, own_id: u32) -> Option<File> {
    let path = PathBuf::from(format!("/tmp/perf-{own_id}.map"));
    let file = root.find(&path, Links::NotAtEnd).ok()?;
    let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let is_allowed = is_owned(&fs::metadata(of_descriptor(&file)).ok()?, owner);
    if is_allowed { regular(file).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::reader::Wants;
    use crate::binary::root::tests::Chrooted;
    use probe_testing::skip::skip;
    use rustix::process::geteuid;

    /// This process sees the files of such a process at longer paths than the process itself.
    #[test]
    fn files_of_a_process_with_another_root_directory_are_opened_with_those_beside_them() {
        if !geteuid().is_root() {
            return skip("only root can change the root directory");
        }
        let [root, outside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let process = Chrooted::start(root.path());
        let mut opened = Vec::new();
        for dir in [&root, &outside] {
            let path = dir.path().join("program");
            fs::write(&path, "").unwrap();
            fs::write(dir.path().join("program.dwp"), "").unwrap();
            let inode = path.metadata().unwrap().ino();
            let seen = Root::of(process.pid()).unwrap();
            // There is no such mapping.
            let open = |inode| mapped(process.pid(), Some(&seen), &(0..0), &path, inode);
            opened.push(open(inode).unwrap());
            assert!(open(inode + 1).is_err());
        }
        // They are found even if the process has ended meanwhile.
        drop(process);
        let wants = Wants { package: true, ..Wants::default() };
        for (beside, has_package) in opened.iter().map(|one| one.wanted(&wants)) {
            assert!(beside.len() == 1 && has_package);
        }
    }

    #[test]
    fn another_file_is_not_opened() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inode = file.as_file().metadata().unwrap().ino();
        let root = Root::own().unwrap();
        assert!(at(&root, file.path(), inode).is_ok());
        assert!(at(&root, file.path(), inode + 1).is_err());
    }
}
