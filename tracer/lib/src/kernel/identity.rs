//! Giving up the identity of root, to whom most files of a machine belong.

use crate::kernel::capabilities::{Capabilities, keep_in_thread};
use crate::kernel::confinement::deny_files_in_thread;
use probe_sys::process::Identity;
use rustix::process::geteuid;
use rustix::thread::{capabilities, set_capabilities, set_keep_capabilities};
use std::env;
use std::io;
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

/// The capabilities with which a thread can read whatever root can read.
pub(crate) const TO_READ_AS_ROOT: Capabilities =
    Capabilities(Capabilities::DAC_READ_SEARCH.0.union(Capabilities::SYS_PTRACE.0));

/// The identity that root's takes the place of: that of the user who has called `sudo`, or else of nobody.
pub(crate) fn instead_of_root() -> Identity {
    let id = |name| env::var(name).ok().and_then(|text| text.parse().ok()).filter(|id| *id != 0);
    match (id("SUDO_UID"), id("SUDO_GID")) {
        (Some(user), Some(group)) => Identity::new(user, group),
        _ => Identity::nobody(),
    }
}

/// Gives the calling thread another identity if it has root's. Its effective capabilities stay the same. Returns whether it is
/// another's from now on: root of a container may lack the privilege, or there may be no other user.
pub(crate) fn leave_root(identity: &Identity) -> io::Result<bool> {
    if !geteuid().is_root() {
        return Ok(false);
    }
    let before = capabilities(None)?;
    set_keep_capabilities(true)?;
    match identity.assume() {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM)) => Ok(false),
        assumed => {
            assumed?;
            set_capabilities(None, before)?;
            Ok(true)
        }
    }
}

/// Leaves root's identity, unless the capabilities of the calling thread are too few to read without it what root can read.
pub(crate) fn leave_root_to_read() -> io::Result<()> {
    if Capabilities::effective()?.contains(TO_READ_AS_ROOT) {
        leave_root(&instead_of_root())?;
    }
    Ok(())
}

/// Starts a thread that opens no files. Before this returns, it has given up its privileges as `give_up` does.
pub(crate) fn start_without_files(
    name: &str,
    who: &'static str,
    give_up: impl FnOnce() -> io::Result<()> + Send + 'static,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let begun = Arc::new(Barrier::new(2));
    let begins = Arc::clone(&begun);
    let run = move || {
        if let Err(error) = give_up().and_then(|()| deny_files_in_thread()) {
            log::warn!("{who} keeps its privileges: {error}");
        }
        begins.wait();
        run();
    };
    let thread = thread::Builder::new().name(name.into()).spawn(run)?;
    begun.wait();
    Ok(thread)
}

/// Drops all capabilities of the calling thread, and root's identity.
pub(crate) fn leave_all_in_thread() -> io::Result<()> {
    leave_root(&instead_of_root())?;
    keep_in_thread(Capabilities::NONE)
}
