//! The contract between both sides: the names of the maps, and the page that both sides share.
//!
//! A program that uses `probe_ebpf::pipe` has these maps in its object. Names have at most 15 bytes,
//! the kernel's limit (`BPF_OBJ_NAME_LEN`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The perf event array that blocks are written to, indexed by CPU. The consumer chooses when
/// the events wake it.
pub const EVENTS_MAP: &str = "PIPE_EVENTS";

/// The perf event array that eager CPUs write to, indexed by CPU. Its events share the rings of those in
/// [`EVENTS_MAP`], and wake the consumer for every block.
pub const EAGER_MAP: &str = "PIPE_EAGER";

/// A per-CPU array of [`TALLY_BANKS`](crate::limits::TALLY_BANKS)
/// [`TallyBank`](crate::tally::TallyBank)s, indexed by [`Bank::index`](crate::tally::Bank::index).
pub const TALLY_MAP: &str = "PIPE_TALLY";

/// A per-CPU array of one [`OutputTally`](crate::tally::OutputTally).
pub const OUTPUTS_MAP: &str = "PIPE_OUTPUTS";

/// A per-CPU array of [`DEPTH`](crate::limits::DEPTH) scratch slots. Each begins with a
/// [`SlotHead`](crate::slot::SlotHead). Only the first slot keeps a block open. Where programs never interrupt each other,
/// a loader may create it with fewer slots, at least one.
pub const SCRATCH_MAP: &str = "PIPE_SCRATCH";

/// A memory-mappable array of [`CpuControl`], indexed by CPU.
pub const CONTROL_MAP: &str = "PIPE_CONTROL";

/// The raw tracepoint program that sends a CPU's open block. User space runs it on that CPU, and it
/// returns a [`Flushed`].
pub const FLUSH_PROGRAM: &str = "pipe_flush";

/// The read-only global, a `u32`, that selects the [`Clock`] for timestamps. A loader sets
/// it before it loads the object.
pub const CLOCK_GLOBAL: &str = "PIPE_CLOCK";

/// The clock that timestamps records: `CLOCK_MONOTONIC`, with different precisions. Reading the
/// clock dominates the cost of a packed record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum Clock {
    /// Each record has its own time, in nanoseconds (`bpf_ktime_get_ns`).
    #[default]
    PerRecord = 0,
    /// All records of a block have the time of its first record.
    PerBlock = 1,
    /// Each record has the time of the last timer tick before it (`bpf_ktime_get_coarse_ns`, kernel
    /// 5.11).
    Coarse = 2,
}

/// The outcome of user space's request to send a CPU's open block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Flushed {
    /// Everything that was emitted is in the ring, or was counted as failed.
    Sent = 0,
    /// A program is in the middle of a record.
    Held = 1,
    /// The CPU has no active event, because it was offline. It keeps the block; ask again once it has
    /// an active event.
    Kept = 2,
}

impl Flushed {
    /// The outcome that a program returned, or `None` for a value that no program returns.
    pub const fn of(answer: u32) -> Option<Self> {
        match answer {
            0 => Some(Self::Sent),
            1 => Some(Self::Held),
            2 => Some(Self::Kept),
            _ => None,
        }
    }
}

/// The number of CPUs that [`CONTROL_MAP`] has entries for. CPUs beyond these pack nothing.
pub const CONTROL_CPUS: u32 = 1024;

/// How many wakeups a CPU sends that the consumer does not answer. After that, the CPU ends its eager period.
pub const MOST_UNANSWERED: u32 = 16;

/// What the consumer asks of one CPU, and what that CPU reports. Each entry has its own cache line.
///
/// A CPU is *eager* or *lazy*. While it is eager, it sends every record at once, and every record wakes the consumer.
/// While it is lazy, it may pack records, and wakes nobody: the consumer looks at its ring on a timer. The consumer
/// chooses. An eager CPU that gets no answer stops waking the consumer by itself. It announces that before its last
/// wakeup, so the consumer learns of it.
///
/// The initial value, all zero, is that of a lazy CPU that packs nothing.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct CpuControl {
    /// The longest block that the CPU may pack, in bytes of records. 0 means one record per block, as while the CPU is
    /// eager. Written by the consumer.
    pub limit: u32,
    /// The number of the CPU's current eager period, or 0 while the CPU is lazy. Written by the consumer.
    pub eager: u32,
    /// The number of the open block, or 0 if none is open. Written by the CPU.
    pub open: u32,
    /// The number of the last eager period whose end the CPU has announced. Written by the CPU, before a record that
    /// wakes the consumer.
    pub ending: u32,
    /// The number of the last eager period that the CPU has ended: it wakes nobody in it any more. Written by the CPU,
    /// after that record has woken the consumer.
    pub ended: u32,
    /// The number of wakeups that the CPU has sent. Written by the CPU.
    pub wakeups: u32,
    /// The value of `wakeups` when the consumer last looked at the ring. Written by the consumer.
    pub answered: u32,
    /// The consumer that has set the events of this CPU, by a number that it has chosen, or 0 if there is none. Written by
    /// the consumer.
    pub owner: u32,
    /// Records in outputs for which the ring had no room, as [`OutputTally::lost_records`] counts them. The CPU adds to
    /// this atomically.
    ///
    /// [`OutputTally::lost_records`]: crate::tally::OutputTally::lost_records
    pub lost_records: u64,
    /// How many times an output or a record failed for another reason. The CPU adds to this atomically, after it has
    /// tallied the failure.
    pub failures: u64,
    /// Outputs of a consumer that has taken over the CPU for which the ring of the earlier one had no room: the kernel counts
    /// them as lost, and no program does. Written by the consumer that has taken over.
    pub uncounted: u32,
    /// Zero.
    pub reserved: [u32; 3],
}

const _: () = assert!(size_of::<CpuControl>() == 64);
