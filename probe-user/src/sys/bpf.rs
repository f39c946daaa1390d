//! `bpf(2)`: `include/uapi/linux/bpf.h`.

use super::call;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;

/// `BPF_MAP_TYPE_PERF_EVENT_ARRAY`.
pub(crate) const MAP_TYPE_PERF_EVENT_ARRAY: u32 = 4;
/// `BPF_MAP_TYPE_PERCPU_ARRAY`.
pub(crate) const MAP_TYPE_PERCPU_ARRAY: u32 = 6;

/// The kernel's `union bpf_attr`, of which every command reads a prefix. Longer than any command
/// that is used here needs, and zero where nothing was set.
#[repr(C, align(8))]
#[derive(Default)]
struct Attr {
    words: [u64; 16],
}

impl Attr {
    fn u32_at(mut self, byte: usize, value: u32) -> Self {
        let shift = (byte % 8) * 8;
        self.words[byte / 8] |= u64::from(value) << shift;
        self
    }

    fn u32_from(&self, byte: usize) -> u32 {
        (self.words[byte / 8] >> ((byte % 8) * 8)) as u32
    }

    fn fd_at(self, byte: usize, fd: BorrowedFd<'_>) -> Self {
        // An open descriptor is not negative.
        self.u32_at(byte, fd.as_raw_fd() as u32)
    }

    fn u64_at(mut self, byte: usize, value: u64) -> Self {
        self.words[byte / 8] = value;
        self
    }

    fn pointer_at<T>(self, byte: usize, value: *const T) -> Self {
        self.u64_at(byte, value.expose_provenance() as u64)
    }
}

/// # Safety
///
/// Every pointer in `attr` must be good for what the command does with it.
unsafe fn bpf(command: libc::c_int, attr: &Attr, used: usize) -> io::Result<libc::c_long> {
    // SAFETY: `used` is at most the size of `attr`; the rest is the caller's promise.
    call("bpf", || unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attr, used) })
}

/// The same for a command that writes into `attr`.
///
/// # Safety
///
/// As [`bpf`].
unsafe fn bpf_mut(command: libc::c_int, attr: &mut Attr, used: usize) -> io::Result<()> {
    // SAFETY: as in bpf().
    call("bpf", || unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, used) }).map(drop)
}

/// # Safety
///
/// As [`bpf`], for a command that returns a new descriptor.
unsafe fn bpf_fd(command: libc::c_int, attr: &Attr, used: usize) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attr, used) }?;
    // SAFETY: the kernel has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// What the kernel says about a map.
#[derive(Clone, Debug)]
pub(crate) struct MapInfo {
    pub(crate) map_type: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) name: String,
}

/// `BPF_OBJ_GET_INFO_BY_FD` of a map: the head of `struct bpf_map_info`.
pub(crate) fn map_info(map: BorrowedFd<'_>) -> io::Result<MapInfo> {
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        map_type: u32,
        id: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        name: [u8; 16],
    }
    let mut info = Info::default();
    let attr = Attr::default()
        .fd_at(0, map)
        .u32_at(4, size_of::<Info>() as u32)
        .pointer_at(8, &raw mut info);
    // SAFETY: `info` is writable for the length given.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &attr, 16) }?;
    let name = info.name.split(|&b| b == 0).next().unwrap_or_default();
    Ok(MapInfo {
        map_type: info.map_type,
        key_size: info.key_size,
        value_size: info.value_size,
        max_entries: info.max_entries,
        name: String::from_utf8_lossy(name).into_owned(),
    })
}

/// `BPF_MAP_UPDATE_ELEM` of a map whose keys are `u32` and whose values are descriptors.
pub(crate) fn map_set_fd(map: BorrowedFd<'_>, key: u32, value: BorrowedFd<'_>) -> io::Result<()> {
    let value = value.as_raw_fd();
    let attr = Attr::default()
        .fd_at(0, map)
        .pointer_at(8, &raw const key)
        .pointer_at(16, &raw const value);
    // SAFETY: a perf event array has keys and values of 4 bytes; the kernel reads both.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attr, 32) }.map(drop)
}

/// `BPF_MAP_DELETE_ELEM` of a map whose keys are `u32`.
pub(crate) fn map_delete(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    let attr = Attr::default().fd_at(0, map).pointer_at(8, &raw const key);
    // SAFETY: the kernel reads a key of 4 bytes.
    unsafe { bpf(BPF_MAP_DELETE_ELEM, &attr, 16) }.map(drop)
}

/// `BPF_MAP_LOOKUP_ELEM` of a map whose keys are `u32`, into `value`: for a per-CPU map, one value
/// for each possible CPU, each padded to 8 bytes. The caller has checked that `value` is as long as
/// the kernel will write.
pub(crate) fn map_lookup(map: &MapFd, key: u32, value: &mut [u64]) -> io::Result<()> {
    assert!(size_of_val(value) >= map.lookup_len, "the kernel writes more than there is room for");
    let attr = Attr::default()
        .fd_at(0, map.as_fd())
        .pointer_at(8, &raw const key)
        .pointer_at(16, value.as_mut_ptr());
    // SAFETY: the key is 4 bytes, which MapFd has checked, and the value is as long as it has to be.
    unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &attr, 32) }.map(drop)
}

