//! The reader of programs in which functions are probed.

use super::client::{Lookup, Reader, not_started};
use super::message::{Kind, Wants};
use crate::binary::beside::Opened;
use crate::binary::contents::{self, Contents};
use crate::binary::root::Root;
use crate::binary::{FileProblem, demangle, of_descriptor};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static SHARED: Mutex<Shared> = Mutex::new(Shared { reader: None, users: 0 });

/// The reader that this process has, if it has one.
struct Shared {
    reader: Option<Reader>,
    users: usize,
}

impl Shared {
    fn get() -> MutexGuard<'static, Self> {
        SHARED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader. If there is none, its keeper is started. `None` if the program did not allow that.
    fn reader(&mut self) -> io::Result<Option<&mut Reader>> {
        if self.reader.is_none() && super::command().is_some() {
            self.reader = Some(Reader::idle().map_err(not_started)?);
        }
        Ok(self.reader.as_mut())
    }
}

/// Prepares to read the programs in which functions are probed in another process. Otherwise that is prepared when it is
/// needed, which takes privileges. Call it before you [give them up](crate::privileges) and then [list](crate::list())
/// or [describe](crate::Info) probes.
///
/// # Errors
///
/// If the process cannot be started. Without [`allow_symbol_reader`](crate::allow_symbol_reader), none is started.
pub fn start_symbol_reader() -> io::Result<()> {
    let mut shared = Shared::get();
    shared.users += 1;
    shared.reader().map(drop)
}

/// The use of a reader that this process has while somebody uses it. It is started when it is needed.
#[derive(Debug)]
pub(in crate::binary) struct SharedReader(());

impl SharedReader {
    pub(in crate::binary) fn new() -> Self {
        Shared::get().users += 1;
        Self(())
    }

    /// Reads a program or library.
    pub(in crate::binary) fn contents(
        &self,
        path: &Path,
        file: &File,
        root: &Arc<Root>,
    ) -> Result<Contents, FileProblem> {
        let program = program(file, root).map_err(FileProblem::Unreadable)?;
        let open = |wants: &Wants| program.wanted(wants);
        match Shared::get().reader().map_err(FileProblem::Unreadable)? {
            Some(reader) => {
                let (kind, root) = (Kind::Program, program.root());
                reader.contents(&Lookup { kind, file, path, root, open: &open })
            }
            None => Contents::read(file, &mut |wants| open(&wants).0).map_err(FileProblem::NotElf),
        }
    }

    /// The symbols of a program that have a name in the source.
    pub(in crate::binary) fn symbols_of<'n>(
        &self,
        name: &str,
        symbols: &[&'n str],
        file: &File,
    ) -> Result<Vec<&'n str>, FileProblem> {
        let found = match Shared::get().reader().map_err(FileProblem::Unreadable)? {
            Some(reader) => reader.symbols_of(name, symbols, file)?,
            None => demangle::symbols_of(name, symbols.iter().copied()),
        };
        Ok(found.into_iter().map(|number| symbols[number]).collect())
    }

    /// Whether an instruction ends `size` bytes after the beginning of a function, which is at the offset `start` in the file.
    pub(in crate::binary) fn is_boundary(
        &self,
        file: &File,
        start: u64,
        size: u64,
    ) -> Result<bool, FileProblem> {
        match Shared::get().reader().map_err(FileProblem::Unreadable)? {
            Some(reader) => reader.is_boundary(file, start, size),
            None => contents::is_boundary(file, start, size).map_err(FileProblem::unreadable),
        }
    }
}

impl Drop for SharedReader {
    fn drop(&mut self) {
        let mut shared = Shared::get();
        shared.users -= 1;
        if shared.users == 0 {
            shared.reader = None;
        }
    }
}

/// A program at its path without links, beside which its symbols may be.
fn program(file: &File, root: &Arc<Root>) -> io::Result<Opened> {
    Opened::new(file.try_clone()?, Some(root), &fs::read_link(of_descriptor(file))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::root::tests::Chrooted;
    use probe_testing::skip::skip;
    use rustix::process::geteuid;

    #[test]
    fn the_symbols_of_a_process_with_another_root_directory_are_found_there() {
        if !geteuid().is_root() {
            return skip("only root can change the root directory");
        }
        let root = tempfile::tempdir().unwrap();
        let process = Chrooted::start(root.path());
        let path = root.path().join("program");
        fs::write(&path, "").unwrap();
        fs::write(root.path().join("program.debug"), "").unwrap();
        let opened =
            program(&File::open(path).unwrap(), &Root::of(process.pid()).unwrap()).unwrap();
        let wants = Wants { link: Some(b"program.debug".to_vec()), ..Wants::default() };
        assert_eq!(opened.wanted(&wants).0.len(), 1);
    }
}
