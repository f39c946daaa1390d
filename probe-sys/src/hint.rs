//! Words that messages share. Hints say what an errno of a call means, and what to do about it. Each hint ends an error
//! message and may be empty.

use std::io;

/// A number with its noun, which takes an `s` unless there is one: `1 hit`, `2 hits`.
pub fn counted(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{s}")
}

/// The errno of an error; 0 if it has none.
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

/// What to do about an errno of the ring's `mmap(2)`.
pub fn map_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EPERM => {
            ". That is more locked memory than allowed: ask for fewer bytes, raise the sysctl \
             kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK (ulimit -l), or run with CAP_IPC_LOCK"
        }
        libc::ENOMEM => ". There is not enough memory: ask for fewer bytes",
        _ => "",
    }
}

/// What to do when no descriptor is left.
pub fn descriptor_hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EMFILE => ". The process has no descriptor left: raise RLIMIT_NOFILE (ulimit -n)",
        libc::ENFILE => ". The system has no descriptor left: raise the sysctl fs.file-max",
        _ => "",
    }
}

/// The error of reading rings in a process that was forked from the one that opened them.
pub fn forked() -> io::Error {
    let what = "this process was forked from the one that opened the rings and has no access to them: open them in \
                the process that reads them";
    io::Error::new(io::ErrorKind::Unsupported, what)
}
