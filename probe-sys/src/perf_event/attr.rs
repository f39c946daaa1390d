//! The attributes of an event: `struct perf_event_attr`.

use super::PerfEvent;
use crate::call;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// `struct perf_event_attr`, up to `PERF_ATTR_SIZE_VER8`. An older kernel accepts it if the fields that it does not know
/// are zero, and otherwise fails with `E2BIG`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub struct Attr {
    /// `PERF_TYPE_*`, or the type of a PMU: `type`.
    pub kind: u32,
    /// The bytes of this structure; opening sets it.
    pub size: u32,
    /// Selects the event within its type.
    pub config: u64,
    /// The period, or the frequency with [`Flags::FREQ`].
    pub sample_period: u64,
    /// `PERF_SAMPLE_*`: the fields of a sample.
    pub sample_type: u64,
    /// [`ReadFormat`]: the fields of a reading.
    pub read_format: u64,
    /// [`Flags`].
    pub flags: u64,
    /// The samples per wakeup, or the bytes with [`Flags::WATERMARK`].
    pub wakeup: u32,
    /// For a breakpoint, the accesses that trigger it.
    pub bp_type: u32,
    /// An additional configuration word; the PMU defines its meaning.
    pub config1: u64,
    /// An additional configuration word; the PMU defines its meaning.
    pub config2: u64,
    /// `PERF_SAMPLE_BRANCH_*`.
    pub branch_sample_type: u64,
    /// The registers of the process in a sample.
    pub sample_regs_user: u64,
    /// The bytes of the process's stack in a sample.
    pub sample_stack_user: u32,
    /// The clock of timestamps, with [`Flags::USE_CLOCKID`].
    pub clockid: i32,
    /// The registers at the event in a sample.
    pub sample_regs_intr: u64,
    /// The bytes of the AUX area per wakeup.
    pub aux_watermark: u32,
    /// The maximum number of frames in a callchain.
    pub sample_max_stack: u16,
    /// Must be zero.
    pub reserved: u16,
    /// The bytes of AUX data in a sample (5.5+).
    pub aux_sample_size: u32,
    /// `aux_start_paused`, `aux_pause` and `aux_resume` (6.13+).
    pub aux_action: u32,
    /// The data of the signal, with [`Flags::SIGTRAP`] (5.13+).
    pub sig_data: u64,
    /// An additional configuration word; the PMU defines its meaning (6.3+).
    pub config3: u64,
}

const _: () = assert!(size_of::<Attr>() == 136);

