//! Opening the files of observed processes, for the [reader](super::reader).
//!
//! Users choose what is at their paths. A descriptor that only names a file is opened first: it is checked before anything
//! is opened for reading, and what was checked is what is opened. Opening a pipe, a device or a leased file could wait
//! for ever.

use crate::binary::reader::Wants;
use crate::binary::{debug_candidates, map_file, of_descriptor, regular};
use crate::object::namespaces::innermost_id;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the debug information of all programs is installed.
const INSTALLED: &str = "/usr/lib/debug";

/// The number of files offered for one that a reader wants.
const OFFERED: usize = 4;

/// A root directory, in which paths are looked up.
#[derive(Debug)]
pub(super) enum Root {
    /// That of this process.
    Own,
    /// That of another process.
    Of(u32),
}

/// What a program's process could read anyway.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    root: Root,
    pub(super) path: PathBuf,
    /// Who owns the program.
    owner: u32,
}

impl Opened {
    /// Opens the file of a mapping: by the mapping, which takes a privilege (5.9+), or else by its path, if that still leads
    /// to it.
    pub(super) fn mapped(
        pid: u32,
        range: &Range<u64>,
        path: &Path,
        inode: u64,
    ) -> io::Result<Self> {
        let link = format!("/proc/{pid}/{}", map_file(range));
        let root = Root::Of(pid);
        match open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => Self::checked(file, root, path),
            Err(_) => Self::at(root, path, inode),
        }
    }

    /// Opens the file at a path, if it is this one.
    pub(super) fn at(root: Root, path: &Path, inode: u64) -> io::Result<Self> {
        let opened = Self::checked(root.find(path, OFlags::empty())?, root, path)?;
        match opened.file.metadata()?.ino() == inode {
            true => Ok(opened),
            false => Err(io::Error::other("another file is in its place")),
        }
    }

    /// A file of the kernel, with nothing beside it.
    pub(super) fn trusted(file: File, name: &str) -> Self {
        Self { file, root: Root::Own, path: name.into(), owner: 0 }
    }

    fn checked(file: OwnedFd, root: Root, path: &Path) -> io::Result<Self> {
        let file = regular(file).map_err(io::Error::other)?;
        let owner = file.metadata()?.uid();
        Ok(Self { file, root, path: path.to_owned(), owner })
    }

    /// The files that may have what a reader wants, and whether the last of them is a DWARF package.
    pub(super) fn wanted(&self, wants: &Wants) -> (Vec<File>, bool) {
        let link = wants.link.as_deref().filter(|name| is_name(name));
        let id = Some(&*wants.build_id).filter(|id| (2..=64).contains(&id.len()));
        let candidates = debug_candidates(&self.path, id, link);
        let found = candidates.iter().filter_map(|path| self.beside(path));
        let mut files: Vec<_> = found.take(OFFERED).collect();
        let package = wants.package.then(|| {
            let mut package = OsString::from(&self.path);
            package.push(".dwp");
            self.beside(Path::new(&package))
        });
        let package = package.flatten();
        let has_package = package.is_some();
        files.extend(package);
        (files, has_package)
    }

    /// Opens a file that belongs to the program, and that its owner may read.
    fn beside(&self, path: &Path) -> Option<File> {
        // Installed files may be links, which only root can create there.
        let flags = if path.starts_with(INSTALLED) { OFlags::empty() } else { OFlags::NOFOLLOW };
        let file = self.root.find(path, flags).ok()?;
        let found = fs::metadata(of_descriptor(&file)).ok()?;
        let is_readable = found.uid() == self.owner || found.mode() & 0o004 != 0;
        let is_allowed = is_owned(&found, self.owner) && is_readable;
        // The file itself may be found, as a program that has its own name as debug link.
        if is_allowed { regular(file).ok() } else { None }
    }
}

/// The id of a process in its own PID namespace.
pub(super) fn own_id(pid: u32) -> Option<u32> {
    innermost_id(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// Opens the file in which a process lists its generated code, under the rules of perf: it belongs to the user of the process, or to
/// root. `own_id` is the id of the process in its own PID namespace.
pub(super) fn perf_map(pid: u32, own_id: u32) -> Option<File> {
    let path = PathBuf::from(format!("/tmp/perf-{own_id}.map"));
    let file = Root::Of(pid).find(&path, OFlags::NOFOLLOW).ok()?;
    let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let is_allowed = is_owned(&fs::metadata(of_descriptor(&file)).ok()?, owner);
    if is_allowed { regular(file).ok() } else { None }
}

impl Root {
    /// Names the file at an absolute path. Links lead to nothing outside this root.
    fn find(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
        let root = match self {
            Self::Own => PathBuf::from("/"),
            Self::Of(pid) => format!("/proc/{pid}/root").into(),
        };
        let directory =
            open(&root, OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty())?;
        let beneath = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match openat2(&directory, path, flags, Mode::empty(), beneath) {
            // Before Linux 5.6.
            Err(Errno::NOSYS) => {
                let path = root.join(path.strip_prefix("/").unwrap_or(path));
                rustix::fs::openat(CWD, path, flags, Mode::empty())
            }
            found => found,
        }
    }
}

/// Whether it is a regular file, and owned by nobody but the owner and root.
fn is_owned(file: &Metadata, owner: u32) -> bool {
    file.is_file() && [0, owner].contains(&file.uid())
}

/// Whether it can be the name of a file in a directory.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
        && OsStr::from_bytes(name) != ".."
        && OsStr::from_bytes(name) != "."
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, mknodat};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn wants(link: &str) -> Wants {
        Wants { link: Some(link.as_bytes().to_vec()), package: true, ..Wants::default() }
    }

    fn program(path: &Path) -> io::Result<Opened> {
        Opened::at(Root::Own, path, fs::metadata(path)?.ino())
    }

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (file, package) = (path("x"), path("x.dwp"));
        fs::write(&file, "").unwrap();
        assert_eq!(program(&file).unwrap().wanted(&wants("none")).0.len(), 0);
        fs::write(&package, "").unwrap();
        let (found, has_package) = program(&file).unwrap().wanted(&wants("none"));
        assert!(found.len() == 1 && has_package);
        fs::remove_file(&package).unwrap();
        symlink(&file, &package).unwrap();
        assert_eq!(program(&file).unwrap().wanted(&wants("x.dwp")).0.len(), 0);
        fs::remove_file(&package).unwrap();
        mknodat(CWD, &package, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(program(&file).unwrap().wanted(&wants("x.dwp")).0.len(), 0);
        for other in [&*package, dir.path(), Path::new("/dev/null")] {
            assert!(program(other).is_err());
        }
        let socket = path("socket");
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(program(&socket).is_err());
        assert!(Opened::at(Root::Own, &file, 0).is_err());
    }

    #[test]
    fn a_debug_link_leads_to_nothing_but_what_the_owner_may_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["x", "x.debug"] {
            fs::write(path(name), name).unwrap();
        }
        let found = |link: &str, owner: u32| {
            let program = Opened { owner, ..program(&path("x")).unwrap() };
            program.wanted(&wants(link)).0.len()
        };
        let owner = fs::metadata(path("x")).unwrap().uid();
        assert_eq!(found("x.debug", owner), 1);
        for link in ["/etc/passwd", "../x.debug", "..", ".", "", "x.debug\0", &"x".repeat(300)] {
            assert_eq!(found(link, owner), 0, "{link}");
        }
        if owner == 0 {
            // Another user's program beside a file of root.
            assert_eq!(found("x.debug", 1), 1);
            fs::set_permissions(path("x.debug"), fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(found("x.debug", 1), 0);
        }
    }
}
