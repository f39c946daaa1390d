//! Fetch tables: what a program reads when its probe is hit, and whether it tells of it.
//!
//! One prebuilt program serves every function: user space resolves names and types, and writes a
//! [`FetchTable`] for each probe into the map [`PROBES`]. The program follows it, and emits a
//! [`ProbeHit`](crate::trace::ProbeHit).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The array of [`FetchTable`]s, by the number of the probe.
pub const PROBES: &str = "PROBES";

/// How many arguments of a function can be read: those that the x86-64 and arm64 calling conventions both
/// pass in registers.
pub const ARGUMENTS: usize = 6;

/// How many words of its data a tracepoint's program takes at once, at most: they come where the arguments of
/// functions are.
pub const CONTEXT_WORDS: usize = base::RETVAL as usize;

/// How many words a program by a trampoline reads of its function: those of the arguments
/// (`MAX_BPF_FUNC_ARGS` in `include/linux/bpf.h`), and of what it returns, behind them.
pub const TRAMPOLINE_WORDS: usize = 13;

/// Most fields of a probe, those included that only its predicate looks at.
pub const FIELDS: usize = 16;

/// Most pointers that a field is behind.
pub const STEPS: usize = 6;

/// Most comparisons of a predicate.
pub const CHECKS: usize = 16;

/// Most strings that a predicate compares with.
pub const TEXTS: usize = 4;

/// Longest of these, in bytes.
pub const TEXT_LEN: usize = 64;

/// Longest string or array of bytes that is read, a string's terminating zero included.
pub const LONGEST: usize = 1024;

/// So many bytes of strings, arrays and stacks a hit can have, before the last of them.
pub const DATA: usize = 6144;

/// Where a field's reading starts: values of [`FetchField::base`]. Below [`RETVAL`](base::RETVAL) is an
/// argument, counted from 0.
pub mod base {
    /// What the function returned.
    pub const RETVAL: u8 = 16;
    /// The address of the program's context: for a tracepoint, its data.
    pub const CONTEXT: u8 = 17;
    /// The address of the `task_struct` that runs.
    pub const TASK: u8 = 18;
    /// The process's id.
    pub const PID: u8 = 19;
    /// The thread's id.
    pub const TID: u8 = 20;
    /// The user's id.
    pub const UID: u8 = 21;
    /// The CPU.
    pub const CPU: u8 = 22;
    /// The thread's name: always a [`STRING`](super::kind::STRING).
    pub const COMM: u8 = 23;
    /// How long a call took, in nanoseconds.
    pub const LATENCY: u8 = 24;
    /// What the CPU's first counter counted in a call ([`counter`](crate::counter)); those of the others follow.
    /// Cannot be read if that is not known.
    pub const COUNTER: u8 = 25;
    /// Behind the last of them.
    pub const COUNTERS_END: u8 = COUNTER + crate::counter::COUNTERS as u8;
}

/// What is read at the end: values of [`FetchField::kind`].
pub mod kind {
    /// Nothing more: the value itself.
    pub const VALUE: u8 = 0;
    /// An integer of [`size`](super::FetchField::size) bytes (1, 2, 4 or 8).
    pub const INTEGER: u8 = 1;
    /// A zero-terminated string of at most [`size`](super::FetchField::size) bytes.
    pub const STRING: u8 = 2;
    /// [`size`](super::FetchField::size) bytes.
    pub const BYTES: u8 = 3;
    /// A string whose place in the context a 32-bit word tells: its offset (low half) and length
    /// (`__data_loc` of a tracepoint's format).
    pub const DATA_LOC: u8 = 4;
    /// The same, with an offset that counts from behind the word (`__rel_loc`).
    pub const REL_LOC: u8 = 5;
    /// The addresses of the kernel's functions that led there, the innermost first; of 8 bytes each.
    pub const KERNEL_STACK: u8 = 6;
    /// The same of the process's functions.
    pub const USER_STACK: u8 = 7;
}

/// Bits of [`FetchField::flags`].
pub mod flag {
    /// Shifts right keep the sign.
    pub const SIGNED: u8 = 1;
}