bitflags::bitflags! {
    /// The flags of `struct perf_event_attr`, by their names there.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u64 {
        /// Starts disabled.
        const DISABLED = 1 << 0;
        /// Threads and processes that are created later inherit the event.
        const INHERIT = 1 << 1;
        /// Always stays on its hardware counter; fails if it cannot.
        const PINNED = 1 << 2;
        /// Has the hardware to itself.
        const EXCLUSIVE = 1 << 3;
        /// Excludes user space.
        const EXCLUDE_USER = 1 << 4;
        /// Excludes the kernel.
        const EXCLUDE_KERNEL = 1 << 5;
        /// Excludes the hypervisor.
        const EXCLUDE_HV = 1 << 6;
        /// Excludes idle CPUs.
        const EXCLUDE_IDLE = 1 << 7;
        /// Records mappings of code.
        const MMAP = 1 << 8;
        /// Records changes of thread names.
        const COMM = 1 << 9;
        /// The period is a frequency, in samples per second.
        const FREQ = 1 << 10;
        /// Counts each inheriting thread separately.
        const INHERIT_STAT = 1 << 11;
        /// Enables the event when the process executes a program.
        const ENABLE_ON_EXEC = 1 << 12;
        /// Records forks and exits.
        const TASK = 1 << 13;
        /// `wakeup` counts the bytes of all records, not samples.
        const WATERMARK = 1 << 14;
        /// The address of a sample may be off by a constant number of instructions.
        const PRECISE_CONSTANT = 1 << 15;
        /// Requests exact addresses in samples; together with `PRECISE_CONSTANT`, requires them.
        const PRECISE_REQUESTED = 1 << 16;
        /// Also records mappings of data.
        const MMAP_DATA = 1 << 17;
        /// All records end with a sample id.
        const SAMPLE_ID_ALL = 1 << 18;
        /// Excludes the host.
        const EXCLUDE_HOST = 1 << 19;
        /// Excludes guests.
        const EXCLUDE_GUEST = 1 << 20;
        /// Callchains omit the kernel.
        const EXCLUDE_CALLCHAIN_KERNEL = 1 << 21;
        /// Callchains omit user space.
        const EXCLUDE_CALLCHAIN_USER = 1 << 22;
        /// Records of mappings identify the file.
        const MMAP2 = 1 << 23;
        /// Records of names mark those that an exec has set.
        const COMM_EXEC = 1 << 24;
        /// Timestamps use the clock in `clockid`.
        const USE_CLOCKID = 1 << 25;
        /// Records context switches.
        const CONTEXT_SWITCH = 1 << 26;
        /// Writes the ring backward, from its end.
        const WRITE_BACKWARD = 1 << 27;
        /// Records changes of namespaces.
        const NAMESPACES = 1 << 28;
        /// Records symbols that the kernel adds or removes. Since 5.1.
        const KSYMBOL = 1 << 29;
        /// Records eBPF programs that are loaded or unloaded. Since 5.1.
        const BPF_EVENT = 1 << 30;
        /// Writes into the AUX area of its group's leader.
        const AUX_OUTPUT = 1 << 31;
        /// Records new cgroups. Since 5.7.
        const CGROUP = 1 << 32;
        /// Records changes of the kernel's code. Since 5.9.
        const TEXT_POKE = 1 << 33;
        /// Records of mappings identify the file by its build id. Since 5.12.
        const BUILD_ID = 1 << 34;
        /// Only threads inherit the event, not processes. Since 5.13.
        const INHERIT_THREAD = 1 << 35;
        /// Removes the event when the process executes a program. Since 5.13.
        const REMOVE_ON_EXEC = 1 << 36;
        /// Sends `SIGTRAP` instead of a record. Since 5.13.
        const SIGTRAP = 1 << 37;
    }
}

bitflags::bitflags! {
    /// The fields of a reading (`enum perf_event_read_format`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReadFormat: u64 {
        /// How long the event was enabled, in nanoseconds.
        const TOTAL_TIME_ENABLED = 1 << 0;
        /// How long the event counted, in nanoseconds.
        const TOTAL_TIME_RUNNING = 1 << 1;
        /// The id of the event.
        const ID = 1 << 2;
        /// These fields for all events of the group.
        const GROUP = 1 << 3;
        /// How many records of the event were lost. Since 6.0.
        const LOST = 1 << 4;
    }
}

impl Attr {
    /// Opens the event for a thread (0: the calling one, -1: all) on a CPU (-1: all), in the group of `leader`.
    pub fn open_in(
        &self,
        pid: libc::pid_t,
        cpu: libc::c_int,
        leader: Option<BorrowedFd<'_>>,
    ) -> io::Result<PerfEvent> {
        let attr = Self { size: size_of::<Self>() as u32, ..self.clone() };
        let leader = leader.map_or(-1, |leader| leader.as_raw_fd());
        // SAFETY: the attributes contain their size. config1 may hold the address of a string, which the caller keeps
        // alive.
        let fd = call("perf_event_open", || unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                pid,
                cpu,
                leader,
                PERF_FLAG_FD_CLOEXEC,
            )
        })?;
        // SAFETY: the kernel has just opened it for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(PerfEvent { fd, read_format: ReadFormat::from_bits_retain(self.read_format) })
    }

    /// As [`open_in`](Self::open_in), with lost records in readings if the kernel supports that (6.0+).
    pub fn open_telling_lost(
        &self,
        pid: libc::pid_t,
        cpu: libc::c_int,
        leader: Option<BorrowedFd<'_>>,
    ) -> io::Result<PerfEvent> {
        let read_format = self.read_format | ReadFormat::LOST.bits();
        match (Self { read_format, ..self.clone() }).open_in(pid, cpu, leader) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.open_in(pid, cpu, leader)
            }
            result => result,
        }
    }
}
