//! Directories to write to, in which nobody else can replace a file.

use anyhow::{Result, anyhow, bail, ensure};
use rustix::fs::{
    CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, getxattr, mkdirat, openat,
    readlinkat, stat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Whether to write to a directory that others may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Refused,
    Allowed,
}

impl Sharing {
    /// `--force` allows it.
    pub(crate) fn forced(force: bool) -> Self {
        if force { Self::Allowed } else { Self::Refused }
    }
}

/// What becomes of directories on the way that do not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    IsAnError,
    IsCreated,
}

/// An open directory: it stays the same, whatever happens to its path.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens the directory that contains a file.
    pub(crate) fn of(file: &Path, sharing: Sharing) -> Result<Self> {
        Self::at(file.parent().unwrap_or(file), Missing::IsAnError, sharing)
            .map_err(|error| failed(file, error))
    }

    /// Opens a directory, and creates it first unless it exists.
    pub(crate) fn create(path: &Path, sharing: Sharing) -> Result<Self> {
        Self::at(path, Missing::IsCreated, sharing).map_err(|error| failed(path, error))
    }

    fn at(path: &Path, missing: Missing, sharing: Sharing) -> Result<Self> {
        let directory = Self { fd: walk(path, missing)?, path: path.to_owned() };
        match sharing {
            Sharing::Allowed => Ok(directory),
            Sharing::Refused => directory.check().map(|()| directory),
        }
    }

    /// The path of a file in it, for messages.
    pub(crate) fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    /// Whether this is `/proc/self/fd`, whose links lead to what this process has open.
    pub(crate) fn has_own_descriptors(&self) -> bool {
        let id = |stat: Stat| (stat.st_dev, stat.st_ino);
        match (fstat(&self.fd), stat("/proc/self/fd")) {
            (Ok(this), Ok(own)) => id(this) == id(own),
            _ => false,
        }
    }

    /// Refuses a directory in which others could replace a file.
    fn check(&self) -> Result<()> {
        let stat = fstat(&self.fd).map_err(io::Error::from)?;
        let name = match self.path.as_os_str().is_empty() {
            true => Path::new("the current directory").display(),
            false => self.path.display(),
        };
        let writer = match stat.st_mode {
            _ if !is_trusted(stat.st_uid) => format!("user {}", stat.st_uid),
            mode if mode & 0o002 != 0 => "everybody".to_owned(),
            // A group of the user's own has the user's number.
            mode if mode & 0o020 != 0 && !is_trusted(stat.st_gid) => {
                format!("group {}", stat.st_gid)
            }
            // The bits of the group are also the limit of an access control list.
            mode if mode & 0o020 != 0 && self.has_access_control_list() => {
                "whoever is on its access control list".to_owned()
            }
            _ => return Ok(()),
        };
        bail!(
            "{writer} can write to {name}, and so replace the file: choose a directory to which only you can write, \
             or give --force"
        )
    }

    fn has_access_control_list(&self) -> bool {
        let opened = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        getxattr(opened, "system.posix_acl_access", &mut [0; 0][..]).is_ok_and(|size| size > 0)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether files of this user are as safe as one's own: they are root's, or of the user who has called sudo.
pub(crate) fn is_trusted(uid: u32) -> bool {
    let by_sudo = || std::env::var("SUDO_UID").ok()?.parse().ok();
    is_trusted_by(geteuid().as_raw(), by_sudo, uid)
}

fn is_trusted_by(own: u32, by_sudo: impl Fn() -> Option<u32>, uid: u32) -> bool {
    uid == 0 || uid == own || own == 0 && by_sudo() == Some(uid)
}

/// An error, with the file that cannot be created.
pub(crate) fn failed(path: &Path, error: impl Display) -> anyhow::Error {
    anyhow!("cannot create {}: {error}", path.display())
}

/// The most links to follow, as in the kernel (`MAXSYMLINKS`).
const MOST_LINKS: u32 = 40;

/// Opens a directory, and follows no link that another user could have placed on the way to it.
fn walk(path: &Path, missing: Missing) -> Result<OwnedFd> {
    let open = |from: BorrowedFd<'_>, name: &OsStr| {
        openat(from, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    };
    let mut here = open(CWD, OsStr::new(".")).map_err(io::Error::from)?;
    let mut ahead = reversed(path);
    let mut links = 0;
    while let Some(name) = ahead.pop() {
        let next = match open(here.as_fd(), &name) {
            Err(Errno::NOENT) if missing == Missing::IsCreated => {
                mkdirat(&here, &*name, Mode::RWXU).and_then(|()| open(here.as_fd(), &name))
            }
            opened => opened,
        };
        let next = next.map_err(io::Error::from)?;
        let stat = fstat(&next).map_err(io::Error::from)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => here = next,
            FileType::Symlink => {
                links += 1;
                ensure!(links <= MOST_LINKS, io::Error::from(Errno::LOOP));
                ahead.extend(reversed(&followed(&next, stat.st_uid)?));
            }
            _ => bail!(io::Error::from(Errno::NOTDIR)),
        }
    }
    Ok(here)
}

