//! `bpf(2)`: `include/uapi/linux/bpf.h`.

#[cfg(feature = "trace")]
pub(crate) mod btf;
#[cfg(feature = "trace")]
pub(crate) mod load;
#[cfg(feature = "trace")]
pub(crate) mod multi;

use super::call;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
#[cfg(feature = "trace")]
const BPF_LINK_CREATE: libc::c_int = 28;

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

/// `BPF_OBJ_GET_INFO_BY_FD`: fills in what the kernel says about an object, as far as it knows it, and tells
/// how many bytes that are.
///
/// # Safety
///
/// `T` is valid whatever bytes it holds, and every pointer in it is good for what the kernel writes there.
unsafe fn object_info<T>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<usize> {
    let mut attr = Attr::default()
        .fd_at(0, object)
        .u32_at(4, size_of::<T>() as u32)
        .pointer_at(8, &raw mut *info);
    // SAFETY: `info` is writable for the length given; the rest is the caller's promise.
    unsafe { bpf_mut(BPF_OBJ_GET_INFO_BY_FD, &mut attr, 16) }?;
    Ok(attr.u32_from(4) as usize)
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

/// The head of `struct bpf_map_info`.
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
    // SAFETY: it is numbers and bytes.
    unsafe { object_info(map, &mut info) }?;
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

/// `BPF_MAP_UPDATE_ELEM` of a value of an array, which has as many bytes.
#[cfg(feature = "trace")]
pub(crate) fn map_set_bytes(map: BorrowedFd<'_>, key: u32, value: &[u8]) -> io::Result<()> {
    let info = map_info(map)?;
    if info.value_size as usize != value.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let attr =
        Attr::default().fd_at(0, map).pointer_at(8, &raw const key).pointer_at(16, value.as_ptr());
    // SAFETY: an array has keys of 4 bytes; the kernel reads one, and as many bytes as there are.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attr, 32) }.map(drop)
}

/// `BPF_MAP_FREEZE`: no process writes into it any more (5.2+).
#[cfg(feature = "trace")]
pub(crate) fn map_freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    const BPF_MAP_FREEZE: libc::c_int = 22;
    let attr = Attr::default().fd_at(0, map);
    // SAFETY: no pointers.
    unsafe { bpf(BPF_MAP_FREEZE, &attr, 4) }.map(drop)
}

/// `BPF_MAP_DELETE_ELEM` of a map whose keys are `u32`.
pub(crate) fn map_delete(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    let attr = Attr::default().fd_at(0, map).pointer_at(8, &raw const key);
    // SAFETY: the kernel reads a key of 4 bytes.
    unsafe { bpf(BPF_MAP_DELETE_ELEM, &attr, 16) }.map(drop)
}

/// A per-CPU array.
#[derive(Debug)]
pub(crate) struct PerCpuArray {
    fd: OwnedFd,
    /// 64-bit words that a value takes.
    words: usize,
    possible_cpus: usize,
}

impl PerCpuArray {
    /// Opens a map. If it is not a per-CPU array, or not a wanted one, gives what it is.
    pub(crate) fn open(
        map: BorrowedFd<'_>,
        possible_cpus: usize,
        is_wanted: impl FnOnce(&MapInfo) -> bool,
    ) -> io::Result<Result<Self, MapInfo>> {
        let info = map_info(map)?;
        if info.map_type != MAP_TYPE_PERCPU_ARRAY || info.key_size != 4 || !is_wanted(&info) {
            return Ok(Err(info));
        }
        let words = (info.value_size as usize).div_ceil(8);
        Ok(Ok(Self { fd: map.try_clone_to_owned()?, words, possible_cpus }))
    }

    /// Gives the values of each of `keys` to `each`, which is told which possible CPU's it is:
    /// `BPF_MAP_LOOKUP_ELEM`.
    pub(crate) fn read(
        &self,
        keys: Range<u32>,
        mut each: impl FnMut(usize, &[u64]),
    ) -> io::Result<()> {
        let mut values = vec![0u64; self.words * self.possible_cpus];
        for key in keys {
            let attr = Attr::default()
                .fd_at(0, self.fd.as_fd())
                .pointer_at(8, &raw const key)
                .pointer_at(16, values.as_mut_ptr());
            // SAFETY: keys have 4 bytes, and there is room for a value of each possible CPU, padded to
            // 8 bytes.
            unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &attr, 32) }?;
            values.chunks_exact(self.words).enumerate().for_each(|(at, value)| each(at, value));
        }
        Ok(())
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
    use super::{Attr, BPF_LINK_CREATE, bpf_fd, object_info};
    use std::ffi::CStr;
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
    const BPF_PERF_EVENT: u32 = 41;

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

    /// How many hits of the kprobe, or returns of the kretprobe, that a link leads to the kernel has not
    /// passed on: `bpf_link_info::perf_event.kprobe.missed` (6.7+). `None` if the kernel does not tell, or
    /// the link leads to something else.
    pub(crate) fn kprobe_missed(link: &OwnedFd) -> io::Result<Option<u64>> {
        const BPF_LINK_TYPE_PERF_EVENT: u32 = 7;
        const BPF_PERF_EVENT_KPROBE: u32 = 3;
        const BPF_PERF_EVENT_KRETPROBE: u32 = 4;
        #[repr(C)]
        #[derive(Default)]
        struct Info {
            link_type: u32,
            id: u32,
            program: u32,
            _padding: u32,
            event_type: u32,
            _more_padding: u32,
            name: u64,
            name_len: u32,
            offset: u32,
            address: u64,
            missed: u64,
        }
        let mut info = Info::default();
        // SAFETY: it is numbers, of which the name's address is none.
        let told = unsafe { object_info(link.as_fd(), &mut info) }?;
        let is_told = told >= size_of::<Info>()
            && info.link_type == BPF_LINK_TYPE_PERF_EVENT
            && matches!(info.event_type, BPF_PERF_EVENT_KPROBE | BPF_PERF_EVENT_KRETPROBE);
        Ok(is_told.then_some(info.missed))
    }

    /// `BPF_RAW_TRACEPOINT_OPEN`.
    pub(crate) fn open_raw_tracepoint(name: &CStr, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let attr = Attr::default().pointer_at(0, name.as_ptr()).fd_at(8, program);
        // SAFETY: the name is terminated, and the kernel reads it.
        unsafe { bpf_fd(BPF_RAW_TRACEPOINT_OPEN, &attr, 16) }
    }

    /// The same of a program that was loaded for a trampoline (5.5+).
    pub(crate) fn open_trampoline(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let attr = Attr::default().fd_at(8, program);
        // SAFETY: there is no name.
        unsafe { bpf_fd(BPF_RAW_TRACEPOINT_OPEN, &attr, 16) }
    }

    /// How often the kernel did not run a program, since it ran already on the same CPU:
    /// `bpf_prog_info::recursion_misses` (5.12+). `None` if it does not tell.
    pub(crate) fn recursion_misses(program: BorrowedFd<'_>) -> io::Result<Option<u64>> {
        const RECURSION_MISSES: usize = 208 / 8;
        let mut info = [0u64; RECURSION_MISSES + 1];
        // SAFETY: it is numbers, and asks for nothing by pointers.
        let told = unsafe { object_info(program, &mut info) }?;
        Ok((told >= size_of_val(&info)).then_some(info[RECURSION_MISSES]))
    }
}
#[cfg(feature = "trace")]
pub(crate) use attach::{
    kprobe_missed, link_perf_event, open_raw_tracepoint, open_trampoline, recursion_misses,
};
