//! Record types of the test suite, shared with its eBPF programs.

use probe_common::{Record, RecordKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The `number`th record of a CPU, with contents that tell whether they are whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Numbered {
    /// Counts from 0, whether or not the record is sent.
    pub number: u64,
    /// The CPU that the program ran on.
    pub cpu: u64,
    /// Derived from the number.
    pub fill: [u64; 6],
}

impl Record for Numbered {
    const KIND: RecordKind = RecordKind::user(0);
}

impl Numbered {
    /// The record that has to come out.
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

/// A record whose tail has `number % TAIL_LENS` bytes, each of them the low byte of the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tailed {
    /// Counts from 0.
    pub number: u64,
}

impl Record for Tailed {
    const KIND: RecordKind = RecordKind::user(1);
}

/// The `number`th record of a program that interrupts others on its CPU, with contents as those of
/// [`Numbered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Interrupting(pub Numbered);

impl Record for Interrupting {
    const KIND: RecordKind = RecordKind::user(2);
}

/// A record whose length is not a multiple of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Odd {
    /// Counts from 0; the bytes of a `u32`.
    pub number: [u8; 4],
    /// Derived from the number.
    pub fill: [u8; 9],
}

impl Record for Odd {
    const KIND: RecordKind = RecordKind::user(4);
}

impl Odd {
    /// The record that has to come out.
    #[inline(always)]
    pub fn new(number: u64) -> Self {
        let number = number as u32;
        Self { number: number.to_ne_bytes(), fill: [number.wrapping_mul(0x35) as u8; 9] }
    }
}

/// What a thread's call of a probed function emits. It takes long to fill in.
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

/// Words that tell whether a [`Called`] is whole.
pub const CALLED_WORDS: usize = 30;

impl Record for Called {
    const KIND: RecordKind = RecordKind::user(3);
}

impl Called {
    /// The word of `fill` at `at`.
    #[inline(always)]
    pub fn word(thread: u64, number: u64, at: usize) -> u64 {
        (number << 8 | thread).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(at as u64)
    }
}

/// One more than the longest tail.
pub const TAIL_LENS: u64 = 64;
