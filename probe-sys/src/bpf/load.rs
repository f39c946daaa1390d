//! Loading programs.

use super::multi::BPF_TRACE_KPROBE_MULTI;
use super::{Attr, bpf_fd};
use crate::process::DeferredSignals;
use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_BTF_LOAD: libc::c_int = 18;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_PROG_TYPE_TRACEPOINT: u32 = 5;
const BPF_PROG_TYPE_PERF_EVENT: u32 = 7;
pub(super) const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_FENTRY: u32 = 24;
const BPF_TRACE_FEXIT: u32 = 25;

/// A program to load.
#[derive(Debug)]
pub struct Code<'p> {
    /// Its name, of which the kernel keeps 15 bytes.
    pub name: &'p str,
    /// `struct bpf_insn`s.
    pub instructions: &'p [u64],
    /// The licence, which decides which helpers the program may call.
    pub license: &'p CStr,
    /// Its functions, if it has more than one.
    pub functions: Option<Functions<'p>>,
}

/// The functions of a program and their types.
#[derive(Debug)]
pub struct Functions<'p> {
    /// The BTF that describes the program.
    pub types: BorrowedFd<'p>,
    /// `struct bpf_func_info`s.
    pub infos: &'p [u8],
    /// The bytes of one `struct bpf_func_info`.
    pub info_len: usize,
}

/// What a program is loaded for.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'t> {
    /// The entry or the return of a function, in the kernel or in user space.
    Function,
    /// A tracepoint.
    Tracepoint,
    /// A perf event that is neither a function nor a tracepoint.
    PerfEvent,
    /// A raw tracepoint.
    RawTracepoint,
    /// Many functions of the kernel at once (5.18+).
    ManyFunctions,
    /// One function of the kernel, by a trampoline (5.5+).
    Trampoline(Trampoline<'t>),
}

/// The entry or the return of a function of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Trampoline<'t> {
    /// The BTF of the function's module (5.11+); `None` for the kernel itself.
    pub module: Option<BorrowedFd<'t>>,
    /// The function's type id in that BTF.
    pub function: u32,
    /// Whether the program runs on return.
    pub returns: bool,
}

impl Purpose<'_> {
    /// The program type and the attach type.
    const fn numbers(self) -> (u32, u32) {
        match self {
            Self::Function => (BPF_PROG_TYPE_KPROBE, 0),
            Self::Tracepoint => (BPF_PROG_TYPE_TRACEPOINT, 0),
            Self::PerfEvent => (BPF_PROG_TYPE_PERF_EVENT, 0),
            Self::RawTracepoint => (BPF_PROG_TYPE_RAW_TRACEPOINT, 0),
            Self::ManyFunctions => (BPF_PROG_TYPE_KPROBE, BPF_TRACE_KPROBE_MULTI),
            Self::Trampoline(Trampoline { returns, .. }) => {
                (BPF_PROG_TYPE_TRACING, if returns { BPF_TRACE_FEXIT } else { BPF_TRACE_FENTRY })
            }
        }
    }
}

/// How often a program is loaded again after `EAGAIN`.
const ATTEMPTS: u32 = 100;

/// `BPF_PROG_LOAD`. The verifier writes its log into `log`; the call fails with `ENOSPC` if that is too short. Signals wait
/// until the program is loaded.
pub fn load(code: &Code<'_>, purpose: Purpose<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    /// Every instruction, and statistics.
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
    // The verifier gives up with EAGAIN while a signal is pending. A stop (Ctrl-Z) is pending even if signals are
    // blocked, but only until the call returns.
    let _deferred = DeferredSignals::new()?;
    let mut attempts = 1..ATTEMPTS;
    loop {
        // SAFETY: the kernel reads the instructions and the infos, which have the lengths given, and the licence, which
        // is terminated; the log is writable for the length given.
        match unsafe { bpf_fd(BPF_PROG_LOAD, &attr, 116) } {
            Err(error) if is_interrupted(&error) && attempts.next().is_some() => {}
            result => return result,
        }
    }
}

fn is_interrupted(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAGAIN)
}

/// Loads a program that does nothing.
pub fn load_empty(purpose: Purpose<'_>) -> io::Result<OwnedFd> {
    // r0 = 0; exit
    let instructions = &[0xb7, 0x95];
    let code = Code { name: "nothing", instructions, license: c"GPL", functions: None };
    load(&code, purpose, &mut [])
}

/// `BPF_BTF_LOAD`: loads the BTF of a program.
pub fn load_btf(types: &[u8]) -> io::Result<OwnedFd> {
    let attr = Attr::default().pointer_at(0, types.as_ptr()).u32_at(16, types.len() as u32);
    // SAFETY: the kernel reads `types.len()` bytes.
    unsafe { bpf_fd(BPF_BTF_LOAD, &attr, 32) }
}
