//! Files to write to.

use super::Patient;
use super::directory::{Directory, Sharing, failed, is_trusted};
use anyhow::Result;
use probe_sys::process::{Namer, Unnamed};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fstat, linkat, open, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that only its owner can read, or what stands in its place: standard output, a FIFO or a device. It appears under
/// its name, in place of the file that has it, when it is [named](Self::named) or [finished](Self::finish), or never.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    file: File,
    /// `None` if it has its name.
    hidden: Option<Hidden>,
}

/// Whether a path stands for standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-") || path == Path::new("/dev/stdout")
}

impl OutputFile {
    /// Opens the output that the user names. Waits for the reader of a FIFO: signals must still end the process.
    pub(crate) fn open(path: &Path, sharing: Sharing) -> Result<Self> {
        if is_stdout(path) {
            return Self::stdout();
        }
        let name = path.file_name().ok_or_else(|| failed(path, Errno::ISDIR))?;
        Self::create(&Arc::new(Directory::of(path, sharing)?), name)
    }

    /// Standard output.
    pub(crate) fn stdout() -> Result<Self> {
        let file = io::stdout().as_fd().try_clone_to_owned()?.into();
        Ok(Self { path: "standard output".into(), file, hidden: None })
    }

    /// Creates a file in a directory, or replaces an existing one.
    pub(crate) fn create(directory: &Arc<Directory>, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = name.as_ref();
        let path = directory.path_of(name);
        let existing = existing(directory, name).map_err(|error| failed(&path, error))?;
        if let Some(file) = existing {
            return Ok(Self { path, file, hidden: None });
        }
        let (file, hidden) =
            Hidden::create(directory, name).map_err(|error| failed(&path, error))?;
        Ok(Self { path, file, hidden: Some(hidden) })
    }

    /// Says that the file is whole.
    pub(crate) fn finish(self) -> Result<()> {
        self.named().map(drop)
    }

    /// The directory to which it still needs access.
    pub(crate) fn directory(&self) -> Option<&Directory> {
        let hidden = self.hidden.as_ref().filter(|hidden| hidden.namer.is_none());
        hidden.map(|hidden| &*hidden.directory)
    }

    /// Starts a process that gives these files their names, with the privileges of now. Where it cannot be started, this
    /// process does so, and still needs access to the directory.
    pub(crate) fn named_by_a_process(files: &mut [&mut Self]) {
        if files.iter().all(|file| file.hidden.is_none()) {
            return;
        }
        match Hidden::start_namer(files) {
            Ok(namer) => {
                let hidden = files.iter_mut().filter_map(|file| file.hidden.as_mut());
                for (number, hidden) in hidden.enumerate() {
                    // The process deletes it.
                    hidden.temporary = None;
                    hidden.namer = Some((Arc::clone(&namer), number));
                }
            }
            Err(error) => log::debug!("files are named without another process: {error}"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.file.is_terminal()
    }

    /// Gives the file its name now: its beginning is of use without the rest.
    pub(crate) fn named(mut self) -> Result<Self> {
        if let Some(mut hidden) = self.hidden.take() {
            hidden.appear(&self.file).map_err(|error| failed(&self.path, error))?;
        }
        Ok(self)
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Patient(&self.file).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Patient(&self.file).flush()
    }
}

/// Opens the FIFO or device of this name. `None` if the name is free, or that of a file that may be replaced.
fn existing(directory: &Directory, name: &OsStr) -> Result<Option<File>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match openat(directory, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        found => found.map_err(io::Error::from)?,
    };
    let stat = fstat(&found).map_err(io::Error::from)?;
    let refused = |why: &str| anyhow::anyhow!("it is {why}; delete it, or choose another name");
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_uid != geteuid().as_raw() => {
            Err(refused(&format!("a file of user {}", stat.st_uid)))
        }
        FileType::RegularFile if stat.st_nlink != 1 => Err(refused("a file with other names, too")),
        FileType::RegularFile => Ok(None),
        FileType::Fifo | FileType::CharacterDevice if is_trusted(stat.st_uid) => {
            // Not by name: it could be that of another file by now.
            Ok(Some(open_to_write(&format!("/proc/self/fd/{}", found.as_raw_fd()))?))
        }
        FileType::Fifo => Err(refused(&format!("a FIFO of user {}", stat.st_uid))),
        FileType::CharacterDevice => Err(refused(&format!("a device of user {}", stat.st_uid))),
        // A shell passes `>(command)` as such a link.
        FileType::Symlink if directory.has_own_descriptors() => {
            Ok(Some(open_to_write(&format!("/proc/self/fd/{}", name.display()))?))
        }
        FileType::Symlink => Err(refused("a link")),
        FileType::Directory => Err(refused("a directory")),
        FileType::BlockDevice => Err(refused("a block device")),
        _ => Err(refused("neither a file nor a FIFO nor a device")),
    }
}

