//! What a consumer received, in a form that can be compared.

use crate::queue::notices::MalformedReason;
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

/// A digest that differs if the bytes differ, reliably enough for a test.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let mix =
        |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    let sum = words.iter().fold(0, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

/// What a consumer received. It breaks after every `every` events, or never if `every` is 0.
#[derive(Debug)]
pub(super) struct Received<E> {
    pub(super) events: Vec<E>,
    every: u8,
    since: u8,
}

impl<E> Received<E> {
    pub(super) const fn new() -> Self {
        Self { events: Vec::new(), every: 0, since: 0 }
    }

    pub(super) fn restart(&mut self, every: u8) {
        self.events.clear();
        (self.every, self.since) = (every, 0);
    }

    pub(super) fn add(&mut self, event: E) -> ControlFlow<()> {
        self.events.push(event);
        self.since = self.since.wrapping_add(1);
        if self.since == self.every {
            self.since = 0;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
