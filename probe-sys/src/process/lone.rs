//! Processes with no more than they need: a child of one without threads, and a program without inherited descriptors.

use crate::call;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Forks, and runs `run` in the child, which exits with its result and without running destructors. Returns the id of
/// the child.
///
/// # Errors
///
/// If this process has other threads: the child would lack them, and could wait for their locks for ever.
pub fn fork_alone(run: impl FnOnce() -> u8) -> io::Result<u32> {
    // A directory has a link for each directory in it, and two of its own. In tests, every function has a thread, and
    // glibc lets a child allocate.
    let threads = fs::metadata("/proc/self/task")?.nlink() - 2;
    if threads > 1 && !cfg!(any(test, feature = "testing")) {
        return Err(io::Error::other("the process has several threads"));
    }
    // SAFETY: there are no other threads, so the child is a complete copy.
    let child = call("fork", || unsafe { libc::fork() })?;
    if child == 0 {
        let code = run();
        // SAFETY: no preconditions.
        unsafe { libc::_exit(code.into()) };
    }
    Ok(child.cast_unsigned())
}

/// Starts a program that inherits standard input, output and error only, even of descriptors that this process inherited
/// itself. Before Linux 5.11, it inherits those.
pub fn spawn_alone(mut command: Command) -> io::Result<Child> {
    let close = || {
        // SAFETY: nothing in the child uses these descriptors when it executes its program.
        let closed = call("close_range", || unsafe {
            libc::syscall(
                libc::SYS_close_range,
                3,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC as libc::c_uint,
            )
        });
        match closed {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => {
                Err(error)
            }
            _ => Ok(()),
        }
    };
    // SAFETY: the closure runs between fork and exec and makes one system call.
    unsafe { command.pre_exec(close) };
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, WaitOptions, waitpid};
    use std::process::Stdio;

    #[test]
    fn the_child_exits_with_what_it_returns() {
        let child = fork_alone(|| 7).unwrap();
        let pid = Pid::from_raw(child.cast_signed());
        let (_, status) = waitpid(pid, WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(7));
    }

    #[test]
    fn a_program_inherits_no_descriptors() {
        let file = fs::File::open("/proc/self/comm").unwrap();
        // The copy has no flag that closes it.
        let inherited = rustix::io::dup(&file).unwrap();
        let mut ls = Command::new("ls");
        ls.args(["/proc/self/fd"]).stdout(Stdio::piped());
        let output = spawn_alone(ls).unwrap().wait_with_output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        // The last one is the directory itself.
        assert_eq!(listed.split_ascii_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
        drop(inherited);
    }
}
