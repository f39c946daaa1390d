//! `bpf(2)`: `include/uapi/linux/bpf.h`.

mod attach;
pub mod btf;
mod by_id;
mod event_slot;
pub mod load;
pub mod multi;

pub use attach::{
    counts_skipped_hits, functions_missed, link_perf_event, open_raw_tracepoint, open_trampoline,
    recursion_misses,
};

pub use by_id::{Program, map_beside, raw_tracepoint};
pub use event_slot::{SlotProbe, write_zeros};

use crate::cpus;
use crate::memory::Guarded;
use crate::{affinity, call};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use zerocopy::IntoBytes;

const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_LINK_CREATE: libc::c_int = 28;

/// `BPF_MAP_TYPE_ARRAY`.
pub const MAP_TYPE_ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_PERF_EVENT_ARRAY`.
pub const MAP_TYPE_PERF_EVENT_ARRAY: u32 = 4;
/// `BPF_MAP_TYPE_PERCPU_ARRAY`.
pub const MAP_TYPE_PERCPU_ARRAY: u32 = 6;

/// The kernel's `union bpf_attr`, of which every command reads a prefix. It is longer than any command here needs,
/// and zero where nothing was set.
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

/// As [`bpf`], for a command that writes into `attr`.
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

/// `BPF_OBJ_GET_INFO_BY_FD`: fills in the fields that the kernel knows, and returns how many bytes these have.
///
/// # Safety
///
/// `T` must be valid for any bytes, and every pointer in it must be good for what the kernel writes there.
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
pub struct MapInfo {
    /// `enum bpf_map_type`.
    pub map_type: u32,
    /// The number by which the kernel knows the map.
    pub id: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// The maximum number of entries.
    pub max_entries: u32,
    /// `BPF_F_*`, as the map was created.
    flags: u32,
    /// The first 15 bytes of the name.
    pub name: String,
}

impl MapInfo {
    /// Whether the values can be mapped (`BPF_F_MMAPABLE`, 5.5+).
    pub fn is_mappable(&self) -> bool {
        const BPF_F_MMAPABLE: u32 = 1 << 10;
        self.flags & BPF_F_MMAPABLE != 0
    }
}

/// What the kernel says about a map; `None` if the descriptor is of anything else.
pub fn map_info(descriptor: BorrowedFd<'_>) -> io::Result<Option<MapInfo>> {
    is_map(descriptor)?.then(|| info_of_map(descriptor)).transpose()
}

/// Whether a descriptor is of a map. `BPF_OBJ_GET_INFO_BY_FD` also describes programs and links, and does not say which
/// of them it has described. A lookup needs a map before it needs a key.
fn is_map(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    // The kernel's own, for a type of map that has no lookups.
    const ENOTSUPP: i32 = 524;
    // SAFETY: the kernel cannot access null pointers.
    match unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &Attr::default().fd_at(0, descriptor), 32) } {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EFAULT | libc::ENOENT | libc::EOPNOTSUPP | ENOTSUPP) => Ok(true),
            Some(libc::EINVAL) => Ok(false),
            _ => Err(error),
        },
    }
}

/// The head of `struct bpf_map_info`, for a descriptor of a map.
fn info_of_map(map: BorrowedFd<'_>) -> io::Result<MapInfo> {
    let mut info = [0u32; 10];
    // SAFETY: any bytes are valid numbers, and none of them is a pointer.
    unsafe { object_info(map, &mut info) }?;
    let [map_type, id, key_size, value_size, max_entries, flags, name @ ..] = info;
    let name = name_of(name.as_bytes());
    Ok(MapInfo { map_type, id, key_size, value_size, max_entries, flags, name })
}

/// The name of an object, which a zero ends.
fn name_of(bytes: &[u8]) -> String {
    let name = bytes.split(|&b| b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// `BPF_MAP_UPDATE_ELEM` for a map whose keys are `u32` and whose values are descriptors.
pub fn map_set_fd(map: BorrowedFd<'_>, key: u32, value: BorrowedFd<'_>) -> io::Result<()> {
    let value = value.as_raw_fd();
    let attr = Attr::default()
        .fd_at(0, map)
        .pointer_at(8, &raw const key)
        .pointer_at(16, &raw const value);
    // SAFETY: a perf event array has keys and values of 4 bytes; the kernel reads both.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attr, 32) }.map(drop)
}

/// `BPF_MAP_UPDATE_ELEM` for an array. `value` must have the size of the array's values.
pub fn map_set_bytes(map: BorrowedFd<'_>, key: u32, value: &[u8]) -> io::Result<()> {
    let info = info_of_map(map)?;
    if info.value_size as usize != value.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let attr =
        Attr::default().fd_at(0, map).pointer_at(8, &raw const key).pointer_at(16, value.as_ptr());
    // SAFETY: an array has keys of 4 bytes; the kernel reads one, and a value, whose size was checked.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attr, 32) }.map(drop)
}

/// `BPF_MAP_FREEZE`: user space can no longer write into the map (5.2+).
pub fn map_freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    const BPF_MAP_FREEZE: libc::c_int = 22;
    let attr = Attr::default().fd_at(0, map);
    // SAFETY: no pointers.
    unsafe { bpf(BPF_MAP_FREEZE, &attr, 4) }.map(drop)
}

/// `BPF_MAP_DELETE_ELEM` for a map whose keys are `u32`.
pub fn map_delete(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    let attr = Attr::default().fd_at(0, map).pointer_at(8, &raw const key);
    // SAFETY: the kernel reads a key of 4 bytes.
    unsafe { bpf(BPF_MAP_DELETE_ELEM, &attr, 16) }.map(drop)
}

/// `BPF_MAP_LOOKUP_ELEM` for a map that is not per-CPU. Returns `false` if there is no such key. Key and value must have
/// the sizes of the map's.
pub fn map_read(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
    check_sizes(map, key, Some(value))?;
    let attr = Attr::default()
        .fd_at(0, map)
        .pointer_at(8, key.as_ptr())
        .pointer_at(16, value.as_mut_ptr());
    // SAFETY: the kernel reads a key and writes a value, whose sizes were checked.
    found(unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &attr, 32) })
}

/// `BPF_MAP_GET_NEXT_KEY`: replaces `key` by the next one, or with `is_first` by the first one. Returns `false` if there is
/// none. The key must have the size of the map's.
pub fn map_next_key(map: BorrowedFd<'_>, key: &mut [u8], is_first: bool) -> io::Result<bool> {
    const BPF_MAP_GET_NEXT_KEY: libc::c_int = 4;
    check_sizes(map, key, None)?;
    let mut attr = Attr::default().fd_at(0, map).pointer_at(16, key.as_mut_ptr());
    if !is_first {
        attr = attr.pointer_at(8, key.as_ptr());
    }
    // SAFETY: the kernel reads a key, and then writes one, whose size was checked.
    found(unsafe { bpf(BPF_MAP_GET_NEXT_KEY, &attr, 32) })
}

fn check_sizes(map: BorrowedFd<'_>, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
    let info = info_of_map(map)?;
    let is_value = value.is_none_or(|value| value.len() == info.value_size as usize);
    match info.key_size as usize == key.len() && is_value {
        true => Ok(()),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Whether a key was found.
fn found(result: io::Result<libc::c_long>) -> io::Result<bool> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        result => result.map(|_| true),
    }
}

/// A per-CPU array.
#[derive(Debug)]
pub struct PerCpuArray {
    fd: OwnedFd,
    /// The 64-bit words of a value.
    words: usize,
    /// The CPU of each value of an entry.
    cpus: Vec<u32>,
}

impl PerCpuArray {
    /// Opens a map. Returns its description if it is not a per-CPU array, or if `is_wanted` rejects it.
    pub fn open(
        map: BorrowedFd<'_>,
        is_wanted: impl FnOnce(&MapInfo) -> bool,
    ) -> io::Result<Result<Self, MapInfo>> {
        let no_map = || io::Error::new(io::ErrorKind::InvalidInput, "not a BPF map");
        let info = map_info(map)?.ok_or_else(no_map)?;
        if info.map_type != MAP_TYPE_PERCPU_ARRAY || info.key_size != 4 || !is_wanted(&info) {
            return Ok(Err(info));
        }
        let fd = map.try_clone_to_owned()?;
        let words = (info.value_size as usize).div_ceil(8);
        let cpus = cpus::possible_of(possible_cpus(map, words)?)?;
        Ok(Ok(Self { fd, words, cpus }))
    }

    /// The possible CPUs. Each has a value in every entry.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Calls `each` with every CPU and its value of the entry `key`.
    pub fn read(&self, key: u32, mut each: impl FnMut(u32, &[u64])) -> io::Result<()> {
        let mut values = vec![0u64; self.words * self.cpus.len()];
        // SAFETY: there is room for a value of each possible CPU; open() has counted how many the kernel writes.
        unsafe { lookup_per_cpu(self.fd.as_fd(), key, values.as_mut_ptr()) }?;
        let values = values.chunks_exact(self.words);
        self.cpus.iter().zip(values).for_each(|(&cpu, value)| each(cpu, value));
        Ok(())
    }
}

impl AsFd for PerCpuArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The number of values that the kernel writes for an entry of this per-CPU array. The files in sysfs do not decide:
/// containers may replace them, and a number that is too small would let the kernel write past the end of a buffer.
fn possible_cpus(map: BorrowedFd<'_>, words: usize) -> io::Result<usize> {
    // The number does not change while the machine is up.
    static POSSIBLE: OnceLock<usize> = OnceLock::new();
    if let Some(&known) = POSSIBLE.get() {
        return Ok(known);
    }
    let most = affinity::upper_bound()?;
    let buffer = Guarded::new(8 * words * most)?;
    // The kernel fails to write beyond the end of the buffer.
    let fits = |cpus: usize| {
        let values = buffer.last(8 * words * cpus);
        let values = values.ok_or_else(|| io::Error::other("more CPUs than CPU sets have bits"))?;
        // SAFETY: whatever the kernel writes behind the buffer's end is in the guard, which it cannot write.
        match unsafe { lookup_per_cpu(map, 0, values.as_ptr().cast()) } {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Ok(false),
            Err(error) => Err(error),
        }
    };
    // The first guess is nearly always right.
    let mut cpus = cpus::possible().map_or(1, |listed| listed.len()).clamp(1, most);
    while !fits(cpus)? {
        cpus += 1;
    }
    while cpus > 1 && fits(cpus - 1)? {
        cpus -= 1;
    }
    Ok(*POSSIBLE.get_or_init(|| cpus))
}

/// `BPF_MAP_LOOKUP_ELEM` for a per-CPU map whose keys are `u32`.
///
/// # Safety
///
/// The kernel may write a value of each possible CPU at `values`, each padded to 8 bytes.
unsafe fn lookup_per_cpu(map: BorrowedFd<'_>, key: u32, values: *mut u64) -> io::Result<()> {
    let attr = Attr::default().fd_at(0, map).pointer_at(8, &raw const key).pointer_at(16, values);
    // SAFETY: keys have 4 bytes; the rest is the caller's promise.
    unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &attr, 32) }.map(drop)
}

/// `BPF_PROG_TEST_RUN`: runs a raw tracepoint program without arguments on `cpu` (5.10+). Returns the program's
/// result.
pub fn run_on(program: BorrowedFd<'_>, cpu: u32) -> io::Result<u32> {
    run_with(program, cpu, &[])
}

/// As [`run_on`], with arguments. There must be as many as the program reads.
pub fn run_with(program: BorrowedFd<'_>, cpu: u32, arguments: &[u64]) -> io::Result<u32> {
    const BPF_F_TEST_RUN_ON_CPU: u32 = 1;
    run(Attr::default().u32_at(64, BPF_F_TEST_RUN_ON_CPU).u32_at(68, cpu), program, arguments)
}

/// As [`run_with`], on the CPU of the caller, where nothing is interrupted.
pub fn run_here(program: BorrowedFd<'_>, arguments: &[u64]) -> io::Result<u32> {
    run(Attr::default(), program, arguments)
}

fn run(attr: Attr, program: BorrowedFd<'_>, arguments: &[u64]) -> io::Result<u32> {
    let mut attr = attr.fd_at(0, program);
    if !arguments.is_empty() {
        attr = attr.u32_at(40, size_of_val(arguments) as u32).pointer_at(48, arguments.as_ptr());
    }
    // SAFETY: the kernel reads the arguments, whose size is given.
    unsafe { bpf_mut(BPF_PROG_TEST_RUN, &mut attr, 72) }?;
    Ok(attr.u32_from(4))
}

/// `BPF_OBJ_PIN`: pins a map or program at `path`, in a bpffs.
pub fn pin(object: BorrowedFd<'_>, path: &std::ffi::CStr) -> io::Result<()> {
    const BPF_OBJ_PIN: libc::c_int = 6;
    let attr = Attr::default().pointer_at(0, path.as_ptr()).fd_at(8, object);
    // SAFETY: the path is terminated, and the kernel reads it.
    unsafe { bpf(BPF_OBJ_PIN, &attr, 16) }.map(drop)
}

/// `BPF_OBJ_GET`: opens the object that is pinned at `path`.
pub fn open_pinned(path: &std::ffi::CStr) -> io::Result<OwnedFd> {
    let attr = Attr::default().pointer_at(0, path.as_ptr());
    // SAFETY: the path is terminated, and the kernel reads it.
    unsafe { bpf_fd(BPF_OBJ_GET, &attr, 16) }
}
