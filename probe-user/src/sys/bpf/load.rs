//! Loading programs.

use super::multi::BPF_TRACE_KPROBE_MULTI;
use super::{Attr, bpf_fd};
use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_BTF_LOAD: libc::c_int = 18;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_PROG_TYPE_TRACEPOINT: u32 = 5;
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_FENTRY: u32 = 24;
const BPF_TRACE_FEXIT: u32 = 25;

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

/// What a program is loaded for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose<'t> {
    /// A function, of the kernel or of a program: where it is entered, or where it returns.
    Function,
    /// A tracepoint.
    Tracepoint,
    /// A raw tracepoint.
    RawTracepoint,
    /// Functions of the kernel, many at once (5.18+).
    ManyFunctions,
    /// One function of the kernel, by a trampoline (5.5+).
    Trampoline(Trampoline<'t>),
}

/// Where a function of the kernel is entered, or where it returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trampoline<'t> {
    /// The types of the module that the function is in (5.11+), if it is in one.
    pub(crate) module: Option<BorrowedFd<'t>>,
    /// The function's number, in these types or in the kernel's own.
    pub(crate) function: u32,
    pub(crate) returns: bool,
}

impl Purpose<'_> {
    /// The type of the program, and what it will be attached to.
    const fn numbers(self) -> (u32, u32) {
        match self {
            Self::Function => (BPF_PROG_TYPE_KPROBE, 0),
            Self::Tracepoint => (BPF_PROG_TYPE_TRACEPOINT, 0),
            Self::RawTracepoint => (BPF_PROG_TYPE_RAW_TRACEPOINT, 0),
            Self::ManyFunctions => (BPF_PROG_TYPE_KPROBE, BPF_TRACE_KPROBE_MULTI),
            Self::Trampoline(Trampoline { returns: false, .. }) => {
                (BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY)
            }
            Self::Trampoline(Trampoline { returns: true, .. }) => {
                (BPF_PROG_TYPE_TRACING, BPF_TRACE_FEXIT)
            }
        }
    }
}

/// `BPF_PROG_LOAD`. What the verifier says goes to `log`, from its beginning; `ENOSPC`, if that is too
/// short.
pub(crate) fn load(code: &Code<'_>, purpose: Purpose<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    /// Each instruction, and statistics.
    const LOG_LEVEL: u32 = 1 | 4;
    let mut name = [0; 16];
    for (to, from) in name[..15].iter_mut().zip(code.name.bytes()) {
        *to = from;
    }
    let [first, last] = zerocopy::transmute!(name);
    let (program_type, attach_type) = purpose.numbers();
    let mut attr = Attr::default()
        .u32_at(0, program_type)
        .u32_at(4, code.instructions.len() as u32)
        .pointer_at(8, code.instructions.as_ptr())
        .pointer_at(16, code.license.as_ptr())
        .u64_at(48, first)
        .u64_at(56, last)
        .u32_at(68, attach_type);
    if let Purpose::Trampoline(Trampoline { module, function, .. }) = purpose {
        attr = attr.u32_at(108, function);
        if let Some(module) = module {
            attr = attr.fd_at(112, module);
        }
    }
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
    unsafe { bpf_fd(BPF_PROG_LOAD, &attr, 116) }
}

/// Loads a program that does nothing.
pub(crate) fn load_empty(purpose: Purpose<'_>) -> io::Result<OwnedFd> {
    // r0 = 0; exit
    let instructions = &[0xb7, 0x95];
    let code = Code { name: "nothing", instructions, license: c"GPL", functions: None };
    load(&code, purpose, &mut [])
}

/// `BPF_BTF_LOAD`: the types of a program.
pub(crate) fn load_btf(types: &[u8]) -> io::Result<OwnedFd> {
    let attr = Attr::default().pointer_at(0, types.as_ptr()).u32_at(16, types.len() as u32);
    // SAFETY: the kernel reads as many bytes as it is told.
    unsafe { bpf_fd(BPF_BTF_LOAD, &attr, 32) }
}