/// A per-CPU array, and how many bytes the kernel writes when one of its keys is looked up.
#[derive(Debug)]
pub(crate) struct MapFd {
    fd: OwnedFd,
    lookup_len: usize,
}

impl MapFd {
    /// `None` if the map is not a per-CPU array.
    pub(crate) fn per_cpu_array(fd: OwnedFd, possible_cpus: usize) -> io::Result<Option<Self>> {
        let info = map_info(fd.as_fd())?;
        if info.map_type != MAP_TYPE_PERCPU_ARRAY || info.key_size != 4 {
            return Ok(None);
        }
        let lookup_len = (info.value_size as usize).next_multiple_of(8) * possible_cpus;
        Ok(Some(Self { fd, lookup_len }))
    }
}

impl AsFd for MapFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `BPF_PROG_TEST_RUN` of a raw tracepoint program without arguments, on `cpu` (5.10+). Gives what
/// the program returned.
pub(crate) fn run_on(program: BorrowedFd<'_>, cpu: u32) -> io::Result<u32> {
    const BPF_F_TEST_RUN_ON_CPU: u32 = 1;
    let mut attr =
        Attr::default().fd_at(0, program).u32_at(64, BPF_F_TEST_RUN_ON_CPU).u32_at(68, cpu);
    // SAFETY: no pointers.
    unsafe { bpf_mut(BPF_PROG_TEST_RUN, &mut attr, 72) }?;
    Ok(attr.u32_from(4))
}

/// `BPF_OBJ_GET`: opens what is pinned at `path`.
pub(crate) fn open_pinned(path: &std::ffi::CStr) -> io::Result<OwnedFd> {
    let attr = Attr::default().pointer_at(0, path.as_ptr());
    // SAFETY: the path is terminated, and the kernel reads it.
    unsafe { bpf_fd(BPF_OBJ_GET, &attr, 16) }
}

#[cfg(feature = "trace")]
mod attach {
    use super::{Attr, bpf_fd};
    use std::ffi::CStr;
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    const BPF_PROG_LOAD: libc::c_int = 5;
    const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
    const BPF_LINK_CREATE: libc::c_int = 28;
    const BPF_PERF_EVENT: u32 = 41;
    const BPF_TRACE_KPROBE_MULTI: u32 = 42;
    const BPF_PROG_TYPE_KPROBE: u32 = 2;

    /// `BPF_LINK_CREATE` of a program to a perf event, with a cookie (5.15+).
    pub(crate) fn link_perf_event(
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

    /// `BPF_PROG_LOAD` of a program for many functions that does nothing.
    pub(crate) fn load_empty_kprobe_multi() -> io::Result<OwnedFd> {
        // r0 = 0; exit
        let instructions: [u64; 2] = [0xb7, 0x95];
        let attr = Attr::default()
            .u32_at(0, BPF_PROG_TYPE_KPROBE)
            .u32_at(4, instructions.len() as u32)
            .pointer_at(8, instructions.as_ptr())
            .pointer_at(16, c"GPL".as_ptr())
            .u32_at(68, BPF_TRACE_KPROBE_MULTI);
        // SAFETY: the kernel reads the instructions and the licence, which is terminated.
        unsafe { bpf_fd(BPF_PROG_LOAD, &attr, 72) }
    }

    /// `BPF_LINK_CREATE` of such a program to one function (5.18+).
    pub(crate) fn link_kprobe_multi(program: &OwnedFd, function: &CStr) -> io::Result<OwnedFd> {
        let functions = [function.as_ptr()];
        let attr = Attr::default()
            .fd_at(0, program.as_fd())
            .u32_at(8, BPF_TRACE_KPROBE_MULTI)
            .u32_at(20, functions.len() as u32)
            .pointer_at(24, functions.as_ptr());
        // SAFETY: the kernel reads an array of one name, which is terminated.
        unsafe { bpf_fd(BPF_LINK_CREATE, &attr, 48) }
    }

    /// `BPF_RAW_TRACEPOINT_OPEN`.
    pub(crate) fn open_raw_tracepoint(name: &CStr, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let attr = Attr::default().pointer_at(0, name.as_ptr()).fd_at(8, program);
        // SAFETY: the name is terminated, and the kernel reads it.
        unsafe { bpf_fd(BPF_RAW_TRACEPOINT_OPEN, &attr, 16) }
    }
}
#[cfg(feature = "trace")]
pub(crate) use attach::{
    link_kprobe_multi, link_perf_event, load_empty_kprobe_multi, open_raw_tracepoint,
};
