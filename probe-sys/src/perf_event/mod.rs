//! `perf_event_open(2)` and its ioctls: `include/uapi/linux/perf_event.h`.

mod attr;
mod user_page;

pub use attr::{Attr, Flags, ReadFormat};
pub use user_page::{UserPage, WORDS};

use crate::{attempt, call, cpus};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use zerocopy::IntoBytes;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_BPF_OUTPUT: u64 = 10;
const PERF_SAMPLE_RAW: u64 = 1 << 10;

const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;
const PERF_EVENT_IOC_REFRESH: libc::c_ulong = 0x2402;
const PERF_EVENT_IOC_RESET: libc::c_ulong = 0x2403;
const PERF_EVENT_IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const PERF_EVENT_IOC_PAUSE_OUTPUT: libc::c_ulong = 0x4004_2409;
const PERF_EVENT_IOC_ID: libc::c_ulong = 0x8008_2407;
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
const PERF_IOC_FLAG_GROUP: libc::c_ulong = 1;

/// When the kernel wakes the process that polls an event.
#[derive(Clone, Copy, Debug)]
pub enum WakeAt {
    /// After this many records.
    Events(u32),
    /// After this many bytes.
    Bytes(u32),
}

/// An instruction of the kernel, where a kprobe is set.
#[derive(Clone, Copy, Debug)]
pub enum ProbePoint<'f> {
    /// At an offset in a function.
    Function {
        /// The function.
        name: &'f std::ffi::CStr,
        /// Bytes from its start.
        offset: u64,
    },
    /// At an address.
    Address(u64),
}

/// An open perf event.
#[derive(Debug)]
pub struct PerfEvent {
    fd: OwnedFd,
    read_format: ReadFormat,
}

impl PerfEvent {
    /// Opens an event that eBPF programs on `cpu` write raw data to, disabled.
    pub fn bpf_output(cpu: u32, wake: WakeAt) -> io::Result<Self> {
        Self::output(cpu, wake, Flags::empty())
    }

    /// Opens such an event that fills its ring from the end to the start (4.7+). It wakes rarely: once each time that the
    /// ring is full.
    pub fn backward_output(cpu: u32) -> io::Result<Self> {
        // The kernel limits this to the size of the ring.
        Self::output(cpu, WakeAt::Bytes(u32::MAX), Flags::WRITE_BACKWARD)
    }

    fn output(cpu: u32, wake: WakeAt, flags: Flags) -> io::Result<Self> {
        let (wakeup, unit) = match wake {
            WakeAt::Events(records) => (records, Flags::empty()),
            WakeAt::Bytes(bytes) => (bytes, Flags::WATERMARK),
        };
        let attr = Attr {
            kind: PERF_TYPE_SOFTWARE,
            config: PERF_COUNT_SW_BPF_OUTPUT,
            sample_period: 1,
            sample_type: PERF_SAMPLE_RAW,
            // Programs must not write before the ring is mapped.
            flags: (flags | unit | Flags::DISABLED).bits(),
            wakeup,
            ..Attr::default()
        };
        attr.open_telling_lost(-1, cpu as i32, None)
    }

    /// Opens an event that occurs on `cpu` when a page fault was resolved, with or without reading from a device, disabled.
    pub fn page_faults(cpu: u32, is_major: bool) -> io::Result<Self> {
        const PERF_COUNT_SW_PAGE_FAULTS_MIN: u64 = 5;
        const PERF_COUNT_SW_PAGE_FAULTS_MAJ: u64 = 6;
        let config =
            if is_major { PERF_COUNT_SW_PAGE_FAULTS_MAJ } else { PERF_COUNT_SW_PAGE_FAULTS_MIN };
        let flags = Flags::DISABLED.bits();
        let attr =
            Attr { kind: PERF_TYPE_SOFTWARE, config, sample_period: 1, flags, ..Attr::default() };
        attr.open_in(-1, cpu as i32, None)
    }

    /// Opens a kprobe at an instruction, or a kretprobe of the function that starts there, on all CPUs, enabled. `pmu` is
    /// the type of the kprobe PMU.
    pub fn kprobe(pmu: u32, point: ProbePoint<'_>, returns: bool) -> io::Result<Self> {
        let (config1, config2) = match point {
            ProbePoint::Function { name, offset } => {
                (name.as_ptr().expose_provenance() as u64, offset)
            }
            ProbePoint::Address(address) => (0, address),
        };
        Self::dynamic(pmu, config1, config2, returns)
    }

    /// Opens a uprobe at an offset in a file, or a uretprobe of the function that starts there, in all processes, enabled.
    /// `pmu` is the type of the uprobe PMU.
    pub fn uprobe(pmu: u32, path: &std::ffi::CStr, offset: u64, returns: bool) -> io::Result<Self> {
        Self::dynamic(pmu, path.as_ptr().expose_provenance() as u64, offset, returns)
    }

    /// Opens an event of the kprobe or the uprobe PMU.
    fn dynamic(pmu: u32, config1: u64, config2: u64, returns: bool) -> io::Result<Self> {
        // "retprobe" in /sys/bus/event_source/devices/*/format/
        let attr =
            Attr { kind: pmu, config: u64::from(returns), config1, config2, ..Attr::default() };
        Self::on_any_cpu(&attr)
    }

