//! Programs for many functions at once (kprobe.multi, 5.18+).

use super::load::{Purpose, load_empty};
use super::{Attr, BPF_LINK_CREATE, bpf_fd};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(super) const BPF_TRACE_KPROBE_MULTI: u32 = 42;
const BPF_F_KPROBE_MULTI_RETURN: u32 = 1;

/// Functions, all of which a program is attached to at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Places<'f> {
    /// By their names.
    Names(&'f [&'f CStr]),
    /// By the addresses that they begin at.
    Addresses(&'f [u64]),
}

/// `BPF_LINK_CREATE` of a program for many functions, each with a cookie, to where they are entered or
/// where they return (5.18+).
pub(crate) fn link_kprobe_multi(
    program: BorrowedFd<'_>,
    places: Places<'_>,
    cookies: &[u64],
    returns: bool,
) -> io::Result<OwnedFd> {
    let names: Vec<_>;
    let (count, names, addresses) = match places {
        Places::Names(list) => {
            names = list.iter().map(|name| name.as_ptr()).collect::<Vec<_>>();
            (names.len(), names.as_ptr(), std::ptr::null())
        }
        Places::Addresses(list) => (list.len(), std::ptr::null(), list.as_ptr()),
    };
    if cookies.len() != count {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let attr = Attr::default()
        .fd_at(0, program)
        .u32_at(8, BPF_TRACE_KPROBE_MULTI)
        .u32_at(16, if returns { BPF_F_KPROBE_MULTI_RETURN } else { 0 })
        .u32_at(20, count as u32)
        .pointer_at(24, names)
        .pointer_at(32, addresses)
        .pointer_at(40, cookies.as_ptr());
    // SAFETY: the kernel reads `count` names, each of which is terminated, or addresses, which it checks,
    // and as many cookies.
    unsafe { bpf_fd(BPF_LINK_CREATE, &attr, 48) }
}

/// Whether the kernel has such links: it says then that it cannot read the addresses of the functions,
/// since there are none.
pub(crate) fn has_kprobe_multi() -> bool {
    let Ok(program) = load_empty(Purpose::ManyFunctions) else { return false };
    let attr = Attr::default()
        .fd_at(0, program.as_fd())
        .u32_at(8, BPF_TRACE_KPROBE_MULTI)
        .u32_at(20, 1)
        .u64_at(32, 1);
    // SAFETY: nothing can be at address 1, which the kernel finds out by itself.
    let linked = unsafe { bpf_fd(BPF_LINK_CREATE, &attr, 48) };
    matches!(linked, Err(error) if error.raw_os_error() == Some(libc::EFAULT))
}
