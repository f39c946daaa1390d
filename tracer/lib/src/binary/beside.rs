//! Opening programs, and the files beside them that may have their symbols.
//!
//! Users choose what is at these paths. A descriptor that only names a file is opened first: it is checked before anything
//! is opened for reading, and what was checked is what is opened. Opening a pipe, a device or a leased file could wait
//! for ever.

use super::reader::Wants;
use super::root::{Links, Root, RootId};
use super::{debug, of_descriptor, regular};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the debug information of all programs is installed.
const INSTALLED: &str = "/usr/lib/debug";

/// The number of files offered for one that a reader wants.
const OFFERED: usize = 4;

/// What a program's process could read anyway.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    /// In which the files beside it are, if there are any.
    root: Option<Arc<Root>>,
    /// The path that this process sees, without links.
    pub(crate) path: PathBuf,
    /// Who owns the program.
    owner: u32,
}

impl Opened {
    /// A program that is open, at this path.
    pub(crate) fn new(file: File, root: Option<&Arc<Root>>, path: &Path) -> io::Result<Self> {
        let (owner, root) = (file.metadata()?.uid(), root.cloned());
        Ok(Self { file, root, path: path.to_owned(), owner })
    }

    /// A program that was found, unless it is no regular file.
    pub(crate) fn checked(
        file: OwnedFd,
        root: Option<&Arc<Root>>,
        path: &Path,
    ) -> io::Result<Self> {
        Self::new(regular(file).map_err(io::Error::other)?, root, path)
    }

    /// A file of the kernel, with nothing beside it.
    pub(crate) fn trusted(file: File, name: &str) -> Self {
        Self { file, root: None, path: name.into(), owner: 0 }
    }

    /// Which root directory the files beside it are in. Another process may have others there.
    pub(crate) fn root(&self) -> Option<RootId> {
        self.root.as_ref().map(|root| root.id())
    }

    /// The files that may have what a reader wants, and whether the last of them is a DWARF package.
    pub(crate) fn wanted(&self, wants: &Wants) -> (Vec<File>, bool) {
        let located = self.root.as_ref().and_then(|root| root.locate(&self.path).ok());
        let Some((root, path)) = located else { return (Vec::new(), false) };
        let link = wants.link.as_deref().filter(|name| is_name(name));
        let id = Some(&*wants.build_id).filter(|id| (2..=64).contains(&id.len()));
        let mut candidates = debug::candidates(&path, id, link);
        candidates.extend(wants.shared.as_deref().and_then(debug::shared));
        let found = candidates.iter().filter_map(|path| self.beside(&root, path));
        let mut files: Vec<_> = found.take(OFFERED).collect();
        let package = wants.package.then(|| {
            let mut package = OsString::from(path);
            package.push(".dwp");
            self.beside(&root, Path::new(&package))
        });
        let package = package.flatten();
        let has_package = package.is_some();
        files.extend(package);
        (files, has_package)
    }

    /// Opens a file that belongs to the program, and that its owner may read.
    fn beside(&self, root: &Root, path: &Path) -> Option<File> {
        // Only root can create links among installed files.
        let links = if path.starts_with(INSTALLED) { Links::Followed } else { Links::Refused };
        let file = root.find(path, links).ok()?;
        let found = fs::metadata(of_descriptor(&file)).ok()?;
        let is_readable = found.uid() == self.owner || found.mode() & 0o004 != 0;
        let is_allowed = is_owned(&found, self.owner) && is_readable;
        // The file itself may be found, as a program that has its own name as debug link.
        if is_allowed { regular(file).ok() } else { None }
    }
}

/// Whether it is a regular file, and owned by nobody but the owner and root.
pub(crate) fn is_owned(file: &Metadata, owner: u32) -> bool {
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
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn wants(link: &str) -> Wants {
        Wants { link: Some(link.as_bytes().to_vec()), package: true, ..Wants::default() }
    }

    fn program(path: &Path) -> io::Result<Opened> {
        let root = Root::own()?;
        Opened::checked(root.find(path, Links::Followed)?, Some(&root), path)
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
        // The link is not in the name of the file.
        fs::create_dir(path("elsewhere")).unwrap();
        fs::write(path("elsewhere/y.debug"), "y").unwrap();
        symlink(path("elsewhere"), path(".debug")).unwrap();
        assert_eq!(found("y.debug", owner), 0);
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
