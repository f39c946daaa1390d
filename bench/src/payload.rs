//! What every contender carries: a header, its time, and a payload of one of these lengths. Shared
//! with the eBPF programs.

use probe_common::{Record, RecordKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// So many records a run of a program emits at saturation: to run a program takes longer than to emit a record,
/// and what is delivered then is not to be a matter of how fast programs run.
pub const BURST: u32 = 8;

/// So many words of payload.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Payload<const WORDS: usize> {
    /// Word `n` is `n`.
    pub words: [u64; WORDS],
}

impl<const WORDS: usize> Record for Payload<WORDS> {
    const KIND: RecordKind = RecordKind::user(WORDS.ilog2());
}
