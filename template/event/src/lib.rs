//! The record that both sides share.

#![no_std]

use probe_common::{Record, RecordKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A process started a program.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Exec {
    /// The process's ID.
    pub pid: u32,
    /// The ID of its user.
    pub uid: u32,
    /// The program's name, zero-terminated.
    pub comm: [u8; 16],
}

impl Record for Exec {
    const KIND: RecordKind = RecordKind::user(0);
}
