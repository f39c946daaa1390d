//! The record that every contender carries: a header, its time, and a payload of one of these
//! lengths. Shared with the eBPF programs.

use probe_common::{Record, RecordKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Records per run of a program at saturation. Starting a program takes longer than emitting a
/// record, and the delivery rate should not depend on how fast programs start.
pub const BURST: u32 = 8;

/// A payload of `WORDS` words.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Payload<const WORDS: usize> {
    /// Word `n` is `n`.
    pub words: [u64; WORDS],
}

impl<const WORDS: usize> Record for Payload<WORDS> {
    const KIND: RecordKind = RecordKind::user(WORDS.ilog2());
}
