//! The record that both sides share.

use probe_common::{Record, RecordKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A process, or one of its threads, forked.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Forked {
    /// The process that forked.
    pub pid: u32,
    /// The thread that forked.
    pub tid: u32,
    /// The thread's name, zero-terminated.
    pub comm: [u8; 16],
}

impl Record for Forked {
    const KIND: RecordKind = RecordKind::user(0);
}
