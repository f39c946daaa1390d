//! Programs for many functions at once (kprobe.multi, 5.18+).

use super::{Attr, BPF_LINK_CREATE, bpf_fd};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_BTF_LOAD: libc::c_int = 18;
const BPF_TRACE_KPROBE_MULTI: u32 = 42;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_F_KPROBE_MULTI_RETURN: u32 = 1;

/// A program, before it is loaded.
#[derive(Debug)]
pub(crate) struct Code<'p> {
    /// The kernel keeps 15 bytes of it.
    pub(crate) name: &'p str,
    /// `struct bpf_insn`s.
    pub(crate) instructions: &'p [u64],
    pub(crate) license: &'p CStr,
    /// What it knows of its functions, if it has more than one.
    pub(crate) functions: Option<Functions<'p>>,
}

/// Which functions a program has, and of what types.
#[derive(Debug)]
pub(crate) struct Functions<'p> {
    pub(crate) types: BorrowedFd<'p>,
    /// `struct bpf_func_info`s.
    pub(crate) infos: &'p [u8],
    /// Bytes of each of them.
    pub(crate) info_len: usize,
}

/// `BPF_PROG_LOAD` of a program for many functions. What the verifier says goes to `log`, from its
/// beginning; `ENOSPC`, if that is too short.
pub(crate) fn load_kprobe_multi(code: &Code<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    /// Each instruction, and statistics.
    const LOG_LEVEL: u32 = 1 | 4;
    let mut name = [0; 16];
    for (to, from) in name[..15].iter_mut().zip(code.name.bytes()) {
        *to = from;
    }
    let [first, last] = zerocopy::transmute!(name);
    let mut attr = Attr::default()
        .u32_at(0, BPF_PROG_TYPE_KPROBE)
        .u32_at(4, code.instructions.len() as u32)
        .pointer_at(8, code.instructions.as_ptr())
        .pointer_at(16, code.license.as_ptr())
        .u64_at(48, first)
        .u64_at(56, last)
        .u32_at(68, BPF_TRACE_KPROBE_MULTI);
    if !log.is_empty() {
        attr = attr
            .u32_at(24, LOG_LEVEL)
            .u32_at(28, log.len() as u32)
            .pointer_at(32, log.as_mut_ptr());
    }
    if let Some(functions) = &code.functions {
        let count = functions.infos.len() / functions.info_len.max(1);
        attr = attr
            .fd_at(72, functions.types)
            .u32_at(76, functions.info_len as u32)
            .pointer_at(80, functions.infos.as_ptr())
            .u32_at(88, count as u32);
    }
    // SAFETY: the kernel reads the instructions, the infos, of which there are as many bytes as it is
    // told, and the licence, which is terminated; the log is writable for the length given.
    unsafe { bpf_fd(BPF_PROG_LOAD, &attr, 112) }
}

/// The same of a program that does nothing.
pub(crate) fn load_empty_kprobe_multi() -> io::Result<OwnedFd> {
    // r0 = 0; exit
    let instructions = &[0xb7, 0x95];
    let code = Code { name: "nothing", instructions, license: c"GPL", functions: None };
    load_kprobe_multi(&code, &mut [])
}

/// `BPF_BTF_LOAD`: the types of a program.
pub(crate) fn load_btf(types: &[u8]) -> io::Result<OwnedFd> {
    let attr = Attr::default().pointer_at(0, types.as_ptr()).u32_at(16, types.len() as u32);
    // SAFETY: the kernel reads as many bytes as it is told.
    unsafe { bpf_fd(BPF_BTF_LOAD, &attr, 32) }
}

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
    program: &OwnedFd,
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
        .fd_at(0, program.as_fd())
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
    let Ok(program) = load_empty_kprobe_multi() else { return false };
    let attr = Attr::default()
        .fd_at(0, program.as_fd())
        .u32_at(8, BPF_TRACE_KPROBE_MULTI)
        .u32_at(20, 1)
        .u64_at(32, 1);
    // SAFETY: nothing can be at address 1, which the kernel finds out by itself.
    let linked = unsafe { bpf_fd(BPF_LINK_CREATE, &attr, 48) };
    matches!(linked, Err(error) if error.raw_os_error() == Some(libc::EFAULT))
}