/// The components of a path, the first one last.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|component| component.as_os_str().to_owned()).collect()
}

/// Where a link leads.
fn followed(link: &OwnedFd, owner: u32) -> Result<PathBuf> {
    let to = readlinkat(link, "", Vec::new()).map_err(io::Error::from)?;
    let to = PathBuf::from(OsString::from_vec(to.into_bytes()));
    ensure!(
        is_trusted(owner),
        "user {owner} has placed a link on the way to it: name the directory to which the link leads"
    );
    // Such a link leads into another process, and its text is only a description.
    let is_described = to.is_absolute()
        && fstatfs(link)
            .is_ok_and(|system| i128::from(system.f_type) == i128::from(PROC_SUPER_MAGIC));
    ensure!(
        !is_described,
        "a link of /proc is on the way to it: name the directory to which the link leads"
    );
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    /// Any user but root and this one.
    const OTHER: u32 = 65534;

    fn error(path: &Path) -> Option<String> {
        Directory::of(path, Sharing::Refused).err().map(|error| error.to_string())
    }

    #[test]
    fn others_are_everybody_but_root_oneself_and_the_caller_of_sudo() {
        assert!(is_trusted_by(1000, || None, 0) && is_trusted_by(1000, || None, 1000));
        assert!(is_trusted_by(0, || Some(1000), 1000) && !is_trusted_by(0, || None, 1000));
        // A user's environment says nothing.
        assert!(!is_trusted_by(1000, || Some(1001), 1001));
    }

    #[test]
    fn a_directory_to_which_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        for (mode, refusal) in [
            (0o755, None),
            (0o777, Some("everybody can write to")),
            (0o1777, Some("everybody can write to")),
        ] {
            fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            let error = error(&file);
            assert_eq!(error.is_some(), refusal.is_some(), "{mode:o}: {error:?}");
            assert!(error.is_none_or(|error| error.contains(refusal.unwrap())));
            assert!(Directory::of(&file, Sharing::Allowed).is_ok());
        }
    }

    /// Only root can give files to others.
    #[test]
    fn a_directory_or_a_link_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        fs::create_dir(&own).unwrap();
        let (link, file) = (dir.path().join("link"), dir.path().join("link/file"));
        symlink("own", &link).unwrap();
        assert_eq!(error(&file), None);
        if !geteuid().is_root() {
            return;
        }
        lchown(&link, Some(OTHER), None).unwrap();
        assert!(error(&file).unwrap().contains("user 65534 has placed a link"));
        // Even with --force, which is about the directory itself.
        assert!(Directory::of(&file, Sharing::Allowed).is_err());
        chown(&own, Some(OTHER), None).unwrap();
        assert!(error(&own.join("file")).unwrap().contains("user 65534 can write to"));
        chown(&own, Some(0), Some(0)).unwrap();
        fs::set_permissions(&own, Permissions::from_mode(0o775)).unwrap();
        assert_eq!(error(&own.join("file")), None);
        chown(&own, None, Some(OTHER)).unwrap();
        assert!(error(&own.join("file")).unwrap().contains("group 65534 can write to"));
    }

    #[test]
    fn directories_are_created_for_oneself() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        Directory::create(&inner, Sharing::Refused).unwrap();
        assert_eq!(fs::metadata(&inner).unwrap().permissions().mode() & 0o777, 0o700);
        Directory::create(&inner, Sharing::Refused).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = Directory::create(&dir.path().join("file/c"), Sharing::Refused).unwrap_err();
        assert!(error.to_string().contains("Not a directory"), "{error}");
    }

    #[test]
    fn links_in_a_circle_and_into_processes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        symlink("circle", dir.path().join("circle")).unwrap();
        assert!(error(&dir.path().join("circle/file")).unwrap().contains("symbolic links"));
        assert!(error(Path::new("/proc/self/root/file")).unwrap().contains("a link of /proc"));
    }
}
