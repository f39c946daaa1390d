//! Generates records with distinct values in every field, as specified by
//! `include/uapi/linux/perf_event.h` and the kernel's `perf_output_sample()`. Shares no constants
//! with the code under test.

use zerocopy::{Immutable, IntoBytes};

/// The members of `struct perf_event_attr` that determine a record's fields.
#[derive(Clone, Copy, Debug)]
pub struct Attr {
    pub sample_type: u64,
    pub read_format: u64,
    pub sample_id_all: bool,
    pub branch_sample_type: u64,
    pub regs_user: u64,
    pub regs_intr: u64,
}

/// Bits of `sample_type`.
pub const IP: u32 = 0;
pub const TID: u32 = 1;
pub const TIME: u32 = 2;
pub const READ: u32 = 4;
pub const ID: u32 = 6;
pub const CPU: u32 = 7;
const STREAM_ID: u32 = 9;
pub const RAW: u32 = 10;
const WEIGHT: u32 = 14;
pub const IDENTIFIER: u32 = 16;
pub const REGS_INTR: u32 = 18;
pub const CGROUP: u32 = 21;
const WEIGHT_STRUCT: u32 = 24;
/// Number of bits in `sample_type`.
pub const BITS: u32 = 25;

/// Bits of `read_format`.
const TIME_ENABLED: u64 = 1 << 0;
const TIME_RUNNING: u64 = 1 << 1;
const READ_ID: u64 = 1 << 2;
const GROUP: u64 = 1 << 3;
const LOST: u64 = 1 << 4;

/// `PERF_SAMPLE_BRANCH_ANY` and `PERF_SAMPLE_BRANCH_HW_INDEX`.
const BRANCH_ANY: u64 = 1 << 3;
const BRANCH_HW_INDEX: u64 = 1 << 17;
/// x86 registers that perf has names for.
const REGISTERS: u64 = (1 << 24) - 1;

/// All record types of the kernel.
pub const KINDS: std::ops::RangeInclusive<u32> = 1..=21;
pub const SAMPLE: u32 = 9;
const CGROUP_MADE: u32 = 19;

impl Attr {
    fn has(&self, bit: u32) -> bool {
        self.sample_type >> bit & 1 != 0
    }
}

/// A reproducible random number generator (SplitMix64).
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A word with a random number of significant bits.
    fn word(&mut self) -> u64 {
        let shift = self.below(64);
        self.next() >> shift
    }

    /// An attribute with these bits of `sample_type`, and random values elsewhere.
    pub fn attr(&mut self, sample_type: u64) -> Attr {
        // The kernel rejects the combination of both.
        let excluded = (sample_type >> WEIGHT & 1) << WEIGHT_STRUCT;
        // perf needs the ids of counters.
        let read_format = self.below(32) | if sample_type >> READ & 1 != 0 { READ_ID } else { 0 };
        Attr {
            sample_type: sample_type & !excluded,
            read_format,
            sample_id_all: self.below(4) != 0,
            branch_sample_type: BRANCH_ANY | if self.below(2) == 0 { BRANCH_HW_INDEX } else { 0 },
            regs_user: self.next() & REGISTERS,
            regs_intr: self.next() & REGISTERS,
        }
    }

    /// Random bits of `sample_type`: few, half or most of them.
    pub fn sample_type(&mut self) -> u64 {
        let (one, other) = (self.next(), self.next());
        let bits = [one & other, one, one | other][self.below(3) as usize];
        bits & ((1 << BITS) - 1)
    }

    /// A record of type `kind`, for the event with this id.
    pub fn record(&mut self, kind: u32, attr: &Attr, id: u64) -> Vec<u8> {
        let mut record = Fields { bytes: vec![0; 8], numbers: self };
        if kind == SAMPLE {
            record.sample(attr, id);
            // The mode: unknown, kernel, user space or hypervisor.
            let misc = record.numbers.below(4) as u16 | (record.numbers.below(2) as u16) << 14;
            return record.finish(kind, misc);
        }
        let misc = record.body(kind, attr, id);
        if attr.sample_id_all {
            record.ids(attr, id);
        }
        record.finish(kind, misc)
    }

    /// A record of a new cgroup.
    pub fn cgroup(&mut self, attr: &Attr, event: u64, id: u64, path: &str) -> Vec<u8> {
        let mut record = Fields { bytes: vec![0; 8], numbers: self };
        record.put(&[id]);
        record.text(path.as_bytes());
        record.ids(attr, event);
        record.finish(CGROUP_MADE, 0)
    }
}

