//! The files of a process: those that it runs code from, and those in its root directory.

use super::path::{self, is_library_name};
use super::root::{Links, Root};
use super::{BinaryError, FileProblem};
use probe_sys::escape::Escaped;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A running process. Another file may be in place of one that it runs code from, and the same path may lead to another
/// file in its root directory or mount namespace.
#[derive(Debug)]
pub(crate) struct Process {
    pid: u32,
    /// The [thread](id_with_memory) that shows its files.
    with_memory: u32,
    root: Arc<Root>,
    code: Vec<Mapped>,
}

/// A file, and what is to be said about it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) note: Option<String>,
    /// Where the files beside it are.
    pub(super) root: Arc<Root>,
}

impl Found {
    /// Checks that another process has the same file by this name.
    pub(super) fn check_same(
        &self,
        name: &str,
        process: &Process,
        other: &Process,
    ) -> Result<(), BinaryError> {
        let theirs = other.find(name)?;
        let id_of = |found: &Self| found.file.metadata().map(|file| id(&file)).ok();
        if id_of(self) != id_of(&theirs) {
            let (name, pids) = (name.to_owned(), [process.pid, other.pid]);
            return Err(BinaryError::DifferentFiles { name, pids });
        }
        if let Some(note) = theirs.note {
            log::warn!("{}: {note}", Escaped(theirs.path.as_os_str().as_bytes()));
        }
        Ok(())
    }
}

/// A file that a process runs code from.
#[derive(Debug, PartialEq, Eq)]
struct Mapped {
    /// The path as this process sees it, which may lead to another file by now.
    path: PathBuf,
    /// The path that leads to the file as long as it is mapped. Following it takes a privilege.
    link: PathBuf,
    id: Id,
}

/// The device and the inode of a file.
type Id = (u64, u64);

pub(super) fn id(file: &Metadata) -> Id {
    (file.dev(), file.ino())
}

impl Process {
    /// Looks at a process. `None` if it still runs this program: a command that has not begun yet.
    pub(crate) fn of(pid: u32) -> io::Result<Option<Self>> {
        let with_memory = id_with_memory(pid);
        let folder = PathBuf::from(format!("/proc/{with_memory}"));
        let program = |folder: &Path| fs::metadata(folder.join("exe")).map(|found| id(&found));
        // A thread of the kernel has no program.
        if program(&folder)
            .is_ok_and(|exe| program(Path::new("/proc/self")).is_ok_and(|own| exe == own))
        {
            return Ok(None);
        }
        let root = Root::of(with_memory)?;
        // Users choose the names of files, which need not be UTF-8. Only what is before them is wanted.
        let maps = fs::read(folder.join("maps"))?;
        let maps = String::from_utf8_lossy(&maps);
        let mut known = HashSet::new();
        let mut this = Self { pid, with_memory, root, code: Vec::new() };
        let mapped = executable(&maps).filter_map(|(range, inode)| this.mapped(&range, inode));
        this.code = mapped.filter(|mapped| known.insert(mapped.id)).collect();
        Ok(Some(this))
    }

    /// The file of a mapping. Without the privilege to follow the link, it is the one at its path, unless that was deleted.
    fn mapped(&self, range: &Range<u64>, inode: u64) -> Option<Mapped> {
        const DELETED: &[u8] = b" (deleted)";
        let link = PathBuf::from(format!("/proc/{}/{}", self.with_memory, map_file(range)));
        let seen = fs::read_link(&link).ok()?.into_os_string().into_vec();
        let (path, is_deleted) = match seen.strip_suffix(DELETED) {
            Some(path) => (path, true),
            None => (&*seen, false),
        };
        let path = PathBuf::from(OsStr::from_bytes(path));
        let id = match fs::metadata(&link) {
            // No file has the device 0.
            Err(error) if is_denied(&error) && is_deleted => (0, inode),
            Err(error) if is_denied(&error) => id_of(&self.open_in_root(&path).ok()?)?,
            found => id(&found.ok()?),
        };
        Some(Mapped { path, link, id })
    }

    /// Finds the file that a path or a name stands for in this process.
    pub(super) fn find(&self, name: &str) -> Result<Found, BinaryError> {
        if name.contains('/') {
            return self.at(Path::new(name));
        }
        let exact: Vec<_> =
            self.code.iter().filter(|mapped| mapped.is_called(|it| it == name)).collect();
        let library =
            || self.code.iter().filter(|mapped| mapped.is_called(|it| is_library_name(it, name)));
        let called = if exact.is_empty() { library().collect() } else { exact };
        match called.as_slice() {
            [one] => self.open(one),
            [] if !self.root.is_own() => {
                Err(BinaryError::NotMapped { name: name.to_owned(), pid: self.pid })
            }
            [] => self.at(&path::find(name)?),
            several => {
                let found = several.iter().map(|mapped| mapped.path.clone()).collect();
                Err(BinaryError::SeveralFiles { name: name.to_owned(), found })
            }
        }
    }

