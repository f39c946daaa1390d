//! Samples (`PERF_RECORD_SAMPLE`).

use super::ReadFormat;
use super::fields::{Fields, Taken, Thread, Words, when};
use super::layout::{Layout, SampleType};

/// `PERF_SAMPLE_BRANCH_HW_INDEX` and `PERF_SAMPLE_BRANCH_COUNTERS` of `branch_sample_type`.
const BRANCH_HW_INDEX: u64 = 1 << 17;
const BRANCH_COUNTERS: u64 = 1 << 19;
const PERF_SAMPLE_REGS_ABI_NONE: u64 = 0;

/// Marks in a call chain: the addresses that follow belong to the kernel, to the process, or to neither
/// (`enum perf_callchain_context`). Every word at or above the last of them is a mark.
const PERF_CONTEXT_KERNEL: u64 = -128i64 as u64;
const PERF_CONTEXT_USER: u64 = -512i64 as u64;
const PERF_CONTEXT_MAX: u64 = -4095i64 as u64;

/// A sample. The sample type determines which fields are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample<'r> {
    /// The instruction pointer.
    pub ip: Option<u64>,
    /// The thread that was running.
    pub thread: Option<Thread>,
    /// The time, in nanoseconds of the event's clock.
    pub time: Option<u64>,
    /// The address that was accessed; some events store another value here.
    pub addr: Option<u64>,
    /// The id of the event, or of the event that it was inherited from.
    pub id: Option<u64>,
    /// The id of the event itself.
    pub stream_id: Option<u64>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// How many events were counted since the previous sample.
    ///
    /// `None` also for a sampler with an event that has a fixed period other than 1.
    pub period: Option<u64>,
    /// The counters.
    pub values: Option<ReadValues<'r>>,
    /// The call chain.
    pub callchain: Option<Callchain<'r>>,
    /// The raw data of a tracepoint, with the kernel's padding.
    pub raw: Option<&'r [u8]>,
    /// The most recent branches, newest first.
    pub branches: Option<Branches<'r>>,
    /// The registers of the process.
    pub regs_user: Option<Registers<'r>>,
    /// The top of the process's stack, from the stack pointer on, as far as it could be read.
    pub stack_user: Option<&'r [u8]>,
    /// The cost that the CPU reports: the whole word.
    pub weight: Option<u64>,
    /// The source of accessed data (`union perf_mem_data_src`).
    pub data_src: Option<u64>,
    /// The outcome of a memory transaction (`PERF_TXN_*`).
    pub transaction: Option<u64>,
    /// The registers at the event.
    pub regs_intr: Option<Registers<'r>>,
    /// The physical address.
    pub phys_addr: Option<u64>,
    /// The id of the cgroup: the inode of its directory.
    pub cgroup: Option<u64>,
    /// The size of the page of data, in bytes.
    pub data_page_size: Option<u64>,
    /// The size of the page of code, in bytes.
    pub code_page_size: Option<u64>,
    /// AUX data.
    pub aux: Option<&'r [u8]>,
}

/// A counter, or all counters of a group, at one time (`struct read_format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadValues<'r> {
    /// How long they were enabled, in nanoseconds.
    pub time_enabled: Option<u64>,
    /// How long they counted, in nanoseconds.
    pub time_running: Option<u64>,
    format: ReadFormat,
    /// A single counter.
    single: Option<ReadValue>,
    /// The counters of a group, one entry each.
    group: Words<'r>,
}

/// One counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadValue {
    /// The count.
    pub value: u64,
    /// Its id.
    pub id: Option<u64>,
    /// How many of the event's records were lost.
    pub lost: Option<u64>,
}

