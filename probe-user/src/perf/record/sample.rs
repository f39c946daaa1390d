//! Samples (`PERF_RECORD_SAMPLE`).

use super::callchain::Callchain;
use super::fields::{Fields, Taken, Words};
use super::layout::{Layout, SampleType, Thread};
use super::read::ReadValues;

/// `PERF_SAMPLE_BRANCH_HW_INDEX` and `PERF_SAMPLE_BRANCH_COUNTERS` of `branch_sample_type`.
const BRANCH_HW_INDEX: u64 = 1 << 17;
const BRANCH_COUNTERS: u64 = 1 << 19;
const PERF_SAMPLE_REGS_ABI_NONE: u64 = 0;

/// A sample: what of it the sample type has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample<'r> {
    /// Where the instruction is.
    pub ip: Option<u64>,
    /// Who was running.
    pub thread: Option<Thread>,
    /// When, in nanoseconds of the clock of the event.
    pub time: Option<u64>,
    /// The address that was accessed; of other events, something of theirs.
    pub addr: Option<u64>,
    /// The event; of a group, its leader.
    pub id: Option<u64>,
    /// The event itself.
    pub stream_id: Option<u64>,
    /// On which CPU.
    pub cpu: Option<u32>,
    /// What was counted since the sample before.
    pub period: Option<u64>,
    /// The counters.
    pub values: Option<ReadValues<'r>>,
    /// The functions that led there.
    pub callchain: Option<Callchain<'r>>,
    /// What a tracepoint tells, and the kernel's padding.
    pub raw: Option<&'r [u8]>,
    /// The last branches, the latest first.
    pub branches: Option<Branches<'r>>,
    /// Registers of the process.
    pub regs_user: Option<Registers<'r>>,
    /// The top of the process's stack, from the stack pointer on: what could be read of it.
    pub stack_user: Option<&'r [u8]>,
    /// What it cost, as the CPU says: the whole word.
    pub weight: Option<u64>,
    /// Where data came from (`union perf_mem_data_src`).
    pub data_src: Option<u64>,
    /// What became of a memory transaction (`PERF_TXN_*`).
    pub transaction: Option<u64>,
    /// Registers where the event was.
    pub regs_intr: Option<Registers<'r>>,
    /// The physical address.
    pub phys_addr: Option<u64>,
    /// The cgroup, by its id: the inode of its directory.
    pub cgroup: Option<u64>,
    /// The size of the page of data, in bytes.
    pub data_page_size: Option<u64>,
    /// The size of the page of code, in bytes.
    pub code_page_size: Option<u64>,
    /// What hardware traced.
    pub aux: Option<&'r [u8]>,
}

/// The last branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branches<'r> {
    /// Where the hardware's list begins, if `branch_sample_type` asks for that.
    pub hw_index: Option<u64>,
    /// What was counted between the branches, if it asks for that: a word for each. Since 6.8.
    pub counters: Option<Words<'r>>,
    entries: &'r [[[u8; 8]; 3]],
}

/// A branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branch {
    /// The address of the branch.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    /// Whether it was foreseen, and more: the bits of `struct perf_branch_entry`.
    pub flags: u64,
}

impl<'r> Branches<'r> {
    /// Each of them, the latest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Branch> + use<'r> {
        self.entries.iter().map(|entry| {
            let [from, to, flags] = entry.map(u64::from_ne_bytes);
            Branch { from, to, flags }
        })
    }

    fn take(fields: &mut Fields<'r>, branch_sample_type: u64) -> Taken<Self> {
        let count = fields.named("branches").u64()?;
        let has = |flag| branch_sample_type & flag != 0;
        let hw_index = has(BRANCH_HW_INDEX).then(|| fields.u64()).transpose()?;
        let entries = fields.tuples(count)?;
        let counters = has(BRANCH_COUNTERS).then(|| fields.words(count)).transpose()?;
        Ok(Self { hw_index, counters, entries })
    }
}

/// Registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registers<'r> {
    /// Whether the code is of 32 or of 64 bits (`enum perf_sample_regs_abi`); 0: there are no registers.
    pub abi: u64,
    /// Which registers, a bit each (`enum perf_event_x86_regs`, or another CPU's).
    pub mask: u64,
    /// Their values, from the lowest bit on.
    pub values: Words<'r>,
}

impl<'r> Registers<'r> {
    fn take(fields: &mut Fields<'r>, mask: u64) -> Taken<Self> {
        let abi = fields.named("registers").u64()?;
        let mask = if abi == PERF_SAMPLE_REGS_ABI_NONE { 0 } else { mask };
        Ok(Self { abi, mask, values: fields.words(mask.count_ones().into())? })
    }