    /// Finds the file at a path: the one that the process runs, if another is in its place now.
    fn at(&self, path: &Path) -> Result<Found, BinaryError> {
        let opened = self.open_in_root(path);
        // As this process sees it, like the paths of mapped files.
        let seen = match &opened {
            Ok(file) => seen(file),
            Err(_) => self
                .open_in_root(path.parent().unwrap_or(path))
                .ok()
                .and_then(|folder| Some(seen(&folder)?.join(path.file_name()?))),
        };
        let current = opened.as_ref().ok().and_then(id_of);
        let is_current = |mapped: &&Mapped| current == Some(mapped.id);
        let replaced = self
            .code
            .iter()
            .filter(|mapped| seen.as_ref() == Some(&mapped.path) && !is_current(mapped));
        let replaced: Vec<_> = replaced.collect();
        let runs_current = self.code.iter().any(|mapped| is_current(&mapped));
        let note = match (runs_current, replaced.as_slice()) {
            (false, &[one]) => {
                return Ok(Found { path: path.to_owned(), ..self.open(one)? });
            }
            (true, []) => None,
            (true, _) => Some(format!(
                "process {} also runs code from an earlier file at this path, which is not probed",
                self.pid
            )),
            (false, []) => Some(format!(
                "process {} does not run code of this file now, so its probes report nothing until it does",
                self.pid
            )),
            (false, several) => {
                let found = several.iter().map(|mapped| mapped.link.clone()).collect();
                return Err(BinaryError::SeveralFiles { name: path.display().to_string(), found });
            }
        };
        let file = opened.map_err(FileProblem::Unreadable).and_then(regular);
        let file =
            file.map_err(|problem| BinaryError::InFile { path: path.to_owned(), problem })?;
        Ok(Found { path: path.to_owned(), file, note, root: Arc::clone(&self.root) })
    }

    fn open(&self, mapped: &Mapped) -> Result<Found, BinaryError> {
        let path = mapped.path.clone();
        let opened = match open_regular(&mapped.link) {
            Err(FileProblem::Unreadable(error)) if is_denied(&error) => self.open_by_path(mapped),
            opened => opened,
        };
        match opened {
            Ok(file) => Ok(Found { path, file, note: None, root: Arc::clone(&self.root) }),
            Err(problem) => Err(BinaryError::InFile { path, problem }),
        }
    }

    /// Opens a file that the process runs code from by its path, if that still leads to it.
    fn open_by_path(&self, mapped: &Mapped) -> Result<File, FileProblem> {
        let found = self.open_in_root(&mapped.path).ok();
        match found.filter(|file| id_of(file) == Some(mapped.id)) {
            Some(file) => regular(file),
            None => Err(FileProblem::unreadable(format!(
                "process {} runs a file that was deleted or replaced, and opening it requires CAP_CHECKPOINT_RESTORE or \
                 CAP_SYS_ADMIN",
                self.pid
            ))),
        }
    }

    /// Finds a file in the process's root directory or, if it is not there, in this process's own.
    fn open_in_root(&self, path: &Path) -> io::Result<OwnedFd> {
        if !self.root.is_own()
            && path.is_absolute()
            && let Ok(file) = self.root.find(path, Links::Followed)
        {
            return Ok(file);
        }
        descriptor_of(path)
    }
}

impl Mapped {
    fn is_called(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        self.path.file_name().and_then(|name| name.to_str()).is_some_and(is_meant)
    }
}