impl<'r> ReadValues<'r> {
    /// Returns the counters: one, or those of the group.
    pub fn counters(&self) -> impl Iterator<Item = ReadValue> + use<'r> {
        let format = self.format;
        let mut words = self.group.iter();
        let of_group = std::iter::from_fn(move || {
            let value = words.next()?;
            let mut next = |flag| if format.contains(flag) { words.next() } else { None };
            Some(ReadValue { value, id: next(ReadFormat::ID), lost: next(ReadFormat::LOST) })
        });
        self.single.into_iter().chain(of_group)
    }

    pub(super) fn take(fields: &mut Fields<'r>, format: ReadFormat) -> Taken<Self> {
        let fields = fields.named("counters");
        let each = 1 + (format & (ReadFormat::ID | ReadFormat::LOST)).bits().count_ones();
        // The number of counters in a group, or the value of a single one.
        let first = fields.u64()?;
        let mut next = |flag| when(format.contains(flag), || fields.u64());
        let time_enabled = next(ReadFormat::TOTAL_TIME_ENABLED)?;
        let time_running = next(ReadFormat::TOTAL_TIME_RUNNING)?;
        let mut values = Self { time_enabled, time_running, format, ..Self::default() };
        if format.contains(ReadFormat::GROUP) {
            values.group = fields.words(first.saturating_mul(each.into()))?;
        } else {
            let (id, lost) = (next(ReadFormat::ID)?, next(ReadFormat::LOST)?);
            values.single = Some(ReadValue { value: first, id, lost });
        }
        Ok(values)
    }
}

/// The addresses of a call chain, innermost first, and the kernel's before the process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callchain<'r>(Words<'r>);

impl<'r> Callchain<'r> {
    /// All words, including the marks.
    pub fn words(&self) -> Words<'r> {
        self.0
    }

    /// The addresses in the kernel: the interrupted instruction, then return addresses.
    pub fn kernel(&self) -> Words<'r> {
        self.behind(PERF_CONTEXT_KERNEL)
    }

    /// The addresses in the process: the current instruction, then return addresses.
    pub fn user(&self) -> Words<'r> {
        self.behind(PERF_CONTEXT_USER)
    }

    /// The words between a mark and the next one.
    fn behind(&self, mark: u64) -> Words<'r> {
        let words = self.0.iter();
        let Some(at) = words.clone().position(|word| word == mark) else { return Words::default() };
        let len = words.skip(at + 1).take_while(|word| *word < PERF_CONTEXT_MAX).count();
        self.0.part(at + 1..at + 1 + len)
    }
}

/// The most recent branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branches<'r> {
    /// The start of the hardware's list, if `branch_sample_type` requests it.
    pub hw_index: Option<u64>,
    /// The counts between the branches, if `branch_sample_type` requests them: one word per branch. Since 6.8.
    pub counters: Option<Words<'r>>,
    entries: &'r [[[u8; 8]; 3]],
}

/// A branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branch {
    /// The address of the branch.
    pub from: u64,
    /// The target address.
    pub to: u64,
    /// The bits of `struct perf_branch_entry`, such as whether the branch was mispredicted.
    pub flags: u64,
}

impl<'r> Branches<'r> {
    /// Returns the branches, newest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Branch> + use<'r> {
        self.entries.iter().map(|entry| {
            let [from, to, flags] = entry.map(u64::from_ne_bytes);
            Branch { from, to, flags }
        })
    }

    fn take(fields: &mut Fields<'r>, branch_sample_type: u64) -> Taken<Self> {
        let count = fields.named("branches").u64()?;
        let has = |flag| branch_sample_type & flag != 0;
        let hw_index = when(has(BRANCH_HW_INDEX), || fields.u64())?;
        let entries = fields.tuples(count)?;
        let counters = when(has(BRANCH_COUNTERS), || fields.words(count))?;
        Ok(Self { hw_index, counters, entries })
    }
}

/// Registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registers<'r> {
    /// 1 for 32-bit code, 2 for 64-bit code, 0 if there are no registers (`enum perf_sample_regs_abi`).
    pub abi: u64,
    /// The registers, one bit each (`enum perf_event_x86_regs`, or that of another architecture).
    pub mask: u64,
    /// The values, in the order of the bits.
    pub values: Words<'r>,
}

impl<'r> Registers<'r> {
    fn take(fields: &mut Fields<'r>, mask: u64) -> Taken<Self> {
        let abi = fields.named("registers").u64()?;
        let mask = if abi == PERF_SAMPLE_REGS_ABI_NONE { 0 } else { mask };
        Ok(Self { abi, mask, values: fields.words(mask.count_ones().into())? })
    }

