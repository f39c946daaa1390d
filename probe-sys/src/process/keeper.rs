//! A process that keeps descriptors open, so that it is not this one that waits until they are closed.

use super::held_child::pipe;
use crate::call;
use std::ffi::CStr;
use std::io::{self, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};

/// A process in the background with copies of descriptors of this process.
///
/// The kernel releases what a descriptor stands for when its last copy is closed, which takes long for some kinds. Close
/// the descriptors here, which takes no time, and then drop this: the process ends, and closes its copies.
///
/// It has no copies of other descriptors, is in a session of its own, and is no child of this process.
#[derive(Debug)]
pub struct Keeper {
    /// The process reads the other end of this pipe.
    _end: PipeWriter,
}

impl Keeper {
    /// Starts the process. `comm` is its name, of which the kernel keeps 15 bytes.
    ///
    /// # Errors
    ///
    /// If no process can be started, or it cannot close the other descriptors (`close_range`, 5.9).
    pub fn start(kept: impl IntoIterator<Item = RawFd>, comm: &CStr) -> io::Result<Self> {
        let (reading, _end) = pipe()?;
        let end = reading.as_raw_fd();
        let wait = || {
            let mut byte = 0_u8;
            // Nothing is ever written to the pipe, so this ends when the other end is closed.
            // SAFETY: the kernel writes at most one byte.
            let _ = call("read", || unsafe { libc::read(end, (&raw mut byte).cast(), 1) });
        };
        in_background(kept.into_iter().chain([end]), comm, wait)?;
        Ok(Self { _end })
    }
}

/// Starts a process like a [`Keeper`], which ends when `run` returns. It has copies of the descriptors in `kept` under the
/// same numbers, and no others. This process may have other threads, so `run` must neither allocate nor take locks.
pub(super) fn in_background(
    kept: impl IntoIterator<Item = RawFd>,
    comm: &CStr,
    run: impl FnOnce(),
) -> io::Result<()> {
    let mut kept = kept.into_iter().collect::<Vec<_>>();
    kept.sort_unstable();
    // SAFETY: the child only makes system calls, and exits.
    let child = call("fork", || unsafe { libc::fork() })?;
    if child == 0 {
        let is_started = leave(&kept, comm, run).is_ok();
        // SAFETY: no preconditions.
        unsafe { libc::_exit(i32::from(!is_started)) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    call("waitpid", || unsafe { libc::waitpid(child, &raw mut status, 0) })?;
    match status {
        0 => Ok(()),
        _ => Err(io::Error::other("the process could not be started")),
    }
}

/// Runs in the child, and makes only system calls: it neither allocates nor takes locks. Starts a child of its own, which
/// is an orphan when this one has exited.
fn leave(kept: &[RawFd], comm: &CStr, run: impl FnOnce()) -> io::Result<()> {
    let mut next = 0;
    for &fd in kept.iter().chain([&RawFd::MAX]) {
        if next < fd {
            let (first, last) = (next as libc::c_uint, (fd - 1) as libc::c_uint);
            // SAFETY: nothing in this process uses these descriptors.
            call("close_range", || unsafe {
                libc::syscall(libc::SYS_close_range, first, last, 0)
            })?;
        }
        next = fd.saturating_add(1);
    }
    // SAFETY: no preconditions.
    call("setsid", || unsafe { libc::setsid() })?;
    // The child inherits the name, and so has it as soon as it exists.
    // SAFETY: the kernel reads the name.
    call("prctl", || unsafe { libc::prctl(libc::PR_SET_NAME, comm.as_ptr()) })?;
    // SAFETY: no preconditions.
    if call("fork", || unsafe { libc::fork() })? == 0 {
        run();
        // SAFETY: no preconditions.
        unsafe { libc::_exit(0) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::time::{Duration, Instant};

    /// Whether a pipe has been closed by all who could write to it.
    fn is_closed(from: &mut io::PipeReader) -> bool {
        rustix::io::ioctl_fionbio(&*from, true).unwrap();
        matches!(from.read(&mut [0]), Ok(0))
    }

    /// The parent of the keeper, if there is one.
    fn parent_of_keeper() -> Option<u32> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut statuses =
            processes.filter_map(|one| fs::read_to_string(one.path().join("status")).ok());
        let status = statuses.find(|status| status.starts_with("Name:\tkeeper-test\n"))?;
        status.lines().find_map(|line| line.strip_prefix("PPid:\t")?.parse().ok())
    }

    fn wait_until(mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
    }

    #[test]
    fn only_what_is_kept_stays_open_until_the_keeper_is_dropped() {
        let (mut kept, kept_in) = io::pipe().unwrap();
        let (mut other, other_in) = io::pipe().unwrap();
        let keeper = Keeper::start([kept_in.as_raw_fd()], c"keeper-test").unwrap();
        drop((kept_in, other_in));
        // Children of other tests have copies, too, until they execute or exit.
        wait_until(|| is_closed(&mut other));
        assert!(!is_closed(&mut kept));
        assert_ne!(parent_of_keeper().unwrap(), std::process::id());
        drop(keeper);
        wait_until(|| parent_of_keeper().is_none() && is_closed(&mut kept));
    }
}
