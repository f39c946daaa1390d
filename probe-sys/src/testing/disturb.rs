//! Disturbances for tests: signals all the time, forks, and a clock that is set.

use crate::{attempt, call, clock};
use rustix::time::{ClockId, clock_gettime, clock_settime};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::abort;
use std::sync::atomic::Ordering;

/// Interrupts the system calls of the thread that created it, a thousand times per second.
pub struct Interruptions {
    timer: libc::timer_t,
}

extern "C" fn ignore(_: libc::c_int) {}

impl Interruptions {
    /// Interrupts this thread until the value is dropped.
    pub fn start() -> io::Result<Self> {
        // SAFETY: all zero is a valid action, without SA_RESTART.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int) = ignore;
        action.sa_sigaction = handler as libc::sighandler_t;
        // SAFETY: the handler does nothing, and the kernel reads the action.
        call("sigaction", || unsafe {
            libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut())
        })?;
        // SAFETY: all zero is a valid event.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGALRM;
        // SAFETY: no preconditions.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer = std::ptr::null_mut();
        // SAFETY: the kernel reads the event and writes the timer.
        call("timer_create", || unsafe {
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer)
        })?;
        let this = Self { timer };
        let millisecond = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let setting = libc::itimerspec { it_interval: millisecond, it_value: millisecond };
        // SAFETY: the kernel reads the setting.
        call("timer_settime", || unsafe {
            libc::timer_settime(timer, 0, &raw const setting, std::ptr::null_mut())
        })?;
        Ok(this)
    }
}

impl Drop for Interruptions {
    fn drop(&mut self) {
        // SAFETY: the timer is ours, and deleted once.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// Whether `tgkill(2)` permits sending signals to a process.
pub fn can_signal(pid: u32) -> bool {
    // SAFETY: the signal 0 is none, so nothing is sent.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, 0) == 0 }
}

/// Forks, runs `run` in the child, and returns its result; -1 if it panics. The child exits without running destructors.
pub fn in_child(run: impl FnOnce() -> u8) -> io::Result<i32> {
    // SAFETY: glibc lets the child of a process with threads allocate, and it does little more.
    let child = call("fork", || unsafe { libc::fork() })?;
    if child == 0 {
        // This thread is a copy of one whose panics are caught, and the child would exit with 0.
        let Ok(code) = catch_unwind(AssertUnwindSafe(run)) else { abort() };
        // SAFETY: no preconditions.
        unsafe { libc::_exit(code.into()) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    call("waitpid", || unsafe { libc::waitpid(child, &raw mut status, 0) })?;
    Ok(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 })
}

/// Sets the clock to the time that it has.
pub fn set_clock() -> io::Result<()> {
    let set = || clock_settime(ClockId::Realtime, clock_gettime(ClockId::Realtime));
    attempt("clock_settime", set)
}

/// Lets it look to this process as if the machine had been suspended for a second.
pub fn pretend_suspension() -> io::Result<()> {
    // ORDERING: a watch reads this only after the system call below has woken it.
    clock::PRETENDED.fetch_add(1_000_000_000, Ordering::Relaxed);
    set_clock()
}
