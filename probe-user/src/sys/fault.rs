//! System calls that fail on purpose, in tests: the nth one of a thread, with a chosen errno.
//!
//! Every call of this room passes here, but for those that cannot fail (`clock_gettime`, `sysconf`)
//! and those that give something back (`munmap`, `close`).

use std::io;

/// The error of the call that is about to be made, if it is to fail.
#[cfg(not(test))]
#[inline(always)]
pub(super) fn next(_: &'static str) -> Option<io::Error> {
    None
}

#[cfg(test)]
pub(super) use injected::next;
#[cfg(test)]
pub(crate) use injected::{Fault, fail};

#[cfg(test)]
mod injected {
    use super::io;
    use std::cell::Cell;

    /// Which call fails, and how.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Fault {
        /// How many calls are made before it.
        pub(crate) after: usize,
        pub(crate) errno: i32,
    }

    thread_local! {
        static PLANNED: Cell<Option<Fault>> = const { Cell::new(None) };
        static MET: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Has one call of this thread fail while `run` runs. Gives the name of the call, or `None` if
    /// there were not so many.
    pub(crate) fn fail<T>(fault: Fault, run: impl FnOnce() -> T) -> (T, Option<&'static str>) {
        struct End;
        impl Drop for End {
            fn drop(&mut self) {
                PLANNED.set(None);
            }
        }
        let _end = End;
        MET.set(None);
        PLANNED.set(Some(fault));
        (run(), MET.get())
    }

    pub(crate) fn next(name: &'static str) -> Option<io::Error> {
        let Fault { after, errno } = PLANNED.get()?;
        if after > 0 {
            PLANNED.set(Some(Fault { after: after - 1, errno }));
            return None;
        }
        PLANNED.set(None);
        MET.set(Some(name));
        Some(io::Error::from_raw_os_error(errno))
    }
}
