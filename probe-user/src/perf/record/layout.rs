//! What the records of an event have: its sample type, and what else decides about it.

use super::fields::{Fields, Taken};
use crate::sys::perf_event::{Attr, Flags, ReadFormat};

bitflags::bitflags! {
    /// What a sample has (`enum perf_event_sample_format`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SampleType: u64 {
        /// Where the instruction is.
        const IP = 1 << 0;
        /// The process and the thread.
        const TID = 1 << 1;
        /// The time.
        const TIME = 1 << 2;
        /// The address that was accessed.
        const ADDR = 1 << 3;
        /// The counter, or those of its group.
        const READ = 1 << 4;
        /// The functions that led there.
        const CALLCHAIN = 1 << 5;
        /// The event: of a group, the leader.
        const ID = 1 << 6;
        /// The CPU.
        const CPU = 1 << 7;
        /// What was counted since the sample before.
        const PERIOD = 1 << 8;
        /// The event itself.
        const STREAM_ID = 1 << 9;
        /// What a tracepoint tells.
        const RAW = 1 << 10;
        /// The last branches.
        const BRANCH_STACK = 1 << 11;
        /// Registers of the process.
        const REGS_USER = 1 << 12;
        /// The top of its stack.
        const STACK_USER = 1 << 13;
        /// What it cost, as the CPU says.
        const WEIGHT = 1 << 14;
        /// Where data came from.
        const DATA_SRC = 1 << 15;
        /// The event, where every record has it.
        const IDENTIFIER = 1 << 16;
        /// What became of a memory transaction.
        const TRANSACTION = 1 << 17;
        /// Registers where the event was.
        const REGS_INTR = 1 << 18;
        /// The physical address.
        const PHYS_ADDR = 1 << 19;
        /// What hardware traced. Since 5.5.
        const AUX = 1 << 20;
        /// The cgroup. Since 5.7.
        const CGROUP = 1 << 21;
        /// The size of the page of data. Since 5.11.
        const DATA_PAGE_SIZE = 1 << 22;
        /// The size of the page of code. Since 5.11.
        const CODE_PAGE_SIZE = 1 << 23;
        /// What it cost, in three parts. Since 5.12.
        const WEIGHT_STRUCT = 1 << 24;
    }
}

/// What decides which fields records have, as `struct perf_event_attr` says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// `sample_type`.
    pub sample_type: SampleType,
    /// `read_format`.
    pub read_format: ReadFormat,
    /// `sample_id_all`: whether other records than samples end with what identifies them.
    pub has_ids: bool,
    /// `branch_sample_type`.
    pub branch_sample_type: u64,
    /// `sample_regs_user`.
    pub regs_user: u64,
    /// `sample_regs_intr`.
    pub regs_intr: u64,
}

impl Layout {
    pub(crate) fn of(attr: &Attr) -> Self {
        Self {
            sample_type: SampleType::from_bits_retain(attr.sample_type),
            read_format: ReadFormat::from_bits_retain(attr.read_format),
            has_ids: Flags::from_bits_retain(attr.flags).contains(Flags::SAMPLE_ID_ALL),
            branch_sample_type: attr.branch_sample_type,
            regs_user: attr.sample_regs_user,
            regs_intr: attr.sample_regs_intr,
        }
    }

    fn ids(&self) -> SampleType {
        let all = SampleType::TID
            | SampleType::TIME
            | SampleType::ID
            | SampleType::STREAM_ID
            | SampleType::CPU
            | SampleType::IDENTIFIER;
        if self.has_ids { self.sample_type & all } else { SampleType::empty() }
    }

    /// Bytes of what identifies a record, at its end: a word for each of the six.
    pub(super) fn ids_len(&self) -> usize {
        8 * self.ids().bits().count_ones() as usize
    }

    /// Reads it.
    pub(super) fn read_ids(&self, bytes: &[u8]) -> Taken<SampleId> {
        let mut fields = Fields::new(bytes);
        let fields = fields.named("sample id");
        let has = |flag| self.ids().contains(flag);
        let mut ids = SampleId::default();
        if has(SampleType::TID) {
            ids.thread = Some(Thread { pid: fields.u32()?, tid: fields.u32()? });
        }
        for (flag, field) in [
            (SampleType::TIME, &mut ids.time),
            (SampleType::ID, &mut ids.id),
            (SampleType::STREAM_ID, &mut ids.stream_id),
        ] {
            if has(flag) {
                *field = Some(fields.u64()?);
            }
        }
        if has(SampleType::CPU) {
            ids.cpu = Some(fields.u32()?);
            fields.u32()?;
        }
        if has(SampleType::IDENTIFIER) {
            ids.id = Some(fields.u64()?);
        }
        Ok(ids)
    }
}

/// A process and a thread of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
}

/// When and where a record was written (`struct sample_id`): what of it the sample type has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleId {
    /// Who was running.
    pub thread: Option<Thread>,
    /// When, in nanoseconds of the clock of the event.
    pub time: Option<u64>,
    /// The event; of a group, its leader.
    pub id: Option<u64>,
    /// The event itself.
    pub stream_id: Option<u64>,
    /// On which CPU.
    pub cpu: Option<u32>,
}
