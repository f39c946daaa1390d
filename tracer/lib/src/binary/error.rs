//! Errors about files and their functions.

use probe_perf::nearest::suggestion;
use probe_sys::escape::Escaped;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why a location in a program or library cannot be probed. The message continues a sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BinaryError {
    /// The file was not found.
    #[error(
        "{} is not a program in PATH, and {library} is not in the directories of /etc/ld.so.conf; \
         write a path with a /",
        Escaped(name.as_bytes())
    )]
    NoFile {
        /// What was written.
        name: String,
        /// The file name that a library of this name would have.
        library: String,
    },
    /// The name matches several libraries.
    #[error("{} matches several libraries; name one of {}", Escaped(name.as_bytes()), list(found))]
    SeveralFiles {
        /// What was written.
        name: String,
        /// The libraries that match.
        found: Vec<PathBuf>,
    },
    /// Several processes are traced, which have different files of this name.
    #[error(
        "processes {} and {} have different files called {}; trace them apart, or name one file as /proc/PID/root/PATH",
        pids[0],
        pids[1],
        Escaped(name.as_bytes())
    )]
    DifferentFiles {
        /// What was written.
        name: String,
        /// Two of the processes.
        pids: [u32; 2],
    },
    /// The process has a different root directory, and has mapped no code from a file of this name.
    #[error(
        "process {pid} has a different root directory and has mapped no code from a file called {}; give the path of the \
         file inside that root",
        Escaped(name.as_bytes())
    )]
    NotMapped {
        /// What was written.
        name: String,
        /// The process.
        pid: u32,
    },
    /// The file exists, but does not have what was asked for.
    #[error("{} {problem}", shown(path))]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: FileProblem,
    },
}

/// Why a location in a file cannot be probed. The message is the predicate of a sentence whose subject is the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// The path leads to something else, like a directory.
    #[error("is not a file")]
    NotAFile,
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// The process that reads it has failed, in this way.
    #[error("cannot be read: reading it {0}")]
    ReaderFailed(String),
    /// The file is not a program or library for this machine, for this reason.
    #[error("has no code that can be probed: {0}")]
    NotElf(String),
    /// The names of its functions take too much memory.
    #[error(
        "has more function symbols than fit in {} MiB; make a copy that keeps only the functions you need \
         (`strip -K FUNCTION -o COPY FILE`), then run and probe the copy",
        room >> 20
    )]
    TooManySymbols {
        /// The memory that they may take, in bytes.
        room: usize,
    },
    /// The file has no function of this name.
    #[error("has no function of this name{}", instead(near, *is_stripped))]
    UnknownFunction {
        /// Similar names.
        near: Vec<String>,
        /// Whether the file is stripped, so that only exported functions have names.
        is_stripped: bool,
    },
    /// The file calls the function but does not define it.
    #[error(
        "calls this function but does not define it; one of the libraries that `ldd` shows does"
    )]
    Imported,
    /// The name is that of an IFUNC, which is resolved to one of several functions at load time.
    #[error(
        "has several functions for this name, one of which is chosen when a program is loaded (IFUNC); \
         which one is known only for functions in libraries that probe itself uses"
    )]
    Indirect,
    /// The functions at these addresses have this name.
    #[error(
        "has {} functions of this name, so it is ambiguous; name one by its address: {}",
        .0.len(), addresses(.0)
    )]
    Ambiguous(Vec<u64>),
    /// No function is known to contain the address.
    #[error(
        "has no known function at this address, and a probe in the middle of an instruction would break the program"
    )]
    NoFunctionAt,
    /// A return is to be probed, but the address is not that of a function's first instruction.
    #[error("has no function that begins at this address, so its return cannot be probed")]
    NotAnEntry,
    /// The pattern matches nothing that can be probed.
    #[error(
        "has no function that matches this pattern and can be probed{}",
        unprobed(*ambiguous, *indirect)
    )]
    NoMatch {
        /// The number of matching names that belong to several functions.
        ambiguous: usize,
        /// The number of matching names that are IFUNCs.
        indirect: usize,
    },
    /// The offset is past the end of the function.
    #[error("has only {size} bytes of code in this function{}", at_offset(hit.as_deref()))]
    OutOfFunction {
        /// The function's size in bytes.
        size: u64,
        /// The function that is at this offset.
        hit: Option<String>,
    },
    /// A Go program, whose functions cannot have probes on their returns.
    #[error(
        "is a Go program, and a probe on the return of a function crashes it: Go moves stacks while functions run, and \
         finds the kernel's return address there. Probe entries (uprobe: without --ret); --unsafe-returns probes returns \
         anyway"
    )]
    GoReturns,
    /// A function that returns again later, whose return cannot be probed.
    #[error(
        "has a function here that returns twice: the second time from a saved context, with the return address that the \
         kernel has put there, which crashes the program. Probe its entry (uprobe: without --ret); --unsafe-returns probes \
         the return anyway"
    )]
    ReturnsAgain,
    /// A function that looks for its caller, whose return cannot be probed.
    #[error(
        "has a function here that finds its caller by the return address, in whose place the kernel would put another one, so \
         that dlsym(RTLD_NEXT) and search paths fail. Probe its entry (uprobe: without --ret); --unsafe-returns probes the \
         return anyway"
    )]
    LooksForCaller,
    /// Code that is not called, whose return cannot be probed.
    #[error(
        "has code here that is not called but jumped to: the kernel would overwrite what is on the stack in place of a return \
         address. Probe its entry (uprobe: without --ret)"
    )]
    NotCalled,
    /// No instruction begins at the offset.
    #[error(
        "has no instruction that begins at this offset, and a probe in the middle of one would break the \
         program (`objdump -d` on the file shows them)"
    )]
    NoInstruction,
    /// The address is not in an executable segment.
    #[error("has no executable segment at this address")]
    NoCode,
    /// The kernel rejects probes on this instruction.
    #[error("has an instruction here that the kernel refuses to probe ({0})")]
    InstructionRefused(io::Error),
    /// The kernel rejects probes on files of this file system.
    #[error(
        "is on a file system where the kernel allows no probes ({0}); a copy on another file system can be probed"
    )]
    FileSystemRefused(io::Error),
}

impl FileProblem {
    pub(super) fn unreadable(why: String) -> Self {
        Self::Unreadable(io::Error::other(why))
    }
}

/// What is at an offset, as the end of a message.
fn at_offset(hit: Option<&str>) -> String {
    hit.map_or_else(String::new, |hit| format!("; at this offset is {}", Escaped(hit.as_bytes())))
}

fn shown(path: &Path) -> Escaped<'_> {
    Escaped(path.as_os_str().as_bytes())
}

fn addresses(addresses: &[u64]) -> String {
    addresses.iter().map(|address| format!("{address:#x}")).collect::<Vec<_>>().join(", ")
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| shown(path).to_string()).collect::<Vec<_>>().join(", ")
}

/// The counts of matches that cannot be probed, as the end of a message.
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

/// Similar names and the reason why names may be missing, as the end of a message.
fn instead(near: &[String], is_stripped: bool) -> String {
    let mut text = suggestion(near);
    if is_stripped {
        text.push_str(if near.is_empty() { "." } else { "" });
        text.push_str(" The file is stripped: only exported functions have names");
    }
    text
}
