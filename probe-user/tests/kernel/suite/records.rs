//! Record types shared by the test suite and its eBPF programs.

use probe_common::{Record, RecordKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The `number`th record of a CPU, with contents that reveal a torn record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Numbered {
    /// Counts from 0, including records that were not sent.
    pub number: u64,
    /// The CPU on which the program ran.
    pub cpu: u64,
    /// Derived from the number.
    pub fill: [u64; 6],
}

impl Record for Numbered {
    const KIND: RecordKind = RecordKind::user(0);
}

impl Numbered {
    /// The expected record.
    #[inline(always)]
    pub fn new(number: u64, cpu: u64) -> Self {
        let mut fill = [0; 6];
        let mut at = 0;
        while at < fill.len() {
            fill[at] = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(at as u64);
            at += 1;
        }
        Self { number, cpu, fill }
    }
}

/// A record with a tail of `number % TAIL_LENS` bytes, each equal to the low byte of the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tailed {
    /// Counts from 0.
    pub number: u64,
}

impl Record for Tailed {
    const KIND: RecordKind = RecordKind::user(1);
}

/// The `number`th record of a program that interrupts others on its CPU, with the contents of
/// [`Numbered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Interrupting(pub Numbered);

impl Record for Interrupting {
    const KIND: RecordKind = RecordKind::user(2);
}

/// A thread's call of the probed function. Filling in this record takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Called {
    /// The first argument.
    pub thread: u64,
    /// The second argument.
    pub number: u64,
    /// Derived from both.
    pub fill: [u64; CALLED_WORDS],
}

/// Words that reveal a torn [`Called`].
pub const CALLED_WORDS: usize = 30;

impl Record for Called {
    const KIND: RecordKind = RecordKind::user(3);
}

impl Called {
    /// The word of `fill` at index `at`.
    #[inline(always)]
    pub fn word(thread: u64, number: u64, at: usize) -> u64 {
        (number << 8 | thread).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(at as u64)
    }
}

/// The longest tail plus one.
pub const TAIL_LENS: u64 = 64;

/// What a program that does not use `probe_ebpf` outputs.
pub const FOREIGN: [u8; 5] = *b"hello";

/// How many bytes of the packet it appends.
pub const FOREIGN_PACKET: u64 = 6;
