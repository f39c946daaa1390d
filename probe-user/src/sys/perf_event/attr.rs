//! What an event is: `struct perf_event_attr`.

use super::PerfEvent;
use crate::sys::call;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// `struct perf_event_attr`, up to `PERF_ATTR_SIZE_VER8`. Kernels that know less take it if what they do not
/// know is zero, and refuse it with `E2BIG` otherwise.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Attr {
    pub(crate) kind: u32,
    /// Bytes; opening sets it.
    pub(crate) size: u32,
    pub(crate) config: u64,
    /// Or the frequency, with [`Flags::FREQ`].
    pub(crate) sample_period: u64,
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    /// [`Flags`].
    pub(crate) flags: u64,
    /// Records, or bytes, with [`Flags::WATERMARK`].
    pub(crate) wakeup: u32,
    pub(crate) bp_type: u32,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
    pub(crate) branch_sample_type: u64,
    pub(crate) sample_regs_user: u64,
    pub(crate) sample_stack_user: u32,
    pub(crate) clockid: i32,
    pub(crate) sample_regs_intr: u64,
    pub(crate) aux_watermark: u32,
    pub(crate) sample_max_stack: u16,
    pub(crate) reserved: u16,
    /// Since 5.5.
    pub(crate) aux_sample_size: u32,
    /// Since 6.13.
    pub(crate) aux_action: u32,
    /// Since 5.13.
    pub(crate) sig_data: u64,
    /// Since 6.3.
    pub(crate) config3: u64,
}

const _: () = assert!(size_of::<Attr>() == 136);

bitflags::bitflags! {
    /// What an event does besides counting: the bits of `struct perf_event_attr`, by their names there.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u64 {
        /// Begins switched off.
        const DISABLED = 1 << 0;
        /// Is that of the threads and processes that are made later, too.
        const INHERIT = 1 << 1;
        /// Always has its hardware counter, or is in error.
        const PINNED = 1 << 2;
        /// Is the only one on its hardware.
        const EXCLUSIVE = 1 << 3;
        /// Not while a process runs its own code.
        const EXCLUDE_USER = 1 << 4;
        /// Not while the kernel runs.
        const EXCLUDE_KERNEL = 1 << 5;
        /// Not while a hypervisor runs.
        const EXCLUDE_HV = 1 << 6;
        /// Not while the CPU is idle.
        const EXCLUDE_IDLE = 1 << 7;
        /// Has a record of each mapping of code.
        const MMAP = 1 << 8;
        /// Has a record of each name that a thread gets.
        const COMM = 1 << 9;
        /// The period is a frequency, in samples a second.
        const FREQ = 1 << 10;
        /// Counts each inheriting thread by itself.
        const INHERIT_STAT = 1 << 11;
        /// Is switched on when the process executes a program.
        const ENABLE_ON_EXEC = 1 << 12;
        /// Has a record of each fork and exit.
        const TASK = 1 << 13;
        /// Wakes after so many bytes, not records.
        const WATERMARK = 1 << 14;
        /// The address of a sample may be off, by a constant number of instructions.
        const PRECISE_CONSTANT = 1 << 15;
        /// The address of a sample is asked to be right; with the other one, it has to be.
        const PRECISE_REQUESTED = 1 << 16;
        /// Has a record of each mapping of data, too.
        const MMAP_DATA = 1 << 17;
        /// Every record ends with what identifies a sample.
        const SAMPLE_ID_ALL = 1 << 18;
        /// Not on the host.
        const EXCLUDE_HOST = 1 << 19;
        /// Not in guests.
        const EXCLUDE_GUEST = 1 << 20;
        /// Callchains have no functions of the kernel.
        const EXCLUDE_CALLCHAIN_KERNEL = 1 << 21;
        /// Callchains have no functions of processes.
        const EXCLUDE_CALLCHAIN_USER = 1 << 22;
        /// Records of mappings tell the file, too.
        const MMAP2 = 1 << 23;
        /// Records of names tell those that come of a program that is executed.
        const COMM_EXEC = 1 << 24;
        /// Times are of the clock that is given.
        const USE_CLOCKID = 1 << 25;
        /// Has a record of each context switch.
        const CONTEXT_SWITCH = 1 << 26;
        /// The ring is written from its end on.
        const WRITE_BACKWARD = 1 << 27;
        /// Has a record of each change of namespaces.
        const NAMESPACES = 1 << 28;
        /// Has a record of each symbol that the kernel gets or loses. Since 5.1.
        const KSYMBOL = 1 << 29;
        /// Has a record of each eBPF program that is loaded or unloaded. Since 5.1.
        const BPF_EVENT = 1 << 30;
        /// Writes into the AUX area of its group's leader.
        const AUX_OUTPUT = 1 << 31;
        /// Has a record of each cgroup that is made. Since 5.7.
        const CGROUP = 1 << 32;
        /// Has a record of each change of the kernel's code. Since 5.9.
        const TEXT_POKE = 1 << 33;
        /// Records of mappings tell the file by its build id. Since 5.12.
        const BUILD_ID = 1 << 34;
        /// Threads inherit it, processes do not. Since 5.13.
        const INHERIT_THREAD = 1 << 35;
        /// Is gone when the process executes a program. Since 5.13.
        const REMOVE_ON_EXEC = 1 << 36;
        /// Sends `SIGTRAP` instead of a record. Since 5.13.
        const SIGTRAP = 1 << 37;
    }
}

bitflags::bitflags! {
    /// What is told of a counter that is read (`enum perf_event_read_format`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReadFormat: u64 {
        /// How long it was switched on, in nanoseconds.
        const TOTAL_TIME_ENABLED = 1 << 0;
        /// How long it counted, in nanoseconds.
        const TOTAL_TIME_RUNNING = 1 << 1;
        /// Its id.
        const ID = 1 << 2;
        /// The same of every counter of its group.
        const GROUP = 1 << 3;
        /// How many records of it were lost. Since 6.0.
        const LOST = 1 << 4;
    }
}

impl Attr {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Opens the event of a thread (0: of this one, -1: of all of them) on a CPU (-1: on all of them), in a
    /// group, whose leader is given.
    pub(crate) fn open_in(
        &self,
        pid: libc::pid_t,
        cpu: libc::c_int,
        leader: Option<BorrowedFd<'_>>,
    ) -> io::Result<PerfEvent> {
        let attr = Self { size: size_of::<Self>() as u32, ..self.clone() };
        let leader = leader.map_or(-1, |leader| leader.as_raw_fd());
        // SAFETY: the attribute is as long as it says; config1 may hold the address of a string,
        // which whoever set it keeps alive.
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

    /// The same, and has a reading tell how many records were lost, too, if the kernel knows: since 6.0.
    pub(crate) fn open_telling_lost(
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
