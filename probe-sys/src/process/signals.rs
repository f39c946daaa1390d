//! Signals that wait until something is done.

use crate::call;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Defers the signals of the calling thread until this is dropped: they stay pending, or another thread takes them. Threads
/// and processes that are started meanwhile defer them, too.
///
/// The kernel's verifier gives up as soon as a signal is pending for its thread.
#[derive(Debug)]
pub struct DeferredSignals {
    before: libc::sigset_t,
    /// The mask is the thread's.
    of_thread: PhantomData<*const ()>,
}

impl DeferredSignals {
    /// Defers all signals that can be.
    pub fn new() -> io::Result<Self> {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the function initializes the set. It cannot fail.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: the first set is initialized; the kernel initializes the second.
        call("rt_sigprocmask", || unsafe {
            libc::sigprocmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr())
        })?;
        // SAFETY: the call has succeeded.
        Ok(Self { before: unsafe { before.assume_init() }, of_thread: PhantomData })
    }
}

impl Drop for DeferredSignals {
    fn drop(&mut self) {
        // SAFETY: the set is initialized. The call cannot fail with these arguments.
        unsafe {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::DeferredSignals;
    use rustix::process::{Signal, getpid};
    use rustix::thread::gettid;
    use std::sync::atomic::{AtomicU32, Ordering};

    static HANDLED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handle(_: libc::c_int) {
        // ORDERING: the handler runs in the thread that reads the number.
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_signal_is_handled_when_it_is_no_longer_deferred() {
        let handler = handle as extern "C" fn(libc::c_int);
        // SAFETY: the handler only adds to a number.
        unsafe { libc::signal(libc::SIGWINCH, handler as libc::sighandler_t) };
        let (pid, tid) = (getpid(), gettid());
        let raise = || {
            let (pid, tid) = (pid.as_raw_nonzero().get(), tid.as_raw_nonzero().get());
            let signal = Signal::WINCH.as_raw();
            // SAFETY: the signal has a handler.
            assert_eq!(unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) }, 0);
        };
        let handled = || HANDLED.load(Ordering::Relaxed);
        let (outer, inner) = (DeferredSignals::new().unwrap(), DeferredSignals::new().unwrap());
        raise();
        drop(inner);
        assert_eq!(handled(), 0);
        drop(outer);
        assert_eq!(handled(), 1);
        raise();
        assert_eq!(handled(), 2);
    }
}
