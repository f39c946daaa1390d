//! `perf_event_open(2)` and its ioctls: `include/uapi/linux/perf_event.h`.

mod attr;
#[cfg(feature = "perf")]
mod counting;

pub(crate) use attr::Attr;
pub use attr::{Flags, ReadFormat};

use super::call;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_BPF_OUTPUT: u64 = 10;
const PERF_SAMPLE_RAW: u64 = 1 << 10;

const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;
const PERF_EVENT_IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const PERF_EVENT_IOC_PAUSE_OUTPUT: libc::c_ulong = 0x4004_2409;
#[cfg(feature = "perf")]
const PERF_EVENT_IOC_ID: libc::c_ulong = 0x8008_2407;
#[cfg(feature = "perf")]
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;

/// When the kernel wakes whoever polls an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WakeAt {
    /// After so many records.
    Events(u32),
    /// After so many bytes.
    Bytes(u32),
}

/// An instruction of the kernel.
#[cfg(feature = "trace")]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'f> {
    /// So many bytes behind the beginning of a function.
    Function { name: &'f std::ffi::CStr, offset: u64 },
    /// Where it is.
    Address(u64),
}

/// An open perf event.
#[derive(Debug)]
pub(crate) struct PerfEvent {
    fd: OwnedFd,
    read_format: ReadFormat,
}

impl PerfEvent {
    /// An event that eBPF programs on `cpu` write raw data to, disabled.
    pub(crate) fn bpf_output(cpu: u32, wake: WakeAt) -> io::Result<Self> {
        Self::output(cpu, wake, Flags::empty())
    }

    /// The same, which fills its ring from the end to the beginning (4.7+), and wakes hardly ever: once
    /// for each time that it has filled it.
    pub(crate) fn backward_output(cpu: u32) -> io::Result<Self> {
        // The kernel caps it at the ring's size.
        Self::output(cpu, WakeAt::Bytes(u32::MAX), Flags::WRITE_BACKWARD)
    }

    fn output(cpu: u32, wake: WakeAt, flags: Flags) -> io::Result<Self> {
        let mut attr = Attr {
            kind: PERF_TYPE_SOFTWARE,
            config: PERF_COUNT_SW_BPF_OUTPUT,
            sample_period: 1,
            sample_type: PERF_SAMPLE_RAW,
            // Nothing is written before the ring is mapped.
            flags: (flags | Flags::DISABLED).bits(),
            ..Attr::new()
        };
        match wake {
            WakeAt::Events(n) => attr.wakeup = n,
            WakeAt::Bytes(n) => {
                attr.flags |= Flags::WATERMARK.bits();
                attr.wakeup = n;
            }
        }
        attr.open_telling_lost(-1, cpu as i32, None)
    }

    /// A kprobe at a place, or where the function that begins there returns, on every CPU, enabled. `pmu`
    /// is the kprobe PMU's type.
    #[cfg(feature = "trace")]
    pub(crate) fn kprobe(pmu: u32, place: Place<'_>, returns: bool) -> io::Result<Self> {
        let (config1, config2) = match place {
            Place::Function { name, offset } => (name.as_ptr().expose_provenance() as u64, offset),
            Place::Address(address) => (0, address),
        };
        Self::dynamic(pmu, config1, config2, returns)
    }

    /// A uprobe at an offset of a file, or where the function that begins there returns, of every process,
    /// enabled. `pmu` is the uprobe PMU's type.
    #[cfg(feature = "trace")]
    pub(crate) fn uprobe(
        pmu: u32,
        path: &std::ffi::CStr,
        offset: u64,
        returns: bool,
    ) -> io::Result<Self> {
        Self::dynamic(pmu, path.as_ptr().expose_provenance() as u64, offset, returns)
    }

    /// What the kprobe and the uprobe PMU make.
    #[cfg(feature = "trace")]
    fn dynamic(pmu: u32, config1: u64, config2: u64, returns: bool) -> io::Result<Self> {
        // "retprobe" in /sys/bus/event_source/devices/*/format/
        let attr = Attr { kind: pmu, config: u64::from(returns), config1, config2, ..Attr::new() };
        attr.open_in(-1, 0, None)
    }

