//! Opening programs, and the files beside them that may have their symbols.
//!
//! Users choose what is at these paths. A descriptor that only names a file is opened first: it is checked before anything
//! is opened for reading, and what was checked is what is opened. Opening a pipe, a device or a leased file could wait
//! for ever.

use super::reader::Wants;
use super::{debug, of_descriptor, regular};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the debug information of all programs is installed.
const INSTALLED: &str = "/usr/lib/debug";

/// The number of files offered for one that a reader wants.
const OFFERED: usize = 4;

/// A root directory, in which paths are looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Root {
    /// That of this process.
    Own,
    /// That of another process.
    Of(u32),
}

/// What a program's process could read anyway.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    root: Root,
    /// The path that this process sees, without links.
    pub(crate) path: PathBuf,
    /// Who owns the program.
    owner: u32,
}

impl Opened {
    /// A program that is open, at this path.
    pub(crate) fn new(file: File, root: Root, path: &Path) -> io::Result<Self> {
        let owner = file.metadata()?.uid();
        Ok(Self { file, root, path: path.to_owned(), owner })
    }

    /// A program that was found, unless it is no regular file.
    pub(crate) fn checked(file: OwnedFd, root: Root, path: &Path) -> io::Result<Self> {
        Self::new(regular(file).map_err(io::Error::other)?, root, path)
    }

    /// A file of the kernel, with nothing beside it.
    pub(crate) fn trusted(file: File, name: &str) -> Self {
        Self { file, root: Root::Own, path: name.into(), owner: 0 }
    }

    /// The files that may have what a reader wants, and whether the last of them is a DWARF package.
    pub(crate) fn wanted(&self, wants: &Wants) -> (Vec<File>, bool) {
        let link = wants.link.as_deref().filter(|name| is_name(name));
        let id = Some(&*wants.build_id).filter(|id| (2..=64).contains(&id.len()));
        let (root, path) = self.root.locate(&self.path);
        let mut candidates = debug::candidates(&path, id, link);
        candidates.extend(wants.shared.as_deref().and_then(debug::shared));
        let found = candidates.iter().filter_map(|path| self.beside(root, path));
        let mut files: Vec<_> = found.take(OFFERED).collect();
        let package = wants.package.then(|| {
            let mut package = OsString::from(path);
            package.push(".dwp");
            self.beside(root, Path::new(&package))
        });
        let package = package.flatten();
        let has_package = package.is_some();
        files.extend(package);
        (files, has_package)
    }

    /// Opens a file that belongs to the program, and that its owner may read.
    fn beside(&self, root: Root, path: &Path) -> Option<File> {
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

/// What to do with links in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    Followed,
    /// The file itself may not be a link.
    NotAtEnd,
    Refused,
}

impl Root {
    /// Locates the file that this process sees at a path. Returns the root directory that contains it, and its path there. The
    /// traced process's root may be a subdirectory of this process's root (chroot(2)), and it may have files open outside it.
    pub(crate) fn locate(self, seen: &Path) -> (Self, PathBuf) {
        let Self::Of(pid) = self else { return (self, seen.to_owned()) };
        let root = fs::read_link(format!("/proc/{pid}/root")).unwrap_or_default();
        match seen.strip_prefix(root) {
            Ok(inside) => (self, Path::new("/").join(inside)),
            Err(_) if has_own_mounts(pid).unwrap_or(false) => (Self::Own, seen.to_owned()),
            Err(_) => (self, seen.to_owned()),
        }
    }

    /// Names the file at an absolute path. Links lead to nothing outside this root.
    pub(crate) fn find(self, path: &Path, links: Links) -> rustix::io::Result<OwnedFd> {
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        let mut resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        if links != Links::Followed {
            flags |= OFlags::NOFOLLOW;
        }
        if links == Links::Refused {
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        let root = match self {
            Self::Own => PathBuf::from("/"),
            Self::Of(pid) => format!("/proc/{pid}/root").into(),
        };
        let directory =
            open(&root, OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty())?;
        match openat2(&directory, path, flags, Mode::empty(), resolve) {
            // Before Linux 5.6.
            Err(Errno::NOSYS) => {
                let path = root.join(path.strip_prefix("/").unwrap_or(path));
                rustix::fs::openat(CWD, path, flags, Mode::empty())
            }
            found => found,
        }
    }
}

/// Whether a process has the mount namespace of this one.
pub(super) fn has_own_mounts(pid: u32) -> io::Result<bool> {
    Ok(fs::read_link(format!("/proc/{pid}/ns/mnt"))? == fs::read_link("/proc/self/ns/mnt")?)
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
pub(crate) mod tests {
    use super::*;
    use probe_sys::process::fork_alone;
    use rustix::fs::{FileType, mknodat};
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, chroot, symlink};
    use std::os::unix::net::UnixStream;

    /// A process with another root directory, which runs until this is dropped.
    pub(crate) struct Chrooted(Pid);

    impl Chrooted {
        /// Only root can start it.
        pub(crate) fn start(root: &Path) -> Self {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            let mut run = || -> io::Result<()> {
                chroot(root)?;
                theirs.write_all(b"x")?;
                theirs.read_exact(&mut [0])
            };
            let pid = fork_alone(|| run().is_err().into()).unwrap();
            ours.read_exact(&mut [0]).unwrap();
            Self(Pid::from_raw(pid.cast_signed()).unwrap())
        }

        pub(crate) fn pid(&self) -> u32 {
            self.0.as_raw_nonzero().get().cast_unsigned()
        }
    }

    impl Drop for Chrooted {
        fn drop(&mut self) {
            kill_process(self.0, Signal::KILL).unwrap();
            waitpid(Some(self.0), WaitOptions::empty()).unwrap();
        }
    }

    fn wants(link: &str) -> Wants {
        Wants { link: Some(link.as_bytes().to_vec()), package: true, ..Wants::default() }
    }

    fn program(path: &Path) -> io::Result<Opened> {
        Opened::checked(Root::Own.find(path, Links::Followed)?, Root::Own, path)
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
