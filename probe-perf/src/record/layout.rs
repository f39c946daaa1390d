//! The layout of an event's records.

use super::fields::{Fields, Taken, Thread, when};
use probe_sys::perf_event::{Attr, Flags, ReadFormat};

bitflags::bitflags! {
    /// The fields of a sample (`enum perf_event_sample_format`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SampleType: u64 {
        /// The instruction pointer.
        const IP = 1 << 0;
        /// The process and the thread.
        const TID = 1 << 1;
        /// The time.
        const TIME = 1 << 2;
        /// The address that was accessed.
        const ADDR = 1 << 3;
        /// The counter, or the counters of its group.
        const READ = 1 << 4;
        /// The call chain.
        const CALLCHAIN = 1 << 5;
        /// The id of the event, or of the event that it was inherited from.
        const ID = 1 << 6;
        /// The CPU.
        const CPU = 1 << 7;
        /// How many events were counted since the previous sample.
        const PERIOD = 1 << 8;
        /// The id of the event itself.
        const STREAM_ID = 1 << 9;
        /// The raw data of a tracepoint.
        const RAW = 1 << 10;
        /// The most recent branches.
        const BRANCH_STACK = 1 << 11;
        /// The registers of the process.
        const REGS_USER = 1 << 12;
        /// The top of the process's stack.
        const STACK_USER = 1 << 13;
        /// The cost that the CPU reports.
        const WEIGHT = 1 << 14;
        /// The source of accessed data.
        const DATA_SRC = 1 << 15;
        /// The id of the event, at a fixed position in all records.
        const IDENTIFIER = 1 << 16;
        /// The outcome of a memory transaction.
        const TRANSACTION = 1 << 17;
        /// The registers at the event.
        const REGS_INTR = 1 << 18;
        /// The physical address.
        const PHYS_ADDR = 1 << 19;
        /// AUX data. Since 5.5.
        const AUX = 1 << 20;
        /// The cgroup. Since 5.7.
        const CGROUP = 1 << 21;
        /// The size of the page of data. Since 5.11.
        const DATA_PAGE_SIZE = 1 << 22;
        /// The size of the page of code. Since 5.11.
        const CODE_PAGE_SIZE = 1 << 23;
        /// The cost that the CPU reports, in three parts. Since 5.12.
        const WEIGHT_STRUCT = 1 << 24;
    }
}

/// The attributes that determine the fields of records, named as in `struct perf_event_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// `sample_type`.
    pub sample_type: SampleType,
    /// `read_format`.
    pub read_format: ReadFormat,
    /// `sample_id_all`: whether records other than samples end with a sample id.
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

    /// The bytes of the sample id at the end of a record: one word for each of six fields.
    pub(super) fn ids_len(&self) -> usize {
        8 * self.ids().bits().count_ones() as usize
    }

    /// Reads a sample id.
    pub(super) fn read_ids(&self, bytes: &[u8]) -> Taken<SampleId> {
        const FIELD: &str = "sample id";
        let mut fields = Fields::new(bytes);
        let has = |flag| self.ids().contains(flag);
        let thread = when(has(SampleType::TID), || fields.thread(FIELD))?;
        let time = fields.word_if(has(SampleType::TIME), FIELD)?;
        let id = fields.word_if(has(SampleType::ID), FIELD)?;
        let stream_id = fields.word_if(has(SampleType::STREAM_ID), FIELD)?;
        let cpu = when(has(SampleType::CPU), || fields.cpu(FIELD))?;
        let identifier = fields.word_if(has(SampleType::IDENTIFIER), FIELD)?;
        Ok(SampleId { thread, time, id: identifier.or(id), stream_id, cpu })
    }
}

/// When and where a record was written (`struct sample_id`). The sample type determines which fields are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleId {
    /// The thread that was running.
    pub thread: Option<Thread>,
    /// The time, in nanoseconds of the event's clock.
    pub time: Option<u64>,
    /// The id of the event, or of the event that it was inherited from.
    pub id: Option<u64>,
    /// The id of the event itself.
    pub stream_id: Option<u64>,
    /// The CPU.
    pub cpu: Option<u32>,
}