    /// The tracepoint with this id, on every CPU, for a program to attach to.
    #[cfg(feature = "trace")]
    pub(crate) fn tracepoint(id: u64) -> io::Result<Self> {
        const PERF_TYPE_TRACEPOINT: u32 = 2;
        let attr = Attr { kind: PERF_TYPE_TRACEPOINT, config: id, ..Attr::new() };
        attr.open_in(-1, 0, None)
    }

    /// `PERF_EVENT_IOC_ENABLE`.
    pub(crate) fn enable(&self) -> io::Result<()> {
        // SAFETY: no pointers.
        call("ioctl", || unsafe { libc::ioctl(self.fd.as_raw_fd(), PERF_EVENT_IOC_ENABLE, 0) })
            .map(drop)
    }

    /// `PERF_EVENT_IOC_DISABLE`.
    pub(crate) fn disable(&self) -> io::Result<()> {
        // SAFETY: no pointers.
        call("ioctl", || unsafe { libc::ioctl(self.fd.as_raw_fd(), PERF_EVENT_IOC_DISABLE, 0) })
            .map(drop)
    }

    /// `PERF_EVENT_IOC_SET_OUTPUT`: writes into the ring of another event of the same CPU from now
    /// on, and wakes who polls that one.
    pub(crate) fn set_output(&self, ring: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: no pointers.
        call("ioctl", || unsafe {
            libc::ioctl(self.fd.as_raw_fd(), PERF_EVENT_IOC_SET_OUTPUT, ring.as_raw_fd())
        })
        .map(drop)
    }

    /// `PERF_EVENT_IOC_ID`: the number by which records and groups name the event.
    #[cfg(feature = "perf")]
    pub(crate) fn id(&self) -> io::Result<u64> {
        let mut id = 0u64;
        // SAFETY: the kernel writes a u64.
        call("ioctl", || unsafe {
            libc::ioctl(self.fd.as_raw_fd(), PERF_EVENT_IOC_ID, &raw mut id)
        })?;
        Ok(id)
    }

    /// `PERF_EVENT_IOC_PAUSE_OUTPUT` (4.7+): its ring takes nothing, until it is to go on. What is written
    /// meanwhile, the kernel counts as lost.
    pub(crate) fn pause_output(&self, paused: bool) -> io::Result<()> {
        // SAFETY: no pointers.
        call("ioctl", || unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                PERF_EVENT_IOC_PAUSE_OUTPUT,
                libc::c_ulong::from(paused),
            )
        })
        .map(drop)
    }

    /// `PERF_EVENT_IOC_SET_BPF`: how programs attach to events before 5.15. Lasts until the event
    /// is closed.
    #[cfg(feature = "perf")]
    pub(crate) fn set_bpf(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: no pointers.
        call("ioctl", || unsafe {
            libc::ioctl(self.fd.as_raw_fd(), PERF_EVENT_IOC_SET_BPF, program.as_raw_fd())
        })
        .map(drop)
    }

    /// How many records the kernel dropped for lack of room, since the event was opened
    /// (`PERF_FORMAT_LOST`, 6.0+). `None` where the kernel does not say.
    pub(crate) fn lost(&self) -> io::Result<Option<u64>> {
        if self.read_format != ReadFormat::LOST {
            return Ok(None);
        }
        // { u64 value; u64 lost; }
        let mut words = [0; 2];
        let read = self.read_words(&mut words)?;
        Ok((read == words.len()).then_some(words[1]))
    }

    /// What readings have.
    #[cfg(feature = "perf")]
    pub(crate) fn read_format(&self) -> ReadFormat {
        self.read_format
    }

    /// `read(2)`, as the event's format has it: how many words it is, of as many as there is room for. None for
    /// a pinned event that found no counter.
    pub(crate) fn read_words(&self, words: &mut [u64]) -> io::Result<usize> {
        let len = size_of_val(words);
        let read = call("read", || {
            // SAFETY: the buffer is writable for the length given.
            unsafe { libc::read(self.fd.as_raw_fd(), words.as_mut_ptr().cast(), len) }
        })?;
        Ok(read as usize / size_of::<u64>())
    }
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
