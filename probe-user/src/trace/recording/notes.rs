//! What happens beside records, as a recording tells it.

use crate::consumer::{CpuChange, Loss, Malformed, MalformedReason};
use probe_common::{BlockError, RecordKind};
use serde::{Deserialize, Serialize};

/// Records that are missing.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LossNote {
    outputs: u64,
    records: Option<u64>,
}

impl LossNote {
    pub(super) fn of(loss: &Loss) -> Self {
        Self { outputs: loss.count, records: loss.records }
    }

    pub(super) fn loss(self, cpu: u32) -> Loss {
        Loss { cpu, count: self.outputs, records: self.records }
    }
}

/// Bytes that were skipped.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MalformedNote {
    bytes: u64,
    reason: Reason,
}

/// A [`MalformedReason`].
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
            // There are no others.
            MalformedReason::RecordBody | MalformedReason::Block(_) => Reason::RecordBody,
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
        };
        Malformed { cpu, bytes: self.bytes, reason }
    }
}

/// A CPU that has come or gone.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CpuNote {
    Covered,
    Offline,
    Uncovered { why: String },
}

impl CpuNote {
    /// With the CPU.
    pub(super) fn of(change: &CpuChange<'_>) -> (u32, Self) {
        match *change {
            CpuChange::Covered { cpu } => (cpu, Self::Covered),
            CpuChange::Offline { cpu } => (cpu, Self::Offline),
            CpuChange::Uncovered { cpu, error } => {
                (cpu, Self::Uncovered { why: error.to_string() })
            }
        }
    }
}
