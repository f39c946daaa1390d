//! The process that reads untrusted files.
//!
//! Programs, libraries, debug information and lists of generated code belong to the users whose processes are observed. A
//! crafted one must not affect the tracer, so a *reader*, a process without privileges, parses it. The tracer opens
//! the file and passes the descriptor; the reader answers with names.
//!
//! A *keeper* starts readers, one at a time: it is this program, executed again, which gives up its privileges before
//! the first file, and forks a reader whenever the tracer wants a new one. The tracer could not do that later, when it
//! has given up its own privileges, and could not kill a process of another user.

mod channel;
mod client;
mod confine;
pub(crate) mod debug_info;
mod keeper;
pub(crate) mod message;
pub(crate) mod perf_map;
pub(crate) mod program;
mod shared;
mod texts;
mod worker;

pub(crate) use client::{Lookup, Reader, ReaderState};
pub(crate) use message::{Function, Kind, Wants};
pub(super) use shared::SharedReader;
pub use shared::start_symbol_reader;
#[cfg(any(test, fuzzing))]
pub(crate) use worker::Parsed;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// The name under which the program is executed again. It is also the name of the process for `ps`.
const NAME: &str = "probe-symbols";

/// Whether the program can be executed again as a keeper.
static CAN_START: AtomicBool = AtomicBool::new(false);

/// Lets [`Symbols`](crate::Symbols), and probes on functions of programs, start a process that reads the files of other users. Call it
/// first in `main`, before there are threads: that process is this program, executed again, and there this call never
/// returns.
///
/// Without the call, user addresses have no names, and the programs that probes name are read in the calling process.
pub fn allow_symbol_reader() {
    if std::env::args_os().next().is_some_and(|name| name == NAME) {
        std::process::exit(i32::from(keeper::run().is_err()));
    }
    // ORDERING: nothing else depends on it.
    CAN_START.store(true, Ordering::Relaxed);
}

/// This program, to be executed as a keeper. `None` if it did not allow that.
fn command() -> Option<Command> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).env_clear();
    if cfg!(test) {
        let test = "binary::reader::tests::the_test_program_is_a_keeper_if_asked";
        command.args([test, "--exact", "--nocapture", "-q"]).env(NAME, "1");
        return Some(command);
    }
    // ORDERING: as above.
    CAN_START.load(Ordering::Relaxed).then_some(command)
}

#[cfg(test)]
mod tests;
