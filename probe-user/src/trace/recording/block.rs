//! Records of a CPU that come one after another, on their way into a section.

use super::format::{BLOCK_AT, SectionHeader, Tag};
use probe_common::block::record_span;
use probe_common::limits::{MAX_PAYLOAD, RECORD_ALIGN};
use probe_common::record::RecordHeader;
use probe_common::{BlockPrefix, RawRecord};
use zerocopy::IntoBytes;

/// Bytes of records that a block has room for.
const ROOM: usize = record_span(MAX_PAYLOAD);

/// Records of one CPU.
#[derive(Debug, Default)]
pub(super) struct Block {
    cpu: u32,
    records: Vec<u8>,
}

impl Block {
    /// Whether a record can be pushed as the next one.
    pub(super) fn has_room(&self, cpu: u32, record: &RawRecord<'_>) -> bool {
        let is_its_cpu = self.cpu == cpu || self.records.is_empty();
        is_its_cpu && self.records.len() + record_span(record.payload.len()) <= ROOM
    }

    pub(super) fn push(&mut self, cpu: u32, record: &RawRecord<'_>) {
        let &RawRecord { kind, time, payload } = record;
        self.cpu = cpu;
        let end = self.records.len() + record_span(payload.len());
        let header = RecordHeader { kind, len: payload.len() as u32, time };
        self.records.extend_from_slice(header.as_bytes());
        self.records.extend_from_slice(payload);
        self.records.resize(end, 0);
    }

    /// Writes the section, if there is any record, and begins anew.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) {
        let words = self.records.len() / RECORD_ALIGN;
        let prefix = BlockPrefix::new(words as u16, 0, 0);
        let len = BLOCK_AT + size_of::<BlockPrefix>() + self.records.len();
        if words > 0
            && let Some(header) = SectionHeader::new(Tag::Records, self.cpu, len)
        {
            out.extend_from_slice(header.as_bytes());
            out.extend_from_slice(&[0; BLOCK_AT]);
            out.extend_from_slice(prefix.as_bytes());
            out.append(&mut self.records);
        }
    }
}

const _: () = assert!(ROOM / RECORD_ALIGN <= u16::MAX as usize);
