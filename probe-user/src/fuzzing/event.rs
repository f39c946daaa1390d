//! What a consumer was given, in a form that can be compared, and when it breaks.

use crate::consumer::MalformedReason;
use probe_common::{RawRecord, RecordKind};
use std::ops::ControlFlow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Record { kind: RecordKind, time: u64, len: usize, bytes: u64 },
    Lost { count: u64 },
    Malformed { bytes: u64, reason: MalformedReason },
}

impl Event {
    pub(super) fn of(record: RawRecord<'_>) -> Self {
        let RawRecord { kind, time, payload } = record;
        Self::Record { kind, time, len: payload.len(), bytes: digest(payload) }
    }
}

/// Differs where bytes do, as far as a test needs it to.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let mix =
        |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    let sum = words.iter().fold(0, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

/// Breaks after every so many events; never if that is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breaks {
    every: u8,
    since: u8,
}

impl Breaks {
    pub(super) fn every(every: u8) -> Self {
        Self { every, since: 0 }
    }

    pub(super) fn next(&mut self) -> ControlFlow<()> {
        self.since = self.since.wrapping_add(1);
        if self.since == self.every {
            self.since = 0;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
