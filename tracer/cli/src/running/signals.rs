//! The signals that a run reacts to.

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use std::fs;
use std::io;
use std::sync::Arc;

/// The signals that end a run: a key, a request, and the terminal that goes away, unless `nohup` has made the process ignore
/// that.
pub(super) fn that_end() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&one| one != SIGHUP || !is_ignored(one))
}

/// Makes sure that this process can wait for its children. It cannot if it was started by one that ignores `SIGCHLD`.
pub(crate) fn follow_children() -> io::Result<()> {
    if is_ignored(SIGCHLD) {
        // The handler does nothing. Children do not inherit it.
        signal_hook::flag::register(SIGCHLD, Arc::default())?;
    }
    Ok(())
}

/// Whether this process ignores a signal, as it may have inherited from its parent.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) & 1 << (signal - 1) != 0
}
