//! System calls: the only room besides [`ring::page`](crate::ring::page) that has `unsafe`.
//!
//! Each function is one call of the kernel, safe to call with any arguments, and returns its errno
//! as [`std::io::Error`]. What the errno means to a user is said one floor up.
#![allow(unsafe_code)]

pub(crate) mod bpf;
pub(crate) mod clock;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod memory;
pub(crate) mod perf_event;
#[cfg(feature = "trace")]
pub(crate) mod process;
#[cfg(feature = "tokio")]
pub(crate) mod runtime;
pub(crate) mod timer;
pub(crate) mod uevent;

use std::io;

/// Turns the kernel's -1 into the errno.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for calls that return a `long`.
fn check_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Calls again while a signal interrupts.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
