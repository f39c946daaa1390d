//! The sections about missing records, malformed data, CPUs and dumps.

use probe_common::tally::FailureClass;
use probe_common::{BlockError, RecordKind};
use probe_user::flight::Dump;
use probe_user::{CpuChange, Failure, Malformed, MalformedReason};
use serde::{Deserialize, Serialize};

/// A gap in the records.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LossNote {
    pub(super) outputs: u64,
    pub(super) records: Option<u64>,
}

/// Records that failed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FailureNote {
    records: u64,
    /// The number of the [`FailureClass`].
    class: u32,
}

impl FailureNote {
    pub(super) fn of(Failure { class, records, .. }: Failure) -> Self {
        Self { records, class: class as u32 }
    }

    pub(super) fn failure(self, cpu: u32) -> Failure {
        let class = FailureClass::ALL.into_iter().find(|&class| class as u32 == self.class);
        Failure::new(cpu, class.unwrap_or(FailureClass::Other), self.records)
    }
}

/// Skipped bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MalformedNote {
    bytes: u64,
    reason: Reason,
}

/// A serializable [`MalformedReason`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reason {
    Positions,
    RecordSize,
    RecordBody,
    NoPrefix { bytes: usize },
    Overlong { claimed: usize, bytes: usize },
    RecordOverlong { at: usize, claimed: usize, bytes: usize },
    Payload { kind: u32, len: usize, needed: usize },
    UnknownProbe { number: u32 },
}

impl MalformedNote {
    pub(super) fn of(malformed: &Malformed) -> Self {
        let reason = match malformed.reason {
            MalformedReason::Positions => Reason::Positions,
            MalformedReason::RecordSize => Reason::RecordSize,
            MalformedReason::Block(BlockError::NoPrefix { bytes }) => Reason::NoPrefix { bytes },
            MalformedReason::Block(BlockError::Overlong { claimed, bytes }) => {
                Reason::Overlong { claimed, bytes }
            }
            MalformedReason::Block(BlockError::RecordOverlong { at, claimed, bytes }) => {
                Reason::RecordOverlong { at, claimed, bytes }
            }
            MalformedReason::Payload { kind, len, needed } => {
                Reason::Payload { kind: kind.0, len, needed }
            }
            MalformedReason::UnknownProbe { number } => Reason::UnknownProbe { number },
            // There are no other reasons.
            _ => Reason::RecordBody,
        };
        Self { bytes: malformed.bytes, reason }
    }

    pub(super) fn malformed(self, cpu: u32) -> Malformed {
        let block = MalformedReason::Block;
        let reason = match self.reason {
            Reason::Positions => MalformedReason::Positions,
            Reason::RecordSize => MalformedReason::RecordSize,
            Reason::RecordBody => MalformedReason::RecordBody,
            Reason::NoPrefix { bytes } => block(BlockError::NoPrefix { bytes }),
            Reason::Overlong { claimed, bytes } => block(BlockError::Overlong { claimed, bytes }),
            Reason::RecordOverlong { at, claimed, bytes } => {
                block(BlockError::RecordOverlong { at, claimed, bytes })
            }
            Reason::Payload { kind, len, needed } => {
                MalformedReason::Payload { kind: RecordKind(kind), len, needed }
            }
            Reason::UnknownProbe { number } => MalformedReason::UnknownProbe { number },
        };
        Malformed::new(cpu, self.bytes, reason)
    }
}

/// A CPU that went online or offline.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CpuNote {
    Covered,
    Offline,
    Uncovered { why: String },
}

impl CpuNote {
    pub(super) fn of(change: &CpuChange<'_>) -> Self {
        match *change {
            CpuChange::Covered { .. } => Self::Covered,
            CpuChange::Offline { .. } => Self::Offline,
            CpuChange::Uncovered { error, .. } => Self::Uncovered { why: error.to_string() },
            _ => Self::Uncovered { why: change.to_string() },
        }
    }
}

/// A dump of a flight recorder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DumpNote {
    number: u64,
    records: u64,
    overwritten: Option<u64>,
}

impl DumpNote {
    pub(super) fn of(Dump { number, records, overwritten, .. }: Dump) -> Self {
        Self { number, records, overwritten }
    }

    pub(super) fn dump(self) -> Dump {
        Dump::new(self.number, self.records, self.overwritten)
    }
}