fn open_to_write(path: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?.into())
}

/// A file that does not have its name yet.
#[derive(Debug)]
struct Hidden {
    directory: Arc<Directory>,
    name: PathBuf,
    /// Where the file system has no files without a name. It is deleted when this is dropped.
    temporary: Option<PathBuf>,
    /// The process that gives it its name instead of this one, and its number there.
    namer: Option<(Arc<Namer>, usize)>,
}

impl Hidden {
    const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

    fn create(directory: &Arc<Directory>, name: &OsStr) -> io::Result<(File, Self)> {
        let (directory, name) = (directory.clone(), name.into());
        let mut hidden = Self { directory, name, temporary: None, namer: None };
        let file = hidden.without_a_name().or_else(|_| hidden.with_a_temporary_name())?;
        Ok((file.into(), hidden))
    }

    /// A file that vanishes even if the process is killed.
    fn without_a_name(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        Ok(openat(&self.directory, ".", flags, Self::MODE)?)
    }

    fn with_a_temporary_name(&mut self) -> io::Result<OwnedFd> {
        let temporary = random_name();
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | new;
        let file = openat(&self.directory, &temporary, flags, Self::MODE)?;
        self.temporary = Some(temporary);
        Ok(file)
    }

    fn start_namer(files: &[&mut OutputFile]) -> io::Result<Arc<Namer>> {
        let mut unnamed = Vec::new();
        for OutputFile { file, hidden, .. } in files.iter().map(|one| &**one) {
            let Some(hidden) = hidden else { continue };
            let is_nameless = hidden.temporary.is_none();
            let temporary = hidden.temporary.clone().unwrap_or_else(random_name);
            let text = |path: &Path| CString::new(path.as_os_str().as_bytes());
            unnamed.push(Unnamed {
                file: is_nameless.then(|| file.as_fd()),
                directory: hidden.directory.as_fd(),
                temporary: text(&temporary)?,
                name: text(&hidden.name)?,
            });
        }
        Namer::start(&unnamed, c"probe-names").map(Arc::new)
    }

    /// Gives the file its name, in place of the file that has it.
    fn appear(&mut self, file: &File) -> io::Result<()> {
        if let Some((namer, number)) = &self.namer {
            return namer.name(*number);
        }
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => {
                let temporary = random_name();
                let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
                linkat(CWD, opened, &self.directory, &temporary, AtFlags::SYMLINK_FOLLOW)?;
                temporary
            }
        };
        let temporary = self.temporary.insert(temporary);
        renameat(&self.directory, &*temporary, &self.directory, &self.name)?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // There is nobody to report an error to.
            let _ = unlinkat(&self.directory, temporary, AtFlags::empty());
        }
    }
}

/// A name that nobody can guess, and so take first.
fn random_name() -> PathBuf {
    format!(".probe-{:016x}", RandomState::new().build_hasher().finish()).into()
}

#[cfg(test)]
mod tests;