/// A descriptor that only names what is at a path, so that nothing blocks or has side effects.
fn descriptor_of(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens the file at a path for reading, if it is one. Whatever else is there is not opened.
pub(crate) fn open_regular(path: &Path) -> Result<File, FileProblem> {
    descriptor_of(path).map_err(FileProblem::Unreadable).and_then(regular)
}

/// Opens a file for reading, if it is one. If another process holds a lease on the file, this fails instead of
/// waiting (`O_NONBLOCK`).
pub(crate) fn regular(file: OwnedFd) -> Result<File, FileProblem> {
    let file = of_descriptor(&file);
    if !fs::metadata(&file).map_err(FileProblem::Unreadable)?.is_file() {
        return Err(FileProblem::NotAFile);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = open(file, flags, Mode::empty()).map_err(io::Error::from);
    opened.map(File::from).map_err(FileProblem::Unreadable)
}

/// A path that leads to what a descriptor of this process is for.
pub(crate) fn of_descriptor(file: &impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
}

fn id_of(file: &OwnedFd) -> Option<Id> {
    fs::metadata(of_descriptor(file)).ok().map(|found| id(&found))
}

/// Whether a privilege is missing.
fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn seen(file: &OwnedFd) -> Option<PathBuf> {
    fs::read_link(of_descriptor(file)).ok()
}

/// The id of a thread that shows the memory and the root directory of a process. The thread with the id of the process shows
/// neither after it has ended before the others.
pub(crate) fn id_with_memory(pid: u32) -> u32 {
    let has_memory = |id: u32| match File::open(format!("/proc/{id}/maps")) {
        Ok(mut maps) => maps.read(&mut [0]).is_ok_and(|len| len > 0),
        // A privilege is missing for the other threads, too. Some kernels do not open an empty list.
        Err(error) => error.raw_os_error() != Some(Errno::SRCH.raw_os_error()),
    };
    let others = || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let mut ids = threads.filter_map(|one| one.ok()?.file_name().to_str()?.parse().ok());
        ids.find(|&id| has_memory(id))
    };
    if has_memory(pid) { pid } else { others().unwrap_or(pid) }
}

/// An address range as it is written in `/proc/PID/maps`.
pub(crate) fn address_range(text: &str) -> Option<Range<u64>> {
    let address = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = text.split_once('-')?;
    Some(address(start)?..address(end)?)
}

/// Where in `/proc/PID` the file of a mapping is. Unlike in `maps`, the addresses have no leading zeros.
pub(crate) fn map_file(range: &Range<u64>) -> String {
    format!("map_files/{:x}-{:x}", range.start, range.end)
}

/// The address ranges and inodes of executable mappings in `/proc/PID/maps`.
fn executable(maps: &str) -> impl Iterator<Item = (Range<u64>, u64)> {
    maps.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (range, permissions, inode) = (words.next()?, words.next()?, words.nth(2)?);
        let is_code = permissions.contains('x');
        if is_code { Some((address_range(range)?, inode.parse().ok()?)) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::capabilities::{Capabilities, keep_in_thread};
    use probe_sys::disturb::in_child;
    use rustix::thread::set_no_new_privs;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn only_executable_mappings_have_code() {
        let maps = "55d0-55d1 r--p 00000000 fe:00 12 /usr/bin/x\n55d1-55d2 r-xp 00001000 fe:00 12 /usr/bin/a b\n\
            7f00-7f01 rwxp 00000000 00:00 0\n\
            00400000-00452000 r-xp 00000000 fe:00 12 /usr/bin/x\n\n";
        let expected = [("55d1-55d2", 12), ("7f00-7f01", 0), ("400000-452000", 12)];
        let expected = expected.map(|(range, inode)| (format!("map_files/{range}"), inode));
        let found = executable(maps).map(|(range, inode)| (map_file(&range), inode));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn files_are_found_without_the_privilege_to_follow_mappings() {
        let dir = tempfile::tempdir().unwrap();
        let [program, new] = ["sleep", "new"].map(|name| dir.path().join(name));
        let sleep = path::program("sleep").unwrap();
        let (name, denied) = (program.to_str().unwrap(), "requires CAP_CHECKPOINT_RESTORE");
        // The process that is looked at has no privilege either.
        let look = || -> io::Result<bool> {
            set_no_new_privs(true)?;
            keep_in_thread(Capabilities::NONE)?;
            // A child of another test that had them open for writing would keep them from being executed.
            for copy in [&program, &new] {
                fs::copy(&sleep, copy)?;
            }
            let mut command = Command::new(&program).arg("60").spawn()?;
            let pid = command.id();
            let find = |name| Process::of(pid).ok().flatten().map(|one| one.find(name));
            let is_it = |found: &Found| found.path == program && found.note.is_none();
            let is_found = |name| matches!(find(name), Some(Ok(found)) if is_it(&found));
            // It may still be executing the program.
            let end = Instant::now() + Duration::from_secs(20);
            while !(is_found(name) && is_found("sleep")) {
                if Instant::now() > end {
                    return Ok(false);
                }
            }
            fs::rename(&new, &program)?;
            let is_denied =
                |name| matches!(find(name), Some(Err(error)) if error.to_string().contains(denied));
            let is_replaced = is_denied(name) && is_denied("sleep");
            command.kill()?;
            Ok(is_replaced)
        };
        assert_eq!(in_child(|| look().is_ok_and(|is_right| is_right).into()).unwrap(), 1);
    }
}
