//! System calls, mapped perf rings, CPU sets and hotplug notifications, below the perf event pipe.
//!
//! Each function makes one system call, is safe to call with any arguments, and returns the errno as
//! [`std::io::Error`]. The crates above explain to users what an errno means; [`hint`] has the sentences that they
//! share. [`hardware`] and [`prefetch`] execute one instruction of the processor instead.
//!
//! All `unsafe` code of the libraries in user space is in this crate. It serves `probe-user`, `probe-perf` and the
//! tracer, and changes with them.

#![deny(missing_docs)]

pub mod bpf;
pub mod control_page;
mod cpu;
pub mod escape;
pub mod fault;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod hint;
pub mod memory;
pub mod perf_event;
pub mod process;
pub mod ring;
mod sched;
#[cfg(any(test, fuzzing, feature = "testing"))]
mod testing;
mod wait;

pub use cpu::{affinity, cpus, hardware, hotplug, prefetch};
pub use sched::{realtime, slice};
#[cfg(any(test, feature = "testing"))]
pub use testing::disturb;
#[cfg(any(test, fuzzing, feature = "testing"))]
#[doc(hidden)]
pub use testing::input;
#[cfg(feature = "tokio")]
pub use wait::runtime;
pub use wait::{clock, epoll, eventfd, membarrier, timer};

use std::io;

/// Makes a system call through libc, and makes it again when a signal interrupts it. Turns a result of -1 into the
/// errno.
fn call<T: Default + PartialOrd>(name: &'static str, mut call: impl FnMut() -> T) -> io::Result<T> {
    attempt(name, || {
        let result = call();
        if result < T::default() { Err(io::Error::last_os_error()) } else { Ok(result) }
    })
}

/// Makes a call that returns its error, and makes it again when a signal interrupts it.
fn attempt<T, E: Into<io::Error>>(
    name: &'static str,
    mut call: impl FnMut() -> Result<T, E>,
) -> io::Result<T> {
    loop {
        let result = match fault::next(name) {
            Some(error) => Err(error),
            None => call().map_err(Into::into),
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
