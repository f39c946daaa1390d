//! Records with something else in every field, as `include/uapi/linux/perf_event.h` and the kernel's
//! `perf_output_sample()` have them. By numbers of its own, which it shares with nothing that reads records.

/// What decides about the fields: of `struct perf_event_attr`, by the names there.
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
/// How many bits there are.
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
/// Registers of x86 that perf has a name for.
const REGISTERS: u64 = (1 << 24) - 1;

/// Every type of record that the kernel has.
pub const KINDS: std::ops::RangeInclusive<u32> = 1..=21;
pub const SAMPLE: u32 = 9;
const CGROUP_MADE: u32 = 19;

impl Attr {
    fn has(&self, bit: u32) -> bool {
        self.sample_type >> bit & 1 != 0
    }
}

/// Numbers that are the same each time (SplitMix64).
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

    /// A word of any width.
    fn word(&mut self) -> u64 {
        let shift = self.below(64);
        self.next() >> shift
    }

    /// An attribute that asks for these bits, and has chance decide about the rest.
    pub fn attr(&mut self, sample_type: u64) -> Attr {
        let mut sample_type = sample_type;
        // The kernel refuses both.
        if sample_type >> WEIGHT & 1 != 0 {
            sample_type &= !(1 << WEIGHT_STRUCT);
        }
        // Of counters, perf wants to know which.
        let read_format = self.below(32) | if sample_type >> READ & 1 != 0 { READ_ID } else { 0 };
        Attr {
            sample_type,
            read_format,
            sample_id_all: self.below(4) != 0,
            branch_sample_type: BRANCH_ANY | if self.below(2) == 0 { BRANCH_HW_INDEX } else { 0 },
            regs_user: self.next() & REGISTERS,
            regs_intr: self.next() & REGISTERS,
        }
    }

    /// Any bits of `sample_type`: few, half of them, or most.
    pub fn sample_type(&mut self) -> u64 {
        let (one, other) = (self.next(), self.next());
        let bits = [one & other, one, one | other][self.below(3) as usize];
        bits & ((1 << BITS) - 1)
    }

    /// A record of this type, of the event that has this id.
    pub fn record(&mut self, kind: u32, attr: &Attr, id: u64) -> Vec<u8> {
        let mut record = Fields { bytes: vec![0; 8], numbers: self };
        let misc = match kind {
            SAMPLE => {
                record.sample(attr, id);
                // Where it was: unknown, in the kernel, in user space, in a hypervisor.
                record.numbers.below(4) as u16 | (record.numbers.below(2) as u16) << 14
            }
            _ => {
                let misc = record.body(kind, attr, id);
                if attr.sample_id_all {
                    record.ids(attr, id);
                }
                misc
            }
        };
        record.finish(kind, misc)
    }

    /// A record of a cgroup that was made.
    pub fn cgroup(&mut self, attr: &Attr, event: u64, id: u64, path: &str) -> Vec<u8> {
        let mut record = Fields { bytes: vec![0; 8], numbers: self };
        record.words(&[id]);
        record.bytes.extend(path.as_bytes());
        record.bytes.push(0);
        record.pad();
        record.ids(attr, event);
        record.finish(CGROUP_MADE, 0)
    }
}

