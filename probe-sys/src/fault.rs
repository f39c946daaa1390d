//! Making system calls fail in tests: the nth call of a thread, or the nth of one kind, with a chosen errno.
//!
//! All calls of this crate pass through here, except those that cannot fail (`clock_gettime`) and those that release
//! something (`munmap`, `close`).

use std::io;

/// The injected error of the call that is about to be made, if any.
#[cfg(not(any(test, feature = "testing")))]
#[inline(always)]
pub(crate) fn next(_: &'static str) -> Option<io::Error> {
    None
}

#[cfg(any(test, feature = "testing"))]
pub(crate) use injected::next;
#[cfg(any(test, feature = "testing"))]
pub use injected::{Fault, calls, fail, refuse};

#[cfg(any(test, feature = "testing"))]
mod injected {
    use super::io;
    use std::cell::{Cell, RefCell};

    /// Which call fails, and how.
    #[derive(Clone, Copy, Debug)]
    pub struct Fault {
        /// Its name. `None`: any call.
        pub call: Option<&'static str>,
        /// How many such calls succeed before it.
        pub after: usize,
        /// The error.
        pub errno: i32,
    }

    thread_local! {
        static REFUSED: Cell<Option<(&'static str, i32)>> = const { Cell::new(None) };
        static PLANNED: Cell<Option<Fault>> = const { Cell::new(None) };
        static MET: Cell<Option<&'static str>> = const { Cell::new(None) };
        static CALLS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    }

    /// Makes one call of this thread fail while `run` runs. Returns the name of the call, or `None` if `run` made too
    /// few.
    pub fn fail<T>(fault: Fault, run: impl FnOnce() -> T) -> (T, Option<&'static str>) {
        struct End;
        impl Drop for End {
            fn drop(&mut self) {
                PLANNED.set(None);
            }
        }
        let _end = End;
        MET.set(None);
        CALLS.take();
        PLANNED.set(Some(fault));
        (run(), MET.get())
    }

    /// Makes all calls of one name fail in this thread while `run` runs.
    pub fn refuse<T>(call: &'static str, errno: i32, run: impl FnOnce() -> T) -> T {
        struct End;
        impl Drop for End {
            fn drop(&mut self) {
                REFUSED.set(None);
            }
        }
        let _end = End;
        REFUSED.set(Some((call, errno)));
        run()
    }

    /// The names of the calls in the last [`fail`], up to the one that failed.
    pub fn calls() -> Vec<&'static str> {
        CALLS.take()
    }

    pub fn next(name: &'static str) -> Option<io::Error> {
        if let Some((_, errno)) = REFUSED.get().filter(|(call, _)| *call == name) {
            return Some(io::Error::from_raw_os_error(errno));
        }
        let Fault { call, after, errno } = PLANNED.get()?;
        CALLS.with_borrow_mut(|calls| calls.push(name));
        if call.is_some_and(|call| call != name) {
            return None;
        }
        if after > 0 {
            PLANNED.set(Some(Fault { call, after: after - 1, errno }));
            return None;
        }
        PLANNED.set(None);
        MET.set(Some(name));
        Some(io::Error::from_raw_os_error(errno))
    }
}