    /// Opens an event that does not depend on its CPU on one that is online.
    fn on_any_cpu(attr: &Attr) -> io::Result<Self> {
        match attr.open_in(-1, 0, None) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                let cpu = cpus::online()?.first().copied().unwrap_or(0);
                attr.open_in(-1, cpu as i32, None)
            }
            opened => opened,
        }
    }

    /// Opens the tracepoint with this id, on all CPUs, for a program to attach to. The event stays disabled: the program
    /// still runs, and counting would cost time at every hit.
    pub fn tracepoint(id: u64) -> io::Result<Self> {
        const PERF_TYPE_TRACEPOINT: u32 = 2;
        let flags = Flags::DISABLED.bits();
        let attr = Attr { kind: PERF_TYPE_TRACEPOINT, config: id, flags, ..Attr::default() };
        Self::on_any_cpu(&attr)
    }

    /// `PERF_EVENT_IOC_ENABLE`.
    pub fn enable(&self) -> io::Result<()> {
        self.control(PERF_EVENT_IOC_ENABLE, 0)
    }

    /// `PERF_EVENT_IOC_DISABLE`.
    pub fn disable(&self) -> io::Result<()> {
        self.control(PERF_EVENT_IOC_DISABLE, 0)
    }

    /// `PERF_EVENT_IOC_RESET`: resets the count to 0, but not the times.
    pub fn reset(&self) -> io::Result<()> {
        self.control(PERF_EVENT_IOC_RESET, 0)
    }

    /// `PERF_EVENT_IOC_REFRESH`: enables the event for this many more overflows.
    pub fn refresh(&self, overflows: i32) -> io::Result<()> {
        self.control(PERF_EVENT_IOC_REFRESH, overflows as libc::c_ulong)
    }

    /// `PERF_EVENT_IOC_ENABLE` for the whole group of a leader.
    pub fn enable_group(&self) -> io::Result<()> {
        self.control(PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP)
    }

    /// `PERF_EVENT_IOC_DISABLE` for the whole group of a leader.
    pub fn disable_group(&self) -> io::Result<()> {
        self.control(PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP)
    }

    /// `PERF_EVENT_IOC_RESET` for the whole group of a leader.
    pub fn reset_group(&self) -> io::Result<()> {
        self.control(PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP)
    }

    /// `PERF_EVENT_IOC_SET_OUTPUT`: writes into the ring of another event of the same CPU, and wakes the process that
    /// polls that event.
    pub fn set_output(&self, ring: BorrowedFd<'_>) -> io::Result<()> {
        self.control(PERF_EVENT_IOC_SET_OUTPUT, ring.as_raw_fd() as libc::c_ulong)
    }

    /// `PERF_EVENT_IOC_ID`: the id of the event in records and groups.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0u64;
        // SAFETY: the kernel writes a u64.
        call("ioctl", || unsafe {
            libc::ioctl(self.fd.as_raw_fd(), PERF_EVENT_IOC_ID, &raw mut id)
        })?;
        Ok(id)
    }

    /// `PERF_EVENT_IOC_PAUSE_OUTPUT` (4.7+): pauses or resumes the ring. Meanwhile the kernel counts new records as lost.
    pub fn pause_output(&self, paused: bool) -> io::Result<()> {
        self.control(PERF_EVENT_IOC_PAUSE_OUTPUT, paused.into())
    }

    /// `PERF_EVENT_IOC_SET_BPF`: attaches a program until the event is closed. Before 5.15, this is the only way.
    pub fn set_bpf(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.control(PERF_EVENT_IOC_SET_BPF, program.as_raw_fd() as libc::c_ulong)
    }

    /// Makes a request whose argument is not a pointer.
    fn control(&self, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
        // SAFETY: callers pass only requests whose argument is not a pointer.
        call("ioctl", || unsafe { libc::ioctl(self.fd.as_raw_fd(), request, argument) }).map(drop)
    }

    /// How many records the kernel has dropped for lack of room since the event was opened (`PERF_FORMAT_LOST`, 6.0+).
    /// `None` if the kernel does not report it. Fails for an event whose readings include other events.
    pub fn lost(&self) -> io::Result<Option<u64>> {
        let Some(at) = lost_at(self.read_format) else { return Ok(None) };
        let mut words = [0; MOST_WORDS];
        let read = self.read_words(&mut words)?;
        Ok(words[..read].get(at).copied())
    }

    /// The format of readings.
    pub fn read_format(&self) -> ReadFormat {
        self.read_format
    }

    /// `read(2)`, in the event's format. Returns the number of words, which is 0 for a pinned event that found no hardware
    /// counter.
    pub fn read_words(&self, words: &mut [u64]) -> io::Result<usize> {
        let bytes = words.as_mut_bytes();
        let read = attempt("read", || rustix::io::read(&self.fd, &mut *bytes))?;
        Ok(read / size_of::<u64>())
    }
}

/// The words of a reading in the longest format, without other events in the group.
const MOST_WORDS: usize = 6;

/// The word of a reading that has the lost records, if the format includes them. The value comes before it, and a word for
/// each other flag.
fn lost_at(format: ReadFormat) -> Option<usize> {
    let others = format - ReadFormat::LOST;
    format.contains(ReadFormat::LOST).then_some(1 + others.bits().count_ones() as usize)
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_records_come_last_in_every_format() {
        let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        let lost = ReadFormat::LOST;
        for (format, expected) in [
            (ReadFormat::empty(), None),
            (times, None),
            // { value, lost }
            (lost, Some(1)),
            // { value, enabled, running, id, lost }
            (times | ReadFormat::ID | lost, Some(4)),
            // { nr, { value, lost } }
            (ReadFormat::GROUP | lost, Some(2)),
            // { nr, enabled, running, { value, id, lost } }
            (ReadFormat::all(), Some(MOST_WORDS - 1)),
        ] {
            assert_eq!(lost_at(format), expected, "{format:?}");
        }
    }
}
