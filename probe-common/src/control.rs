//! What both sides know of each other: the maps, by name, and the page that they share.
//!
//! A program that uses `probe_ebpf::pipe` has these maps in its object. Names are at most 15 bytes,
//! the kernel's limit (`BPF_OBJ_NAME_LEN`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The perf event array that blocks go into, indexed by CPU. Its events wake the consumer as the
/// consumer chose.
pub const EVENTS_MAP: &str = "PIPE_EVENTS";

/// The perf event array that blocks go into while the consumer sleeps, indexed by CPU. Its events
/// share the rings of those in [`EVENTS_MAP`], and wake the consumer each time.
pub const EAGER_MAP: &str = "PIPE_EAGER";

/// A per-CPU array of [`TALLY_BANKS`](crate::limits::TALLY_BANKS)
/// [`TallyBank`](crate::tally::TallyBank)s: all of it is read by a few system calls.
pub const TALLY_MAP: &str = "PIPE_TALLY";

/// A per-CPU array of [`TALLY_BANKS`](crate::limits::TALLY_BANKS)
/// [`OutputTally`](crate::tally::OutputTally)s.
pub const OUTPUTS_MAP: &str = "PIPE_OUTPUTS";

/// A per-CPU array of [`DEPTH`](crate::limits::DEPTH) scratch slots, each beginning with a
/// [`SlotHead`](crate::slot::SlotHead). Only the first keeps a block open.
pub const SCRATCH_MAP: &str = "PIPE_SCRATCH";

/// A memory-mappable array of [`CpuControl`], indexed by CPU.
pub const CONTROL_MAP: &str = "PIPE_CONTROL";

/// The raw tracepoint program that sends a CPU's open block. User space runs it on that CPU, and is
/// answered with a [`Flushed`].
pub const FLUSH_PROGRAM: &str = "pipe_flush";

/// The read-only global, a `u32`, that says which [`Clock`] gives records their time. A loader sets
/// it before it loads the object.
pub const CLOCK_GLOBAL: &str = "PIPE_CLOCK";

/// The section, and so the map, that an object has if a program in it emits records alone: of these programs, no slot
/// tells whether they are in the middle of an output.
pub const ALONE_SECTION: &str = ".bss.pipe_alone";

/// What gives records their time: `CLOCK_MONOTONIC`, more or less exactly. To take the time is most
/// of what a packed record costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum Clock {
    /// Each record has its own time, in nanoseconds (`bpf_ktime_get_ns`).
    #[default]
    PerRecord = 0,
    /// All records of a block have the time of its first one.
    PerBlock = 1,
    /// Each record has the time of the last timer tick before it (`bpf_ktime_get_coarse_ns`, kernel
    /// 5.11).
    Coarse = 2,
}

/// What became of a CPU's open block that user space has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Flushed {
    /// All that was emitted is in the ring, or was counted as failed.
    Sent = 0,
    /// A program is in the middle of a record.
    Held = 1,
    /// The CPU has no active event, since it was offline. It keeps the block, to be asked for again once
    /// it has one.
    Kept = 2,
}

impl Flushed {
    /// What a program has answered; `None` for what none does.
    pub const fn of(answer: u32) -> Option<Self> {
        match answer {
            0 => Some(Self::Sent),
            1 => Some(Self::Held),
            2 => Some(Self::Kept),
            _ => None,
        }
    }
}

/// How many CPUs [`CONTROL_MAP`] has entries for. On CPUs past that, nothing is packed.
pub const CONTROL_CPUS: u32 = 1024;

/// What the consumer asks of one CPU, and what that CPU tells: a cache line of its own.
///
/// All zero, as at first, it asks for nothing: every record goes out at once.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct CpuControl {
    /// The longest block, in bytes of records, that may be packed; 0 for one record in each, as
    /// while the consumer sleeps. Written by the consumer.
    pub limit: u32,
    /// Not 0: the consumer sleeps, for the time of this number, and wants to be woken by the next block. Written by the
    /// consumer.
    pub asleep: u32,
    /// The number of the block that is open, or 0 if none is. Written by the CPU.
    pub open: u32,
    /// The number of the sleep that the CPU has ended last. Written by the CPU.
    pub woken: u32,
    /// Zero.
    pub reserved: [u32; 12],
}

const _: () = assert!(size_of::<CpuControl>() == 64);
