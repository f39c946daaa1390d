//! Memory that the kernel counts as locked.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Makes a call once more, without `RLIMIT_MEMLOCK`, if the kernel refuses it: before 5.11, that limits the
/// memory of programs and maps, and `EPERM` is all that is said of it.
pub(super) fn lifted_if_refused<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match call() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && lift() => call(),
        result => result,
    }
}

/// Whether there was a limit, and is none any more.
fn lift() -> bool {
    getrlimit(Resource::Memlock).current.is_some()
        && setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_ok()
}