    /// The value of the register with this bit.
    pub fn get(&self, bit: u32) -> Option<u64> {
        let own = 1u64.checked_shl(bit).filter(|own| self.mask & own != 0)?;
        self.values.iter().nth((self.mask & (own - 1)).count_ones() as usize)
    }
}

impl<'r> Sample<'r> {
    /// Reads what follows the header, in the order of the kernel's `perf_output_sample()`. The header file lists AUX in
    /// another position.
    pub(super) fn take(fields: &mut Fields<'r>, layout: &Layout) -> Taken<Self> {
        let has = |flag| layout.sample_type.intersects(flag);
        let word = |fields: &mut Fields<'r>, flag, name| fields.word_if(has(flag), name);
        let identifier = word(fields, SampleType::IDENTIFIER, "identifier")?;
        // Rust evaluates these expressions in the order in which they are written.
        Ok(Self {
            ip: word(fields, SampleType::IP, "ip")?,
            thread: when(has(SampleType::TID), || fields.thread("tid"))?,
            time: word(fields, SampleType::TIME, "time")?,
            addr: word(fields, SampleType::ADDR, "addr")?,
            id: word(fields, SampleType::ID, "id")?.or(identifier),
            stream_id: word(fields, SampleType::STREAM_ID, "stream id")?,
            cpu: when(has(SampleType::CPU), || fields.cpu("cpu"))?,
            period: word(fields, SampleType::PERIOD, "period")?,
            values: when(has(SampleType::READ), || ReadValues::take(fields, layout.read_format))?,
            callchain: match word(fields, SampleType::CALLCHAIN, "callchain")? {
                Some(count) => Some(Callchain(fields.words(count)?)),
                None => None,
            },
            raw: when(has(SampleType::RAW), || raw(fields))?,
            branches: when(has(SampleType::BRANCH_STACK), || {
                Branches::take(fields, layout.branch_sample_type)
            })?,
            regs_user: when(has(SampleType::REGS_USER), || {
                Registers::take(fields, layout.regs_user)
            })?,
            stack_user: when(has(SampleType::STACK_USER), || stack(fields))?,
            weight: word(fields, SampleType::WEIGHT | SampleType::WEIGHT_STRUCT, "weight")?,
            data_src: word(fields, SampleType::DATA_SRC, "data source")?,
            transaction: word(fields, SampleType::TRANSACTION, "transaction")?,
            regs_intr: when(has(SampleType::REGS_INTR), || {
                Registers::take(fields, layout.regs_intr)
            })?,
            phys_addr: word(fields, SampleType::PHYS_ADDR, "physical address")?,
            cgroup: word(fields, SampleType::CGROUP, "cgroup")?,
            data_page_size: word(fields, SampleType::DATA_PAGE_SIZE, "data page size")?,
            code_page_size: word(fields, SampleType::CODE_PAGE_SIZE, "code page size")?,
            aux: word(fields, SampleType::AUX, "AUX data")?
                .map(|len| fields.bytes(len))
                .transpose()?,
        })
    }

    /// The three parts of the weight, of 32, 16 and 16 bits, with [`SampleType::WEIGHT_STRUCT`].
    pub fn weights(&self) -> Option<(u32, u16, u16)> {
        // The parts have the same order in memory on little-endian and big-endian machines.
        self.weight.map(|weight| (weight as u32, (weight >> 32) as u16, (weight >> 48) as u16))
    }
}

/// `{ u32 size; char data[size]; }`.
fn raw<'r>(fields: &mut Fields<'r>) -> Taken<&'r [u8]> {
    let len = fields.named("raw data").u32()?;
    fields.bytes(len.into())
}

/// `{ u64 size; char data[size]; u64 dyn_size; }`, or a size of zero and nothing else.
fn stack<'r>(fields: &mut Fields<'r>) -> Taken<&'r [u8]> {
    let len = fields.named("stack").u64()?;
    if len == 0 {
        return Ok(&[]);
    }
    let data = fields.bytes(len)?;
    let read = fields.u64()?;
    // Bytes beyond the size that was read are stale.
    Ok(usize::try_from(read).ok().and_then(|read| data.get(..read)).unwrap_or(data))
}
