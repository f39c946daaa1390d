//! Attaching programs, and counting the hits that the kernel did not pass on to them.

use super::{Attr, BPF_LINK_CREATE, bpf_fd, object_info};
use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BPF_PERF_EVENT: u32 = 41;

/// `BPF_LINK_CREATE`: attaches a program to a perf event, with a cookie (5.15+).
pub fn link_perf_event(
    program: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    cookie: u64,
) -> io::Result<OwnedFd> {
    let attr = Attr::default()
        .fd_at(0, program)
        .fd_at(4, event)
        .u32_at(8, BPF_PERF_EVENT)
        .u64_at(16, cookie);
    // SAFETY: no pointers.
    unsafe { bpf_fd(BPF_LINK_CREATE, &attr, 24) }
}

/// The beginning of `struct bpf_link_info`, as of 6.7.
#[repr(C)]
#[derive(Default)]
struct Info {
    link_type: u32,
    id: u32,
    program: u32,
    _padding: u32,
    /// The union of what links of each type report. A kprobe's perf event begins with its type (`u32`).
    of_type: [u64; 5],
}

/// Whether the kernel counts the hits of kprobes and tracepoints that it does not pass on because another program runs
/// on the CPU: as [`recursion_misses`] of each program that would have run (6.7+). `link` is any link of a program.
pub fn counts_skipped_hits(link: BorrowedFd<'_>) -> io::Result<bool> {
    // The count of a program is older, and stayed 0. That of a link came with the counting of these hits.
    Ok(link_info(link)?.is_some())
}

/// How many hits of a link's functions the kernel has not passed on: `bpf_link_info::perf_event.kprobe.missed` and
/// `bpf_link_info::kprobe_multi.missed` (6.7+). `None` if the kernel does not report it, or the link is not one of
/// kprobes or kretprobes.
pub fn functions_missed(link: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    const BPF_LINK_TYPE_PERF_EVENT: u32 = 7;
    const BPF_LINK_TYPE_KPROBE_MULTI: u32 = 8;
    const BPF_PERF_EVENT_KPROBE: u32 = 3;
    const BPF_PERF_EVENT_KRETPROBE: u32 = 4;
    let Some(Info { link_type, of_type, .. }) = link_info(link)? else { return Ok(None) };
    let [a, b, c, d, ..] = of_type[0].to_ne_bytes();
    Ok(match (link_type, u32::from_ne_bytes([a, b, c, d])) {
        (BPF_LINK_TYPE_PERF_EVENT, BPF_PERF_EVENT_KPROBE | BPF_PERF_EVENT_KRETPROBE) => {
            Some(of_type[4])
        }
        (BPF_LINK_TYPE_KPROBE_MULTI, _) => Some(of_type[2]),
        _ => None,
    })
}

/// `None` before 6.7.
fn link_info(link: BorrowedFd<'_>) -> io::Result<Option<Info>> {
    let mut info = Info::default();
    // SAFETY: the fields are numbers, and the addresses of names and functions are null.
    let reported = unsafe { object_info(link, &mut info) }?;
    Ok((reported >= size_of::<Info>()).then_some(info))
}

/// `BPF_RAW_TRACEPOINT_OPEN`.
pub fn open_raw_tracepoint(name: &CStr, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attr = Attr::default().pointer_at(0, name.as_ptr()).fd_at(8, program);
    // SAFETY: the name is terminated, and the kernel reads it.
    unsafe { bpf_fd(BPF_RAW_TRACEPOINT_OPEN, &attr, 16) }
}

/// `BPF_RAW_TRACEPOINT_OPEN` for a program that was loaded for a trampoline (5.5+).
pub fn open_trampoline(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attr = Attr::default().fd_at(8, program);
    // SAFETY: there is no name.
    unsafe { bpf_fd(BPF_RAW_TRACEPOINT_OPEN, &attr, 16) }
}

/// How often the kernel did not run a program because it was already running on the same CPU:
/// `bpf_prog_info::recursion_misses` (5.12+). `None` if the kernel does not report it.
pub fn recursion_misses(program: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    const RECURSION_MISSES: usize = 208 / 8;
    let mut info = [0u64; RECURSION_MISSES + 1];
    // SAFETY: the words are numbers, and all pointers among them are null.
    let reported = unsafe { object_info(program, &mut info) }?;
    Ok((reported >= size_of_val(&info)).then_some(info[RECURSION_MISSES]))
}
