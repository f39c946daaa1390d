//! The root directories of processes, in which their paths are looked up.

use super::of_descriptor;
use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags, open, openat, openat2, statx,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The root directory of a process. It is open, so it is there even if the process has ended.
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
    id: RootId,
    /// Whether it is that of this process.
    is_own: bool,
    /// Whether the process has the mount namespace of this one.
    shares_mounts: bool,
}

/// A root directory. Its mount is in one mount namespace only, so it has the same paths as long as nothing is mounted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RootId {
    /// No other mount ever gets this number (6.8+), or none while there is this one.
    mount: u64,
    /// The major and the minor number.
    device: (u32, u32),
    inode: u64,
}

impl RootId {
    fn of(directory: &OwnedFd) -> io::Result<Self> {
        /// From `linux/stat.h`.
        const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
        let wanted = StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE) | StatxFlags::MNT_ID;
        let found: Statx = statx(directory, "", AtFlags::EMPTY_PATH, wanted | StatxFlags::INO)?;
        let device = (found.stx_dev_major, found.stx_dev_minor);
        Ok(Self { mount: found.stx_mnt_id, device, inode: found.stx_ino })
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
    /// Opens the root directory of this process.
    pub(crate) fn own() -> io::Result<Arc<Self>> {
        let directory = Self::open("self")?;
        let id = RootId::of(&directory)?;
        Ok(Arc::new(Self { directory, id, is_own: true, shares_mounts: true }))
    }

    /// Opens the root directory of another process.
    pub(crate) fn of(pid: u32) -> io::Result<Arc<Self>> {
        let (directory, own) = (Self::open(&pid.to_string())?, Self::own()?);
        let id = RootId::of(&directory)?;
        if id == own.id {
            return Ok(own);
        }
        let mounts = |process: &str| {
            fs::metadata(format!("/proc/{process}/ns/mnt")).map(|found| found.ino())
        };
        let shares_mounts = mounts(&pid.to_string())? == mounts("self")?;
        Ok(Arc::new(Self { directory, id, is_own: false, shares_mounts }))
    }

    fn open(process: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
        Ok(open(format!("/proc/{process}/root"), flags, Mode::empty())?)
    }

    /// Identifies this root directory.
    pub(crate) fn id(&self) -> RootId {
        self.id
    }

    /// Whether it is that of this process.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Locates the file that this process sees at a path. Returns the root directory that contains it, and its path there. The
    /// traced process's root may be a subdirectory of this process's root (chroot(2)), and it may have files open outside it.
    pub(crate) fn locate(self: &Arc<Self>, seen: &Path) -> io::Result<(Arc<Self>, PathBuf)> {
        let root = fs::read_link(of_descriptor(&self.directory))?;
        Ok(match seen.strip_prefix(root) {
            Ok(inside) => (Arc::clone(self), Path::new("/").join(inside)),
            Err(_) if self.shares_mounts => (Self::own()?, seen.to_owned()),
            Err(_) => (Arc::clone(self), seen.to_owned()),
        })
    }

    /// Names the file at an absolute path. Links lead to nothing outside this root.
    pub(crate) fn find(&self, path: &Path, links: Links) -> rustix::io::Result<OwnedFd> {
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        let mut resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        if links != Links::Followed {
            flags |= OFlags::NOFOLLOW;
        }
        if links == Links::Refused {
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        match openat2(&self.directory, path, flags, Mode::empty(), resolve) {
            // Before Linux 5.6.
            Err(Errno::NOSYS) => {
                let path = path.strip_prefix("/").unwrap_or(path);
                openat(&self.directory, path, flags, Mode::empty())
            }
            found => found,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use probe_sys::process::fork_alone;
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    use std::io::{Read, Write};
    use std::os::unix::fs::chroot;
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
}
