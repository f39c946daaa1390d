//! What can be wrong with a file, or a function of it.

use crate::escape::Escaped;
use crate::nearest::suggestion;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why a place of a program or library cannot be probed, as the end of a sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BinaryError {
    /// There is no such file.
    #[error("{} {looked}", Escaped(name.as_bytes()))]
    NoFile {
        /// What was written.
        name: String,
        /// Where it was looked for: the end of a sentence.
        looked: String,
    },
    /// A library's name is that of several.
    #[error("{} stands for several libraries: name one of {}", Escaped(name.as_bytes()), list(found))]
    SeveralFiles {
        /// What was written.
        name: String,
        /// Those that it may stand for.
        found: Vec<PathBuf>,
    },
    /// The file cannot be read.
    #[error("{} cannot be read: {source}", shown(path))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file has no code that this machine runs.
    #[error("{} is not what processes run code of: {what}", shown(path))]
    NotElf {
        /// The file.
        path: PathBuf,
        /// What it is instead: a sentence.
        what: String,
    },
    /// The file has no such function.
    #[error("{} has no function of this name{}", shown(path), instead(near, *is_stripped))]
    UnknownFunction {
        /// The file.
        path: PathBuf,
        /// Names that are like it.
        near: Vec<String>,
        /// Whether it has names of those functions alone that others may call.
        is_stripped: bool,
    },
    /// The file calls the function, and does not have it.
    #[error(
        "{} calls this function, but does not have it: it is in one of the libraries that ldd shows",
        shown(path)
    )]
    Imported {
        /// The file.
        path: PathBuf,
    },
    /// The name is that of a choice between functions.
    #[error(
        "{} has several functions for this name, one of which is chosen when a program is loaded \
         (IFUNC): which one, the file does not say",
        shown(path)
    )]
    Indirect {
        /// The file.
        path: PathBuf,
    },
    /// Several functions have this name.
    #[error(
        "{count} functions of {} have this name, and it does not say which is meant",
        shown(path)
    )]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// How many.
        count: usize,
    },
    /// A pattern stands for nothing that can be probed.
    #[error(
        "no function of {} that can be probed is matched by this pattern{}",
        shown(path),
        unprobed(*ambiguous, *indirect)
    )]
    NoMatch {
        /// The file.
        path: PathBuf,
        /// How many names match that several functions have.
        ambiguous: usize,
        /// How many names match of which one function is chosen when a program is loaded.
        indirect: usize,
    },
    /// The offset is behind the function's end.
    #[error("the function of {} ends before that, it has {size} bytes", shown(path))]
    OutOfFunction {
        /// The file.
        path: PathBuf,
        /// How many bytes the function has.
        size: u64,
    },
    /// No instruction begins at the offset.
    #[error(
        "no instruction begins there, and a probe in the middle of one would break the program \
         (objdump -d {} shows them)",
        shown(path)
    )]
    NoInstruction {
        /// The file.
        path: PathBuf,
    },
    /// It is not in what is mapped to be run.
    #[error("that is in no part of {} that is mapped to be run", shown(path))]
    NoCode {
        /// The file.
        path: PathBuf,
    },
    /// The kernel cannot put a probe on the instruction.
    #[error("the kernel takes no probe on this instruction of {} ({source})", shown(path))]
    NoPlace {
        /// The file.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// The kernel cannot read the file's code as it has to.
    #[error(
        "the kernel takes no probes in the file system of {} ({source}): one in a copy on another works",
        shown(path)
    )]
    FileSystem {
        /// The file.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
}

fn shown(path: &Path) -> Escaped<'_> {
    Escaped(path.as_os_str().as_bytes())
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| shown(path).to_string()).collect::<Vec<_>>().join(", ")
}

/// What a pattern matches that cannot be probed.
fn unprobed(ambiguous: usize, indirect: usize) -> String {
    let mut text = String::new();
    for (count, what) in [
        (ambiguous, "names that several functions have"),
        (indirect, "chosen when a program is loaded (IFUNC)"),
    ] {
        if count > 0 {
            text.push_str(&format!("; {what}: {count}"));
        }
    }
    text
}

/// What there is instead of a function.
fn instead(near: &[String], is_stripped: bool) -> String {
    let mut text = suggestion(near);
    if is_stripped {
        text.push_str(". It is stripped: only functions that others may call have names");
    }
    text
}
