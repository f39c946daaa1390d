//! A child of this process that is forked, and not executed.

use rustix::process::{Pid, WaitOptions, waitpid};

/// Forks, and gives whether `run` returns `true` in the child, which ends without running destructors.
pub fn in_child(run: impl FnOnce() -> bool) -> bool {
    // SAFETY: glibc lets the child of a process with threads allocate, and it does little more.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = i32::from(!run());
        // SAFETY: no preconditions.
        unsafe { libc::_exit(code) };
    }
    let child = Pid::from_raw(child).expect("this process can fork");
    let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
    status.exit_status() == Some(0)
}
