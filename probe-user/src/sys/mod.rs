//! System calls: the only room besides [`ring::page`](crate::ring::page) that has `unsafe`.
//!
//! Each function is one call of the kernel, safe to call with any arguments, and returns its errno
//! as [`std::io::Error`]. What the errno means to a user is said one floor up. In `hardware` and
//! `prefetch`, it is one instruction of the processor instead.
#![allow(unsafe_code)]

pub(crate) mod affinity;
pub(crate) mod bpf;
pub(crate) mod clock;
#[cfg(all(test, feature = "aya"))]
pub(crate) mod disturb;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod fault;
pub(crate) mod fork;
#[cfg(feature = "perf")]
pub(crate) mod hardware;
pub(crate) mod membarrier;
pub(crate) mod memory;
pub(crate) mod perf_event;
pub(crate) mod prefetch;
#[cfg(feature = "trace")]
pub(crate) mod process;
pub(crate) mod realtime;
#[cfg(feature = "tokio")]
pub(crate) mod runtime;
pub(crate) mod slice;
pub(crate) mod timer;
pub(crate) mod uevent;
#[cfg(feature = "perf")]
pub(crate) mod user_page;

use std::io;

/// Makes a call, again while a signal interrupts it. Turns the kernel's -1 into the errno.
fn call<T: Default + PartialOrd>(name: &'static str, mut call: impl FnMut() -> T) -> io::Result<T> {
    attempt(name, || {
        let result = call();
        if result < T::default() { Err(io::Error::last_os_error()) } else { Ok(result) }
    })
}

/// The same for a call that tells of errors in another way.
fn attempt<T>(name: &'static str, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match fault::next(name).map_or_else(&mut call, Err) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
