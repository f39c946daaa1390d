//! A process that names files later, when this one may no longer do that.

use super::held_child::pipe;
use super::keeper::in_background;
use crate::attempt;
use rustix::fs::{AtFlags, CWD, linkat, renameat, unlinkat};
use rustix::io::{Errno, read, write};
use std::ffi::{CStr, CString};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, BorrowedFd};

/// A file that is to get its name in a directory.
#[derive(Debug)]
pub struct Unnamed<'f> {
    /// The file, if it has no name yet (`O_TMPFILE`).
    pub file: Option<BorrowedFd<'f>>,
    /// The directory.
    pub directory: BorrowedFd<'f>,
    /// A name that the file has before, or that nothing has.
    pub temporary: CString,
    /// The name to get, in place of the file that has it then.
    pub name: CString,
}

/// A process in the background that can give names to some files, and do nothing else.
///
/// It has the privileges that this process has when it is started, and no other descriptors. When this is dropped, it
/// deletes files that still have their temporary names, and ends.
#[derive(Debug)]
pub struct Namer {
    requests: PipeWriter,
    answers: PipeReader,
}

impl Namer {
    /// Starts the process. `comm` is its name, of which the kernel keeps 15 bytes.
    ///
    /// # Errors
    ///
    /// As for [`Keeper::start`](super::Keeper::start).
    pub fn start(files: &[Unnamed<'_>], comm: &CStr) -> io::Result<Self> {
        let ((asked, requests), (answers, answered)) = (pipe()?, pipe()?);
        let mut steps = files.iter().map(Step::of).collect::<io::Result<Vec<_>>>()?;
        let of_files = files.iter().flat_map(|one| [Some(one.directory), one.file]).flatten();
        let mut kept: Vec<_> = of_files.map(|fd| fd.as_raw_fd()).collect();
        kept.extend([asked.as_raw_fd(), answered.as_raw_fd()]);
        in_background(kept, comm, || serve(&mut steps, &asked, &answered))?;
        Ok(Self { requests, answers })
    }

    /// Gives the file with this number its name.
    pub fn name(&self, file: usize) -> io::Result<()> {
        attempt("write", || write(&self.requests, &file.to_ne_bytes()))?;
        let mut errno = [0; size_of::<i32>()];
        match attempt("read", || read(&self.answers, &mut errno))? {
            0 => Err(io::Error::other("the process that names files has ended")),
            _ => match i32::from_ne_bytes(errno) {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno)),
            },
        }
    }
}

/// What the process does for a file, prepared so that it need not allocate.
struct Step<'f> {
    /// A path to the file if it has no name.
    opened: Option<CString>,
    directory: BorrowedFd<'f>,
    temporary: &'f CStr,
    name: &'f CStr,
    has_temporary_name: bool,
}

impl<'f> Step<'f> {
    fn of(file: &'f Unnamed<'f>) -> io::Result<Self> {
        let path = |fd: BorrowedFd<'_>| CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let opened = file.file.map(path).transpose()?;
        let has_temporary_name = opened.is_none();
        let (temporary, name) = (&*file.temporary, &*file.name);
        Ok(Self { opened, directory: file.directory, temporary, name, has_temporary_name })
    }

    fn take(&mut self) -> rustix::io::Result<()> {
        let Self { directory, temporary, name, .. } = *self;
        if let Some(opened) = &self.opened {
            linkat(CWD, &**opened, directory, temporary, AtFlags::SYMLINK_FOLLOW)?;
            self.has_temporary_name = true;
        }
        renameat(directory, temporary, directory, name)?;
        self.has_temporary_name = false;
        Ok(())
    }
}

/// Runs in the process: names files until the other ends are closed.
fn serve(steps: &mut [Step<'_>], asked: &PipeReader, answered: &PipeWriter) {
    let mut number = [0; size_of::<usize>()];
    // The kernel does not split requests that are this short.
    while matches!(read(asked, &mut number), Ok(size) if size == number.len()) {
        let step = steps.get_mut(usize::from_ne_bytes(number));
        let taken = step.map_or(Err(Errno::INVAL), Step::take);
        let errno = taken.err().map_or(0, Errno::raw_os_error);
        if write(answered, &errno.to_ne_bytes()).is_err() {
            break;
        }
    }
    for step in steps.iter().filter(|step| step.has_temporary_name) {
        // There is nobody to report an error to.
        let _ = unlinkat(step.directory, step.temporary, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, openat};
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::path::Path;
    use std::time::{Duration, Instant};

    fn names(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir).unwrap().map(|one| one.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_get_their_names_when_asked_and_others_vanish() {
        let dir = std::env::temp_dir().join(format!("probe-namer-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let directory = File::open(&dir).unwrap();
        let flags = OFlags::WRONLY | OFlags::TMPFILE;
        let nameless = openat(&directory, ".", flags, Mode::RUSR).unwrap();
        for temporary in ["t2", "t3"] {
            fs::write(dir.join(temporary), temporary).unwrap();
        }
        fs::write(dir.join("second"), "old").unwrap();
        let unnamed = |file, temporary: &str, name: &str| {
            let [temporary, name] = [temporary, name].map(|text| CString::new(text).unwrap());
            Unnamed { file, directory: directory.as_fd(), temporary, name }
        };
        let files = [
            unnamed(Some(nameless.as_fd()), "t1", "first"),
            unnamed(None, "t2", "second"),
            unnamed(None, "t3", "third"),
            unnamed(None, "t4", "fourth"),
        ];
        let namer = Namer::start(&files, c"namer-test").unwrap();
        assert_eq!(names(&dir), ["second", "t2", "t3"]);
        namer.name(0).unwrap();
        namer.name(1).unwrap();
        assert_eq!(names(&dir), ["first", "second", "t3"]);
        assert_eq!(fs::read_to_string(dir.join("second")).unwrap(), "t2");
        assert_eq!(namer.name(3).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(namer.name(4).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        drop(namer);
        let begun = Instant::now();
        while names(&dir) != ["first", "second"] {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", names(&dir));
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
