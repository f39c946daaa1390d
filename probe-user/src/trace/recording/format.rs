//! The layout of a recording: a preamble, and sections.

use probe_common::limits::MAX_BLOCK;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// No text begins so, and what a transfer as text would change is in it.
pub(super) const MAGIC: [u8; 8] = *b"\x89probe\r\n";

/// The version of the format. Another one is for whatever a reader of this one would not understand.
pub(super) const VERSION: u32 = 1;

/// Sections begin, and records lie, at multiples of so many bytes.
pub(super) const ALIGN: usize = 8;

/// Where the block begins in a section of records: its records are aligned then.
pub(super) const BLOCK_AT: usize = 4;

/// No section of records is longer.
pub(super) const MAX_RECORDS: usize = BLOCK_AT + MAX_BLOCK;

/// What a recording begins with.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Preamble {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    pub(super) reserved: U32,
}

/// What stands before each section.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SectionHeader {
    tag: U32,
    /// Whose it is, if it is a CPU's.
    cpu: U32,
    /// Bytes, without the padding behind them.
    len: U32,
    reserved: U32,
}

/// What a section has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Tag {
    /// What is traced: the first one.
    Header = 1,
    /// Names of addresses, before the records that have these.
    Symbols = 2,
    /// A block of a CPU's records.
    Records = 3,
    /// Records of a CPU are missing here.
    Lost = 4,
    /// Bytes of a CPU were skipped here.
    Malformed = 5,
    /// A CPU has come or gone.
    Cpu = 6,
    /// What became of everything: the last one.
    Ledger = 7,
}

impl Tag {
    const ALL: [Self; 7] = [
        Self::Header,
        Self::Symbols,
        Self::Records,
        Self::Lost,
        Self::Malformed,
        Self::Cpu,
        Self::Ledger,
    ];
}

impl SectionHeader {
    /// `None` if the section is longer than any can be.
    pub(super) fn new(tag: Tag, cpu: u32, len: usize) -> Option<Self> {
        let len = u32::try_from(len).ok()?.into();
        Some(Self { tag: (tag as u32).into(), cpu: cpu.into(), len, reserved: 0.into() })
    }

    /// `None` if there is no such tag.
    pub(super) fn tag(&self) -> Option<Tag> {
        Tag::ALL.into_iter().find(|tag| *tag as u32 == self.tag.get())
    }

    pub(super) fn cpu(&self) -> u32 {
        self.cpu.get()
    }

    pub(super) fn len(&self) -> usize {
        self.len.get() as usize
    }
}
