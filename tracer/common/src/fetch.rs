//! Fetch tables: what a program reads when its probe is hit, and whether it reports the hit.
//!
//! One prebuilt program serves every function. User space resolves names and types, and writes a
//! [`FetchTable`] for each probe into the map [`PROBES`]. The program follows the table and emits a
//! [`ProbeHit`](crate::trace::ProbeHit).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The array of [`FetchTable`]s, indexed by probe number.
pub const PROBES: &str = "PROBES";

/// How many arguments of a function can be read: those that both the x86-64 and the arm64 calling convention
/// pass in registers.
pub const ARGUMENTS: usize = 6;

/// The most words of its data that a tracepoint's program takes at once. They are stored where a function's
/// arguments would be.
pub const CONTEXT_WORDS: usize = base::RETVAL as usize;

/// How many words a trampoline program reads: the arguments (`MAX_BPF_FUNC_ARGS` in `include/linux/bpf.h`)
/// and, behind them, the return value.
pub const TRAMPOLINE_WORDS: usize = 13;

/// The most fields of a probe, including those that only its predicate reads.
pub const FIELDS: usize = 32;

/// The most pointers between the base of a field and the field itself.
pub const STEPS: usize = 6;

/// The most comparisons in a predicate.
pub const CHECKS: usize = 16;

/// The most strings that a predicate compares with.
pub const TEXTS: usize = 4;

/// The longest such string, in bytes.
pub const TEXT_LEN: usize = 64;

/// The longest string or byte array that is read, in bytes, without a string's terminating zero: `PATH_MAX`.
pub const LONGEST: usize = 4096;

/// How many bytes of strings, arrays and stacks a hit can hold before the last one of maximum length.
pub const DATA: usize = 3272;

/// Behind [`DATA`], strings and arrays are read up to this length while there is room.
pub const SHORT: usize = 1024;

/// The bit of a string's or array's word that marks it as incomplete: the value is longer than what was read.
pub const TRUNCATED: u64 = 1 << 63;

/// The word of a string or array that could not be read because the pointer to it is null.
pub const NULL: u64 = 1;

/// Where the reading of a field starts: values of [`FetchField::base`]. A value below [`RETVAL`](base::RETVAL) is
/// the index of an argument, from 0.
pub mod base {
    /// The return value.
    pub const RETVAL: u8 = 16;
    /// The address of the program's context; for a tracepoint, that of its data.
    pub const CONTEXT: u8 = 17;
    /// The address of the current `task_struct`.
    pub const TASK: u8 = 18;
    /// The process id.
    pub const PID: u8 = 19;
    /// The thread id.
    pub const TID: u8 = 20;
    /// The user id.
    pub const UID: u8 = 21;
    /// The CPU.
    pub const CPU: u8 = 22;
    /// The thread's name; always a [`STRING`](super::kind::STRING).
    pub const COMM: u8 = 23;
    /// The duration of a call, in nanoseconds.
    pub const LATENCY: u8 = 24;
    /// What the first counter counted during a call ([`counter`](crate::counter)); the other counters follow.
    /// The field faults if the count is unknown.
    pub const COUNTER: u8 = 25;
    /// One past the last counter.
    pub const COUNTERS_END: u8 = COUNTER + crate::counter::COUNTERS as u8;
    /// The word of another field of the hit ([`from`](super::FetchField::from)).
    pub const FIELD: u8 = 30;
}

/// What the last read is: values of [`FetchField::kind`].
pub mod kind {
    /// No further read: the value itself.
    pub const VALUE: u8 = 0;
    /// An integer of [`size`](super::FetchField::size) bytes (1, 2, 4 or 8).
    pub const INTEGER: u8 = 1;
    /// A zero-terminated string. At most [`size`](super::FetchField::size) bytes are read, including the terminating
    /// zero.
    pub const STRING: u8 = 2;
    /// [`size`](super::FetchField::size) bytes.
    pub const BYTES: u8 = 3;
    /// A string that a 32-bit word in the context locates: offset (low half) and length (high half), which is
    /// `__data_loc` in a tracepoint's format. The string may lack its terminating zero.
    pub const DATA_LOC: u8 = 4;
    /// The same, with an offset relative to the end of the word (`__rel_loc`).
    pub const REL_LOC: u8 = 5;
    /// The kernel's part of the stack: addresses of 8 bytes each, innermost first.
    pub const KERNEL_STACK: u8 = 6;
    /// The process's part of the stack, in the same form.
    pub const USER_STACK: u8 = 7;
    /// Bytes that are located as for [`DATA_LOC`].
    pub const DATA_LOC_BYTES: u8 = 8;
    /// Bytes that are located as for [`REL_LOC`].
    pub const REL_LOC_BYTES: u8 = 9;
}

