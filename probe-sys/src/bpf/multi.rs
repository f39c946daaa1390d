//! Attaching a program to many functions at once (kprobe.multi, 5.18+).

use super::load::{Purpose, load_empty};
use super::{Attr, BPF_LINK_CREATE, bpf_fd};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(crate) const BPF_TRACE_KPROBE_MULTI: u32 = 42;
const BPF_F_KPROBE_MULTI_RETURN: u32 = 1;

/// The functions that a program is attached to.
#[derive(Clone, Copy, Debug)]
pub enum FunctionList<'f> {
    /// Their names.
    Names(&'f [&'f CStr]),
    /// Their start addresses.
    Addresses(&'f [u64]),
}

/// `BPF_LINK_CREATE`: attaches a program to the entries or the returns of many functions, each with a cookie (5.18+).
pub fn link_kprobe_multi(
    program: BorrowedFd<'_>,
    functions: FunctionList<'_>,
    cookies: &[u64],
    returns: bool,
) -> io::Result<OwnedFd> {
    let names: Vec<_>;
    let (count, names, addresses) = match functions {
        FunctionList::Names(list) => {
            names = list.iter().map(|name| name.as_ptr()).collect::<Vec<_>>();
            (names.len(), names.as_ptr(), std::ptr::null())
        }
        FunctionList::Addresses(list) => (list.len(), std::ptr::null(), list.as_ptr()),
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
    // SAFETY: the kernel reads `count` names, each of which is terminated, or `count` addresses, which it checks, and
    // `count` cookies.
    unsafe { bpf_fd(BPF_LINK_CREATE, &attr, 48) }
}

/// Whether the kernel supports such links. If it does, it fails to read the functions' addresses, which are given at an
/// address where nothing is mapped.
pub fn has_kprobe_multi() -> bool {
    let Ok(program) = load_empty(Purpose::ManyFunctions) else { return false };
    let attr = Attr::default()
        .fd_at(0, program.as_fd())
        .u32_at(8, BPF_TRACE_KPROBE_MULTI)
        .u32_at(20, 1)
        .u64_at(32, 1);
    // SAFETY: nothing is mapped at address 1, and the kernel checks that.
    let linked = unsafe { bpf_fd(BPF_LINK_CREATE, &attr, 48) };
    matches!(linked, Err(error) if error.raw_os_error() == Some(libc::EFAULT))
}
