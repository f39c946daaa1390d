//! The root directories of processes, in which their paths are looked up.

use super::of_descriptor;
use super::process::{Id, id};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The root directory of a process. It is open, so it is there even if the process has ended.
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
    id: RootId,
    /// That of this process.
    own: RootId,
}

/// A root directory in its mount namespace. The same path leads to the same file there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RootId {
    mounts: Id,
    directory: Id,
}

impl RootId {
    fn of(process: &str) -> io::Result<Self> {
        let id_of = |name| fs::metadata(format!("/proc/{process}/{name}")).map(|found| id(&found));
        Ok(Self { mounts: id_of("ns/mnt")?, directory: id_of("root")? })
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
    /// That of this process.
    pub(crate) fn own() -> io::Result<Arc<Self>> {
        Self::open("self")
    }

    /// That of another process.
    pub(crate) fn of(pid: u32) -> io::Result<Arc<Self>> {
        Self::open(&pid.to_string())
    }

    fn open(process: &str) -> io::Result<Arc<Self>> {
        let path = format!("/proc/{process}/root");
        let directory =
            open(path, OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty())?;
        let (id, own) = (RootId::of(process)?, RootId::of("self")?);
        Ok(Arc::new(Self { directory, id, own }))
    }

    /// Which one it is.
    pub(crate) fn id(&self) -> RootId {
        self.id
    }

    /// Whether paths lead to the same files as in this process.
    pub(super) fn is_own(&self) -> bool {
        self.id == self.own
    }

    /// Locates the file that this process sees at a path. Returns the root directory that contains it, and its path there. The
    /// traced process's root may be a subdirectory of this process's root (chroot(2)), and it may have files open outside it.
    pub(crate) fn locate(self: &Arc<Self>, seen: &Path) -> io::Result<(Arc<Self>, PathBuf)> {
        let root = fs::read_link(of_descriptor(&self.directory))?;
        Ok(match seen.strip_prefix(root) {
            Ok(inside) => (Arc::clone(self), Path::new("/").join(inside)),
            Err(_) if self.id.mounts == self.own.mounts => (Self::own()?, seen.to_owned()),
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