/// Bits of [`FetchField::flags`].
pub mod flag {
    /// Right shifts keep the sign.
    pub const SIGNED: u8 = 1;
    /// A string is in an array of [`size`](super::FetchField::size) bytes, and may lack its terminating zero.
    pub const ARRAY: u8 = 2;
    /// A string that begins with a zero byte goes on behind it: the name of an abstract socket.
    pub const ABSTRACT: u8 = 4;
    /// The value is longer than [`size`](super::FetchField::size).
    pub const PARTIAL: u8 = 8;
    /// The [length](super::FetchField::length) of a string or array is unsigned. A negative length is 0.
    pub const UNSIGNED_LENGTH: u8 = 16;
    /// A stack that the kernel reads without the caller of the function that was entered. The program inserts it.
    pub const CALLER: u8 = 32;
    /// What a call fills: it is read at the return, although nothing else in the field comes from there.
    pub const FILLED: u8 = 64;
}

/// How one field is read.
///
/// The address starts as `base + offsets[0]`. Then, `steps` times, the pointer at that address is read and the next
/// of `offsets` is added. `kind` says what is read at the final address. An integer is shifted left, then right,
/// which extracts a bit field and extends a sign.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FetchField {
    /// The offsets that are added to the base and to each pointer.
    pub offsets: [i32; STEPS + 1],
    /// The starting point ([`base`]).
    pub base: u8,
    /// The number of pointers to follow.
    pub steps: u8,
    /// What the last read is ([`kind`]).
    pub kind: u8,
    /// Bits ([`flag`]).
    pub flags: u8,
    /// The size of the last read in bytes, at most [`LONGEST`]; for strings, 1 more.
    pub size: u16,
    /// How far to shift an integer, taken as 64 bits, to the left: at most 63.
    pub left: u8,
    /// How far to shift it to the right afterwards.
    pub right: u8,
    /// Bit `n` is set if the `n`th read, the last one included, is from the process's memory and not from the kernel's.
    pub user: u8,
    /// For strings and bytes: 1 plus the index of the integer that is their length, if one is; otherwise 0.
    pub length: u8,
    /// The same for another integer that their length does not exceed, whatever `length` says; unsigned.
    pub room: u8,
    /// For the base [`FIELD`](base::FIELD): the index of that field, an integer.
    pub from: u8,
    /// 1 plus the index of the first read of the [waiting](FetchTable::waiting_fields) part: from this one on, all reads are
    /// from the process's memory. 0 if the field does not wait.
    pub resume: u8,
    /// Not used.
    pub padding: [u8; 3],
}

/// When a program follows a table.
pub mod moment {
    /// When its hook is hit.
    pub const EARLY: u32 = 0;
    /// When a call that was entered there returns.
    pub const LATE: u32 = 1;
}

/// How a [`Check`] compares: values of [`Check::operator`].
pub mod operator {
    /// The field equals the value.
    pub const EQUAL: u8 = 0;
    /// The field is less than the value; both are signed.
    pub const LESS: u8 = 1;
    /// The field is less than the value; both are unsigned.
    pub const BELOW: u8 = 2;
    /// The field is greater than the value; both are signed.
    pub const GREATER: u8 = 3;
    /// The field is greater than the value; both are unsigned.
    pub const ABOVE: u8 = 4;
    /// The field has at least one of the value's bits.
    pub const HAS: u8 = 5;
    /// The field equals a text, to its end; the value is a [`Literal`](super::Literal).
    pub const TEXT: u8 = 6;
    /// The field matches a pattern; the value is a [`Pattern`](super::Pattern).
    pub const LIKE: u8 = 7;
    /// The field and the [other](super::Check::other) one are the same string.
    pub const SAME: u8 = 8;
    /// Added to an operator between numbers: the comparison holds if it does not without this. A field that cannot be read
    /// fails it, too.
    pub const NOT: u8 = 0x80;
}

/// A text that strings and bytes are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Literal {
    /// The index of the text.
    pub text: u8,
    /// Its length in bytes, at most [`TEXT_LEN`].
    pub len: u8,
}

impl Literal {
    /// The literal as the value of a check.
    #[inline(always)]
    pub const fn value(self) -> u64 {
        u64::from_le_bytes([self.text, self.len, 0, 0, 0, 0, 0, 0])
    }

    /// The literal that is the value of a check.
    #[inline(always)]
    pub const fn of(value: u64) -> Self {
        let [text, len, ..] = value.to_le_bytes();
        Self { text, len }
    }
}

/// A pattern that strings and bytes are compared with: a beginning, an end, and parts that follow each other somewhere between
/// them. A text has the bytes of the beginning, then those of the end, and then the parts, each after a byte with its
/// length. A zero in one of them stands for any byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// The index of the text.
    pub text: u8,
    /// The length of the beginning.
    pub begin: u8,
    /// The length of the end.
    pub end: u8,
    /// The length of all parts between them.
    pub between: u8,
    /// 1 if nothing else may be between them, otherwise 0.
    pub is_whole: u8,
}