/// A record under construction.
struct Fields<'n> {
    bytes: Vec<u8>,
    numbers: &'n mut Numbers,
}

impl Fields<'_> {
    /// Fills in the header.
    fn finish(self, kind: u32, misc: u16) -> Vec<u8> {
        let mut bytes = self.bytes;
        let size = u16::try_from(bytes.len()).unwrap();
        assert_eq!(size % 8, 0, "type {kind}");
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..6].copy_from_slice(&misc.to_ne_bytes());
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        bytes
    }

    fn put<T: IntoBytes + Immutable>(&mut self, numbers: &[T]) {
        self.bytes.extend(numbers.as_bytes());
    }

    fn any_words(&mut self, count: u64) {
        for _ in 0..count {
            let word = self.numbers.word();
            self.put(&[word]);
        }
    }

    fn any_bytes(&mut self, count: u64) {
        let bytes: Vec<_> = (0..count).map(|_| self.numbers.next() as u8).collect();
        self.bytes.extend(bytes);
    }

    /// Pads with zeros to a multiple of eight bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// A text with its NUL.
    fn text(&mut self, text: &[u8]) {
        self.put(text);
        self.put(&[0u8]);
        self.pad();
    }

    /// A random name.
    fn name(&mut self, at_most: u64) {
        let letters = b"abcdefghijklmnopqrstuvwxyz_0123456789.";
        let len = 1 + self.numbers.below(at_most);
        let mut letter = || letters[self.numbers.below(letters.len() as u64) as usize];
        let name: Vec<u8> = (0..len).map(|_| letter()).collect();
        self.text(&name);
    }

    /// `count` random process or thread ids.
    fn threads(&mut self, count: usize) {
        for _ in 0..count {
            let id = 1 + self.numbers.below(4_000_000) as u32;
            self.put(&[id]);
        }
    }

    fn cpu(&mut self) {
        let cpu = self.numbers.below(4000) as u32;
        self.put(&[cpu, 0]);
    }

    fn time(&mut self) {
        let time = self.numbers.below(1 << 62);
        self.put(&[time]);
    }

    fn counters(&mut self, format: u64, id: u64) {
        let is_group = format & GROUP != 0;
        let count = if is_group { 1 + self.numbers.below(4) } else { 1 };
        let first = if is_group { count } else { self.numbers.word() };
        self.put(&[first]);
        self.any_words((format & (TIME_ENABLED | TIME_RUNNING)).count_ones().into());
        for _ in 0..count {
            self.any_words(is_group.into());
            if format & READ_ID != 0 {
                self.put(&[id]);
            }
            self.any_words((format & LOST).count_ones().into());
        }
    }

    fn registers(&mut self, mask: u64) {
        // Kernel threads have no user registers.
        let abi = self.numbers.below(3);
        self.put(&[abi]);
        self.any_words(if abi == 0 { 0 } else { mask.count_ones().into() });
    }

    /// Random data, preceded by its length as a word.
    fn sized(&mut self, at_most_words: u64) -> u64 {
        let len = 8 * self.numbers.below(at_most_words);
        self.put(&[len]);
        self.any_bytes(len);
        len
    }

    fn sample(&mut self, attr: &Attr, id: u64) {
        // The bits of `sample_type`, in the order of their fields in a sample.
        const ORDER: [u32; BITS as usize] = [
            16, 0, 1, 2, 3, 6, 9, 7, 8, 4, 5, 10, 11, 12, 13, 14, 24, 15, 17, 18, 19, 21, 22, 23,
            20,
        ];
        for bit in ORDER.into_iter().filter(|bit| attr.has(*bit)) {
            match bit {
                IDENTIFIER | ID => self.put(&[id]),
                TID => self.threads(2),
                TIME => self.time(),
                READ => self.counters(attr.read_format, id),
                // A callchain.
                5 => {
                    let count = self.numbers.below(6);
                    self.put(&[count]);
                    self.any_words(count);
                }
                CPU => self.cpu(),
                // Raw data ends at a word boundary.
                RAW => {
                    let len = 4 + 8 * self.numbers.below(5);
                    self.put(&[len as u32]);
                    self.any_bytes(len);
                }
                // Branches.
                11 => {
                    let count = self.numbers.below(5);
                    self.put(&[count]);
                    let has_index = attr.branch_sample_type & BRANCH_HW_INDEX != 0;
                    self.any_words(u64::from(has_index) + 3 * count);
                }
                12 => self.registers(attr.regs_user),
                REGS_INTR => self.registers(attr.regs_intr),
                // The stack, followed by how much of it was readable.
                13 => {
                    let len = self.sized(6);
                    if len > 0 {
                        let read = self.numbers.below(len + 1);
                        self.put(&[read]);
                    }
                }
                WEIGHT_STRUCT => self.any_bytes(8),
                // AUX data.
                20 => _ = self.sized(6),
                // 0 means no cgroup.
                CGROUP => {
                    let id = 1 + self.numbers.word() / 2;
                    self.put(&[id]);
                }
                _ => self.any_words(1),
            }
        }
    }

    /// Everything before the ids of a record other than a sample. Returns its `misc`.
    fn body(&mut self, kind: u32, attr: &Attr, id: u64) -> u16 {
        let bits = self.numbers.below(4) as u16;
        match kind {
            // A mapping. The lower bit marks data.
            1 => {
                self.threads(2);
                self.any_words(3);
                self.name(80);
                return (bits & 1) << 13;
            }
            // Lost records.
            2 => {
                self.put(&[id]);
                self.any_words(1);
            }
            // A name. The lower bit marks an exec.
            3 => {
                self.threads(2);
                self.name(15);
                return (bits & 1) << 13;
            }
            // An exit, and a fork.
            4 | 7 => {
                self.threads(4);
                self.time();
            }
            // Throttling or unthrottling.
            5 | 6 => {
                self.time();
                self.put(&[id]);
                self.any_words(1);
            }
            // The counters of a thread.
            8 => {
                self.threads(2);
                self.counters(attr.read_format, id);
            }
            // A mapping of a file, identified by inode or, with the higher bit, by build id.
            10 => {
                self.threads(2);
                self.any_words(3);
                if bits & 2 == 0 {
                    let device =
                        [8 + self.numbers.below(200) as u32, self.numbers.below(256) as u32];
                    self.put(&device);
                    self.any_words(2);
                } else {
                    let len = [8, 16, 20][self.numbers.below(3) as usize];
                    self.put(&[len as u32]);
                    self.any_bytes(len);
                    self.bytes.resize(self.bytes.len() + 20 - len as usize, 0);
                }
                let (prot, flags) =
                    (self.numbers.below(8) as u32, 1 + self.numbers.below(2) as u32);
                self.put(&[prot, flags]);
                self.name(80);
                return (bits & 1) << 13 | (bits & 2) << 13;
            }
            // New data in the AUX area.
            11 => {
                self.any_words(2);
                let flags = self.numbers.below(16);
                self.put(&[flags]);
            }
            // The start of an instruction trace.
            12 => self.threads(2),
            // A switch. The lower bit marks a switch away, the higher one preemption.
            14 | 15 => {
                self.threads(if kind == 15 { 2 } else { 0 });
                return (bits & 1) << 13 | if bits & 1 != 0 { (bits & 2) << 13 } else { 0 };
            }
            // Namespaces.
            16 => {
                self.threads(2);
                let count = 1 + self.numbers.below(7);
                self.put(&[count]);
                for _ in 0..count {
                    let device = self.numbers.below(1 << 32);
                    self.put(&[device]);
                    self.any_words(1);
                }
            }
            // A symbol.
            17 => {
                let (len, kind) = (self.numbers.word() as u32, self.numbers.below(3) as u16);
                self.any_words(1);
                self.put(&[len]);
                self.put(&[kind, bits & 1]);
                self.name(100);
            }
            // An eBPF program.
            18 => {
                let (kind, flags) = (self.numbers.below(3) as u16, self.numbers.next() as u16);
                let program = self.numbers.word() as u32;
                self.put(&[kind, flags]);
                self.put(&[program]);
                self.any_bytes(8);
            }
            CGROUP_MADE => {
                self.any_words(1);
                self.name(60);
            }
            // Modified kernel code.
            20 => {
                let lens = [1 + self.numbers.below(20) as u16, 1 + self.numbers.below(20) as u16];
                self.any_words(1);
                self.put(&lens);
                self.any_bytes(u64::from(lens[0] + lens[1]));
                self.pad();
            }
            // Lost samples, and a hardware event id.
            13 | 21 => self.any_words(1),
            _ => panic!("the kernel has no records of type {kind}"),
        }
        0
    }

    fn ids(&mut self, attr: &Attr, id: u64) {
        const ORDER: [u32; 6] = [TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER];
        for bit in ORDER.into_iter().filter(|bit| attr.has(*bit)) {
            match bit {
                TID => self.threads(2),
                TIME => self.time(),
                CPU => self.cpu(),
                STREAM_ID => self.any_words(1),
                _ => self.put(&[id]),
            }
        }
    }
}
