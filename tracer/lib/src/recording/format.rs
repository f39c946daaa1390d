//! The layout of a recording: a preamble, followed by sections.

use probe_common::limits::MAX_BLOCK;
use zerocopy::little_endian::U32;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned, try_transmute,
};

/// No text file starts with these bytes, and any transfer in text mode damages them.
pub(super) const MAGIC: [u8; 8] = *b"\x89probe\r\n";

/// The version of the format. It changes when readers of the previous version would misread a file.
pub(super) const VERSION: u32 = 1;

/// The alignment of sections and records, in bytes.
pub(super) const ALIGN: usize = 8;

/// The offset of the block in a section of records, in bytes. It aligns the records.
pub(super) const BLOCK_AT: usize = 4;

/// The maximum length of a section of records, in bytes.
pub(super) const MAX_RECORDS: usize = BLOCK_AT + MAX_BLOCK;

/// The start of a recording.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Preamble {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    pub(super) reserved: U32,
}

/// The header of a section.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SectionHeader {
    tag: U32,
    /// The CPU that the section belongs to, if any.
    pub(super) cpu: U32,
    /// The length of the contents in bytes, without padding.
    len: U32,
    reserved: U32,
}

/// The content of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub(super) enum Tag {
    /// The traced probes; always the first section.
    Header = 1,
    /// Names of addresses, which precede the records that need them.
    Symbols = 2,
    /// A block of a CPU's records.
    Records = 3,
    /// A gap in the records of a CPU.
    Lost = 4,
    /// Skipped bytes of a CPU.
    Malformed = 5,
    /// A CPU that went online or offline.
    Cpu = 6,
    /// The ledger; always the last section.
    Ledger = 7,
    /// The wall clock was set, or the machine was suspended.
    Clock = 8,
    /// A dump of a flight recorder, before its records.
    Dump = 9,
    /// Records of a CPU that failed.
    Failed = 10,
}

impl Tag {
    /// The maximum length of a section, in bytes. Its contents are parsed in memory as a whole.
    pub(super) fn longest(self) -> usize {
        match self {
            Self::Records => MAX_RECORDS,
            // They grow with the number of probes.
            Self::Header | Self::Ledger => 64 << 20,
            // Those of one event.
            Self::Symbols => 4 << 20,
            Self::Lost | Self::Failed | Self::Malformed | Self::Cpu | Self::Clock | Self::Dump => {
                64 << 10
            }
        }
    }
}

impl SectionHeader {
    /// `None` if the section would be longer than the maximum.
    pub(super) fn new(tag: Tag, cpu: u32, len: usize) -> Option<Self> {
        let len = u32::try_from(len).ok().filter(|_| len <= tag.longest())?.into();
        Some(Self { tag: (tag as u32).into(), cpu: cpu.into(), len, reserved: 0.into() })
    }

    /// `None` if the tag is unknown.
    pub(super) fn tag(&self) -> Option<Tag> {
        try_transmute!(self.tag.get()).ok()
    }

    pub(super) fn len(&self) -> usize {
        self.len.get() as usize
    }
}