/// A record that grows.
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

    fn words(&mut self, words: &[u64]) {
        self.bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    }

    fn any_words(&mut self, count: u64) {
        for _ in 0..count {
            let word = self.numbers.word();
            self.words(&[word]);
        }
    }

    fn u32s(&mut self, numbers: &[u32]) {
        self.bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    }

    fn u16s(&mut self, numbers: &[u16]) {
        self.bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    }

    fn any_bytes(&mut self, count: u64) {
        let bytes: Vec<_> = (0..count).map(|_| self.numbers.next() as u8).collect();
        self.bytes.extend(bytes);
    }

    /// Zeros, up to the next word, if there is none.
    fn pad(&mut self) {
        let len = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(len, 0);
    }

    /// A name with its NUL.
    fn name(&mut self, at_most: u64) {
        let len = 1 + self.numbers.below(at_most);
        let letters = b"abcdefghijklmnopqrstuvwxyz_0123456789.";
        for _ in 0..len {
            let letter = letters[self.numbers.below(letters.len() as u64) as usize];
            self.bytes.push(letter);
        }
        self.bytes.push(0);
        self.pad();
    }

    /// A process and a thread, or numbers like theirs.
    fn threads(&mut self, count: usize) {
        for _ in 0..count {
            let id = 1 + self.numbers.below(4_000_000) as u32;
            self.u32s(&[id]);
        }
    }

    fn cpu(&mut self) {
        let cpu = self.numbers.below(4000) as u32;
        self.u32s(&[cpu, 0]);
    }

    fn time(&mut self) {
        let time = self.numbers.below(1 << 62);
        self.words(&[time]);
    }

    fn counters(&mut self, format: u64, id: u64) {
        let each = |fields: &mut Self| {
            if format & READ_ID != 0 {
                fields.words(&[id]);
            }
            if format & LOST != 0 {
                fields.any_words(1);
            }
        };
        let is_group = format & GROUP != 0;
        let count = if is_group { 1 + self.numbers.below(4) } else { 1 };
        let first = if is_group { count } else { self.numbers.word() };
        self.words(&[first]);
        for time in [TIME_ENABLED, TIME_RUNNING] {
            if format & time != 0 {
                self.any_words(1);
            }
        }
        for _ in 0..count {
            if is_group {
                self.any_words(1);
            }
            each(self);
        }
    }

    fn registers(&mut self, mask: u64) {
        // A kernel thread's are none.
        let abi = self.numbers.below(3);
        self.words(&[abi]);
        self.any_words(if abi == 0 { 0 } else { mask.count_ones().into() });
    }

    /// Data with its length, as a word, and behind it.
    fn sized(&mut self, at_most_words: u64) -> u64 {
        let len = 8 * self.numbers.below(at_most_words);
        self.words(&[len]);
        self.any_bytes(len);
        len
    }

    fn sample(&mut self, attr: &Attr, id: u64) {
        // What bits of `sample_type` stand for, in the order in which samples have it.
        const ORDER: [u32; BITS as usize] = [
            16, 0, 1, 2, 3, 6, 9, 7, 8, 4, 5, 10, 11, 12, 13, 14, 24, 15, 17, 18, 19, 21, 22, 23,
            20,
        ];
        for bit in ORDER.into_iter().filter(|bit| attr.has(*bit)) {
            match bit {
                IDENTIFIER | ID => self.words(&[id]),
                TID => self.threads(2),
                TIME => self.time(),
                READ => self.counters(attr.read_format, id),
                // A callchain.
                5 => {
                    let count = self.numbers.below(6);
                    self.words(&[count]);
                    self.any_words(count);
                }
                CPU => self.cpu(),
                // It ends with a word.
                RAW => {
                    let len = 4 + 8 * self.numbers.below(5);
                    self.u32s(&[len as u32]);
                    self.any_bytes(len);
                }
                // Branches.
                11 => {
                    let count = self.numbers.below(5);
                    self.words(&[count]);
                    if attr.branch_sample_type & BRANCH_HW_INDEX != 0 {
                        self.any_words(1);
                    }
                    self.any_words(3 * count);
                }
                12 => self.registers(attr.regs_user),
                REGS_INTR => self.registers(attr.regs_intr),
                // The stack, and how much of it could be read.
                13 => match self.sized(6) {
                    0 => {}
                    len => {
                        let read = self.numbers.below(len + 1);
                        self.words(&[read]);
                    }
                },
                WEIGHT_STRUCT => self.any_bytes(8),
                // AUX data.
                20 => _ = self.sized(6),
                // 0 is none.
                CGROUP => {
                    let id = 1 + self.numbers.word() / 2;
                    self.words(&[id]);
                }
                _ => self.any_words(1),
            }
        }
    }

    /// What stands before the ids of a record that is no sample; gives its `misc`.
    fn body(&mut self, kind: u32, attr: &Attr, id: u64) -> u16 {
        let bits = self.numbers.below(4) as u16;
        match kind {
            // A mapping; of data, with the lower bit.
            1 => {
                self.threads(2);
                self.any_words(3);
                self.name(80);
                return (bits & 1) << 13;
            }
            // Lost records; lost samples.
            2 => self.words(&[id]),
            13 => {}
            // A name; that of a program that is executed, with the lower bit.
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
            // An event that is throttled, or no more.
            5 | 6 => {
                self.time();
                self.words(&[id]);
                self.any_words(1);
            }
            // The counters of a thread.
            8 => {
                self.threads(2);
                self.counters(attr.read_format, id);
            }
            // A mapping with its file: by its inode, or, with the higher bit, by its build id.
            10 => {
                self.threads(2);
                self.any_words(3);
                if bits & 2 == 0 {
                    let device =
                        [8 + self.numbers.below(200) as u32, self.numbers.below(256) as u32];
                    self.u32s(&device);
                    self.any_words(2);
                } else {
                    let len = [8, 16, 20][self.numbers.below(3) as usize];
                    self.bytes.extend([len, 0, 0, 0]);
                    self.any_bytes(len.into());
                    self.bytes.extend(std::iter::repeat_n(0, 20 - usize::from(len)));
                }
                let (prot, flags) =
                    (self.numbers.below(8) as u32, 1 + self.numbers.below(2) as u32);
                self.u32s(&[prot, flags]);
                self.name(80);
                return (bits & 1) << 13 | (bits & 2) << 13;
            }
            // Something new in the AUX area.
            11 => {
                self.any_words(2);
                let flags = self.numbers.below(16);
                self.words(&[flags]);
            }
            // A thread that is traced from now on.
            12 => self.threads(2),
            // A switch: away, with the lower bit; preempted, with the higher one.
            14 => return (bits & 1) << 13 | if bits & 1 != 0 { (bits & 2) << 13 } else { 0 },
            15 => {
                self.threads(2);
                return (bits & 1) << 13 | if bits & 1 != 0 { (bits & 2) << 13 } else { 0 };
            }
            // Namespaces.
            16 => {
                self.threads(2);
                let count = 1 + self.numbers.below(7);
                self.words(&[count]);
                for _ in 0..count {
                    let device = self.numbers.below(1 << 32);
                    self.words(&[device]);
                    self.any_words(1);
                }
            }
            // A symbol.
            17 => {
                let (len, kind) = (self.numbers.word() as u32, self.numbers.below(3) as u16);
                self.any_words(1);
                self.u32s(&[len]);
                self.u16s(&[kind, bits & 1]);
                self.name(100);
            }
            // An eBPF program.
            18 => {
                let (kind, flags) = (self.numbers.below(3) as u16, self.numbers.next() as u16);
                let program = self.numbers.word() as u32;
                self.u16s(&[kind, flags]);
                self.u32s(&[program]);
                self.any_bytes(8);
            }
            CGROUP_MADE => {
                self.any_words(1);
                self.name(60);
            }
            // Code that was changed.
            20 => {
                let lens = [1 + self.numbers.below(20) as u16, 1 + self.numbers.below(20) as u16];
                self.any_words(1);
                self.u16s(&lens);
                self.any_bytes(u64::from(lens[0] + lens[1]));
                self.pad();
            }
            // The hardware's name of an event.
            21 => {}
            _ => panic!("the kernel has no records of type {kind}"),
        }
        if matches!(kind, 2 | 13 | 21) {
            self.any_words(1);
        }
        0
    }

    fn ids(&mut self, attr: &Attr, id: u64) {
        for bit in
            [TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER].into_iter().filter(|bit| attr.has(*bit))
        {
            match bit {
                TID => self.threads(2),
                TIME => self.time(),
                CPU => self.cpu(),
                STREAM_ID => self.any_words(1),
                _ => self.words(&[id]),
            }
        }
    }
}