    /// The value of the register whose bit this is.
    pub fn get(&self, bit: u32) -> Option<u64> {
        let own = 1u64.checked_shl(bit).filter(|own| self.mask & own != 0)?;
        self.values.iter().nth((self.mask & (own - 1)).count_ones() as usize)
    }
}

impl<'r> Sample<'r> {
    /// Reads what stands behind the header, in the order of the kernel's `perf_output_sample()`: that is not
    /// the order in which the header file has AUX.
    pub(super) fn take(fields: &mut Fields<'r>, layout: &Layout) -> Taken<Self> {
        let has = |flag| layout.sample_type.contains(flag);
        let word = |fields: &mut Fields<'r>, flag, name| {
            has(flag).then(|| fields.named(name).u64()).transpose()
        };
        let mut sample = Self::default();
        let identifier = word(fields, SampleType::IDENTIFIER, "identifier")?;
        sample.ip = word(fields, SampleType::IP, "ip")?;
        if has(SampleType::TID) {
            fields.named("tid");
            sample.thread = Some(Thread { pid: fields.u32()?, tid: fields.u32()? });
        }
        sample.time = word(fields, SampleType::TIME, "time")?;
        sample.addr = word(fields, SampleType::ADDR, "addr")?;
        sample.id = word(fields, SampleType::ID, "id")?.or(identifier);
        sample.stream_id = word(fields, SampleType::STREAM_ID, "stream id")?;
        if has(SampleType::CPU) {
            sample.cpu = Some(fields.named("cpu").u32()?);
            fields.u32()?;
        }
        sample.period = word(fields, SampleType::PERIOD, "period")?;
        if has(SampleType::READ) {
            sample.values = Some(ReadValues::take(fields, layout.read_format)?);
        }
        if has(SampleType::CALLCHAIN) {
            let count = fields.named("callchain").u64()?;
            sample.callchain = Some(Callchain::new(fields.words(count)?));
        }
        if has(SampleType::RAW) {
            let len = fields.named("raw data").u32()?;
            sample.raw = Some(fields.bytes(len.into())?);
        }
        if has(SampleType::BRANCH_STACK) {
            sample.branches = Some(Branches::take(fields, layout.branch_sample_type)?);
        }
        if has(SampleType::REGS_USER) {
            sample.regs_user = Some(Registers::take(fields, layout.regs_user)?);
        }
        if has(SampleType::STACK_USER) {
            sample.stack_user = Some(stack(fields.named("stack"))?);
        }
        sample.weight = word(fields, SampleType::WEIGHT, "weight")?;
        if has(SampleType::WEIGHT_STRUCT) {
            sample.weight = Some(fields.named("weight").u64()?);
        }
        sample.data_src = word(fields, SampleType::DATA_SRC, "data source")?;
        sample.transaction = word(fields, SampleType::TRANSACTION, "transaction")?;
        if has(SampleType::REGS_INTR) {
            sample.regs_intr = Some(Registers::take(fields, layout.regs_intr)?);
        }
        sample.phys_addr = word(fields, SampleType::PHYS_ADDR, "physical address")?;
        sample.cgroup = word(fields, SampleType::CGROUP, "cgroup")?;
        sample.data_page_size = word(fields, SampleType::DATA_PAGE_SIZE, "data page size")?;
        sample.code_page_size = word(fields, SampleType::CODE_PAGE_SIZE, "code page size")?;
        if has(SampleType::AUX) {
            let len = fields.named("AUX data").u64()?;
            sample.aux = Some(fields.bytes(len)?);
        }
        Ok(sample)
    }

    /// The weight's three parts, where [`SampleType::WEIGHT_STRUCT`] was asked for: of 32, 16 and 16 bits.
    pub fn weights(&self) -> Option<(u32, u16, u16)> {
        let part = |weight: u64, shift: u32| weight >> shift;
        // In the record, they stand in the order of memory on either sort of machine.
        self.weight.map(|weight| (weight as u32, part(weight, 32) as u16, part(weight, 48) as u16))
    }
}

/// `{ u64 size; char data[size]; u64 dyn_size; }`, or a size of zero and nothing else.
fn stack<'r>(fields: &mut Fields<'r>) -> Taken<&'r [u8]> {
    let len = fields.u64()?;
    if len == 0 {
        return Ok(&[]);
    }
    let data = fields.bytes(len)?;
    let read = fields.u64()?;
    // What was not read is whatever was there before.
    Ok(usize::try_from(read).ok().and_then(|read| data.get(..read)).unwrap_or(data))
}
