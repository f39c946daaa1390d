//! What a consumer receives besides records: losses, failures, malformed bytes, dumps and CPU changes.

use crate::error::OpenError;
use probe_common::tally::FailureClass;
use probe_common::{BlockError, RecordKind};
use probe_sys::hint::counted;
use std::fmt;

/// Outputs that found no room in a full ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The CPU whose ring was full.
    pub cpu: u32,
    /// The number of lost outputs. Each output is one record or, with
    /// [`Wakeup::Adaptive`](crate::Wakeup::Adaptive), a block of records. 0 if the outputs were reported
    /// before, but not all of their records.
    pub count: u64,
    /// The number of lost records, as far as the eBPF side has counted them at the time of this report.
    /// Records that it counts later are reported with the CPU's next loss, or when the pipe is closed. `None`
    /// if the pipe has no [`Tally`](crate::ledger::Tally).
    pub records: Option<u64>,
}

impl Loss {
    /// A loss that was recorded elsewhere, such as in a file.
    pub fn new(cpu: u32, count: u64, records: Option<u64>) -> Self {
        Self { cpu, count, records }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.records {
            Some(records) => counted(records, "record"),
            None => counted(self.count, "output"),
        };
        write!(f, "{what} lost on CPU {}", self.cpu)
    }
}

/// Records that failed for another reason than a full ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The CPU whose programs tried to send them.
    pub cpu: u32,
    /// The reason.
    pub class: FailureClass,
    /// How many records have failed for this reason since the last report.
    pub records: u64,
}

impl Failure {
    /// A failure that was recorded elsewhere, such as in a file.
    pub fn new(cpu: u32, class: FailureClass, records: u64) -> Self {
        Self { cpu, class, records }
    }
}

/// `3 records failed on CPU 1: no event for the CPU`
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, class, records } = self;
        let records = counted(*records, "record");
        write!(f, "{records} failed on CPU {cpu}: {}", class.name())
    }
}

/// What a dump of a flight recorder has found in the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dump {
    /// The number of earlier dumps.
    pub number: u64,
    /// Records emitted since the last dump that are still in the rings. They follow in order of time.
    pub records: u64,
    /// Records emitted since the last dump that were overwritten. `None` if the pipe has no
    /// [`Tally`](crate::ledger::Tally).
    pub overwritten: Option<u64>,
}

impl Dump {
    /// A dump that was recorded elsewhere, such as in a file.
    pub fn new(number: u64, records: u64, overwritten: Option<u64>) -> Self {
        Self { number, records, overwritten }
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = counted(self.records, "event");
        write!(f, "dump {}: {events}", self.number.saturating_add(1))?;
        match self.overwritten {
            Some(before) => write!(f, ", {before} before them overwritten"),
            None => Ok(()),
        }
    }
}

/// A CPU went online or offline while the pipe was open, or has had no queue since then.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CpuChange<'e> {
    /// The CPU is online and now has a queue. After the machine was suspended, every CPU is reported.
    Covered {
        /// The CPU.
        cpu: u32,
    },
    /// The CPU is offline. Its records are still in its ring, or in its open block, which it sends when it is
    /// online again.
    Offline {
        /// The CPU.
        cpu: u32,
    },
    /// The CPU is online but has no queue. Its records fail, and the failures are counted. A CPU for which the map had no
    /// entry when the pipe was opened is reported once, by one of the first drains.
    Uncovered {
        /// The CPU.
        cpu: u32,
        /// Why it has no queue.
        error: &'e OpenError,
    },
    /// Another consumer has taken over the CPU ([`Options::take_over`](crate::Options::take_over)). What was sent before
    /// that is still delivered.
    TakenOver {
        /// The CPU.
        cpu: u32,
    },
}

impl CpuChange<'_> {
    /// The CPU.
    pub fn cpu(&self) -> u32 {
        match *self {
            Self::Covered { cpu }
            | Self::Offline { cpu }
            | Self::Uncovered { cpu, .. }
            | Self::TakenOver { cpu } => cpu,
        }
    }
}

impl fmt::Display for CpuChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Covered { cpu } => write!(f, "CPU {cpu} is online"),
            Self::Offline { cpu } => write!(f, "CPU {cpu} is offline"),
            Self::TakenOver { cpu } => write!(f, "another consumer has taken over CPU {cpu}"),
            Self::Uncovered { cpu, error } => {
                write!(f, "CPU {cpu} is online, and its events are lost: {error}")
            }
        }
    }
}

/// Bytes that are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes of CPU {cpu}'s ring skipped: {reason}")]
#[non_exhaustive]
pub struct Malformed {
    /// The CPU whose ring they were in.
    pub cpu: u32,
    /// How many bytes of the ring were skipped.
    pub bytes: u64,
    /// What is wrong with them.
    pub reason: MalformedReason,
}

impl Malformed {
    /// Malformed bytes that were recorded elsewhere, such as in a file.
    pub fn new(cpu: u32, bytes: u64, reason: MalformedReason) -> Self {
        Self { cpu, bytes, reason }
    }
}

/// What is wrong with the bytes that a drain skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedReason {
    /// The head is further from the tail than the ring is long, or not a multiple of 8 bytes away. Everything
    /// was skipped.
    #[error("impossible distance between head and tail")]
    Positions,
    /// A perf record has an impossible size. Everything up to the head was skipped, since nothing shows where
    /// the next record starts.
    #[error("a record has an impossible size")]
    RecordSize,
    /// A perf record is shorter than its contents claim.
    #[error("a record is shorter than its contents claim")]
    RecordBody,
    /// The raw data is not a block, or the block ends early.
    #[error("{0}")]
    Block(BlockError),
    /// The payload is shorter than the type of its kind.
    #[error("a record of kind {kind} has {len} bytes and needs {needed}")]
    Payload {
        /// The kind.
        kind: RecordKind,
        /// The length of the payload in bytes.
        len: usize,
        /// The size of the type in bytes.
        needed: usize,
    },
    /// A record is of a probe that its consumer does not have.
    #[error("a record is of probe number {number}, which is unknown")]
    UnknownProbe {
        /// The number.
        number: u32,
    },
}