impl Pattern {
    /// The most parts between the beginning and the end.
    pub const PARTS: usize = TEXT_LEN / 2;

    /// How many bytes a string has at least that matches.
    pub const fn least(self) -> usize {
        self.begin as usize + self.end as usize + self.between as usize
    }

    /// The pattern as the value of a check.
    #[inline(always)]
    pub const fn value(self) -> u64 {
        let Self { text, begin, end, between, is_whole } = self;
        u64::from_le_bytes([text, begin, end, between, is_whole, 0, 0, 0])
    }

    /// The pattern that is the value of a check.
    #[inline(always)]
    pub const fn of(value: u64) -> Self {
        let [text, begin, end, between, is_whole, ..] = value.to_le_bytes();
        Self { text, begin, end, between, is_whole }
    }
}

/// How a predicate ends: values of [`Check::on_true`] and [`Check::on_false`].
pub mod verdict {
    /// The hit is reported.
    pub const ACCEPT: u8 = 0xfe;
    /// The hit is dropped.
    pub const REJECT: u8 = 0xff;
}

/// One comparison of a predicate. A field that could not be read compares as false.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Check {
    /// The index of the field.
    pub field: u8,
    /// The kind of comparison ([`operator`]).
    pub operator: u8,
    /// The next check if the comparison holds, which is always a later one, or a [`verdict`].
    pub on_true: u8,
    /// The same if it does not hold.
    pub on_false: u8,
    /// 1 plus the index of the field to compare with; 0 for a comparison with `value`.
    pub other: u8,
    /// 1 if the comparison is negated: a hit for which it does not hold is rather reported than one for which it does.
    pub is_negated: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// The value to compare with.
    pub value: u64,
}

impl Check {
    /// A check for unused places of a table.
    const UNUSED: Self = Self {
        field: 0,
        operator: 0,
        on_true: 0,
        on_false: 0,
        other: 0,
        is_negated: 0,
        reserved: [0; 2],
        value: 0,
    };
}

/// What a program reads for one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FetchTable {
    /// How many of `fields` are used. Integers come first, stacks last.
    pub field_count: u8,
    /// How many of them are integers.
    pub integer_count: u8,
    /// How many of `checks` are used. With none, every hit is accepted.
    pub check_count: u8,
    /// A bit for each [`moment`] that has checks of strings. All checks of such a moment wait until its strings are
    /// read.
    pub checks_text: u8,
    /// How many of `checks`, from the first on, are evaluated as soon as the hook is hit. The others are evaluated
    /// when the call returns.
    pub early_checks: u8,
    /// How many of `fields` are stacks.
    pub stack_count: u8,
    /// How many words of its data a tracepoint's program takes as arguments, at most [`CONTEXT_WORDS`].
    pub context_words: u8,
    /// 1 if the probe is in a program or library, where a string may be read after a return from the kernel.
    pub is_in_process: u8,
    /// For calls: a bit for each of `fields` that is read at the return.
    pub late_fields: u32,
    /// A bit for each integer that needs no memory read: [values](kind::VALUE) without steps, based on an argument,
    /// the return value or the duration.
    pub taken_fields: u32,
    /// A bit for each field that is worth another read if it faults: its last reads are from the process's memory, of which
    /// a page may be missing until the kernel or the process needs it.
    pub waiting_fields: u32,
    /// Zero.
    pub reserved: u32,
    /// The fields. A hit has a word for each of them, in this order.
    pub fields: [FetchField; FIELDS],
    /// The predicate; evaluation starts with the first check.
    pub checks: [Check; CHECKS],
    /// The strings that the predicate compares with, padded with zeros.
    pub texts: [[u8; TEXT_LEN]; TEXTS],
}

impl FetchTable {
    /// A table that reads nothing and accepts everything.
    pub const EMPTY: Self = Self {
        field_count: 0,
        integer_count: 0,
        check_count: 0,
        checks_text: 0,
        early_checks: 0,
        stack_count: 0,
        context_words: 0,
        is_in_process: 0,
        late_fields: 0,
        taken_fields: 0,
        waiting_fields: 0,
        reserved: 0,
        fields: [FetchField {
            offsets: [0; STEPS + 1],
            base: 0,
            steps: 0,
            kind: 0,
            flags: 0,
            size: 0,
            left: 0,
            right: 0,
            user: 0,
            length: 0,
            from: 0,
            resume: 0,
            room: 0,
            padding: [0; 3],
        }; FIELDS],
        checks: [Check::UNUSED; CHECKS],
        texts: [[0; TEXT_LEN]; TEXTS],
    };
}