/// How one field is read.
///
/// Its address is `base + offsets[0]`; then, `steps` times, the pointer that is there is read, and the
/// next of `offsets` is added. What is read at the end, `kind` says. An integer is shifted left, then
/// right: so a bit field is cut out, and a sign is spread.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FetchField {
    /// What is added to the base, and to each pointer that is read.
    pub offsets: [i32; STEPS + 1],
    /// Where it starts ([`base`]).
    pub base: u8,
    /// How many pointers are read.
    pub steps: u8,
    /// What is read at the end ([`kind`]).
    pub kind: u8,
    /// Bits ([`flag`]).
    pub flags: u8,
    /// How many bytes are read at the end, at most [`LONGEST`].
    pub size: u16,
    /// How far an integer, as 64 bits, is shifted left, at most 63.
    pub left: u8,
    /// And then right.
    pub right: u8,
    /// Bit `n`: the `n`th read is of the process's memory, not the kernel's. The last one counts, too.
    pub user: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

/// When a program follows a table.
pub mod moment {
    /// When its hook is hit.
    pub const EARLY: u32 = 0;
    /// When a call that has entered there returns.
    pub const LATE: u32 = 1;
}

/// How a [`Check`] compares: values of [`Check::operator`].
pub mod operator {
    /// The field is the value.
    pub const EQUAL: u8 = 0;
    /// It is less, both signed.
    pub const LESS: u8 = 1;
    /// It is less, both unsigned.
    pub const BELOW: u8 = 2;
    /// It is greater, both signed.
    pub const GREATER: u8 = 3;
    /// It is greater, both unsigned.
    pub const ABOVE: u8 = 4;
    /// It has one of the value's bits.
    pub const HAS: u8 = 5;
    /// It is the text of this number (the value), whole.
    pub const TEXT: u8 = 6;
}

/// Where a predicate ends: values of [`Check::on_true`] and [`Check::on_false`].
pub mod verdict {
    /// The hit is told.
    pub const ACCEPT: u8 = 0xfe;
    /// It is not.
    pub const REJECT: u8 = 0xff;
}

/// One comparison of a predicate. A field whose read has failed compares as false.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Check {
    /// The field that is looked at.
    pub field: u8,
    /// How ([`operator`]).
    pub operator: u8,
    /// Which check comes next if it is so, always a later one; or a [`verdict`].
    pub on_true: u8,
    /// And if it is not so.
    pub on_false: u8,
    /// Zero.
    pub reserved: u32,
    /// What it is compared with.
    pub value: u64,
}

/// What a program reads for one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FetchTable {
    /// How many of `fields` there are. Those that are read as integers come first, stacks last.
    pub field_count: u8,
    /// How many of them are integers.
    pub integer_count: u8,
    /// How many of `checks` there are; none accepts everything.
    pub check_count: u8,
    /// Which [`moment`]s have checks that compare a string, a bit each: all checks of such a moment wait
    /// until its strings are read.
    pub checks_text: u8,
    /// Of a call, which of `fields` are read when it returns, a bit each.
    pub late_fields: u16,
    /// How many of `checks` come first, and are made as soon as the hook is hit. The others are made when
    /// the call returns.
    pub early_checks: u8,
    /// How many of `fields` are stacks.
    pub stack_count: u8,
    /// Which of the integers are there without reading memory, a bit each: [values](kind::VALUE) of no steps,
    /// that begin at what [`base`] calls an argument, at what the function returned, or at how long it took.
    pub taken_fields: u16,
    /// How many words of its data a tracepoint's program takes as arguments, at most [`CONTEXT_WORDS`].
    pub context_words: u8,
    /// Zero.
    pub reserved: [u8; 5],
    /// The fields. A hit has a word for each, in this order.
    pub fields: [FetchField; FIELDS],
    /// The predicate, from the first on.
    pub checks: [Check; CHECKS],
    /// The strings that it compares with, padded with zeros.
    pub texts: [[u8; TEXT_LEN]; TEXTS],
}

impl FetchTable {
    /// Reads nothing, and accepts everything.
    pub const EMPTY: Self = Self {
        field_count: 0,
        integer_count: 0,
        check_count: 0,
        checks_text: 0,
        late_fields: 0,
        early_checks: 0,
        stack_count: 0,
        taken_fields: 0,
        context_words: 0,
        reserved: [0; 5],
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
            reserved: [0; 3],
        }; FIELDS],
        checks: [Check { field: 0, operator: 0, on_true: 0, on_false: 0, reserved: 0, value: 0 };
            CHECKS],
        texts: [[0; TEXT_LEN]; TEXTS],
    };
}
