//! The functions that led to a sample.

use super::fields::Words;

/// Marks in a callchain: what follows is of the kernel, or of the process, or of neither
/// (`enum perf_callchain_context`). Every word from the last of them on is one.
const PERF_CONTEXT_KERNEL: u64 = -128i64 as u64;
const PERF_CONTEXT_USER: u64 = -512i64 as u64;
const PERF_CONTEXT_MAX: u64 = -4095i64 as u64;

/// The addresses of functions, from the innermost on: the kernel's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callchain<'r>(Words<'r>);

impl<'r> Callchain<'r> {
    pub(super) fn new(words: Words<'r>) -> Self {
        Self(words)
    }

    /// All words, with the marks among them.
    pub fn words(&self) -> Words<'r> {
        self.0
    }

    /// Addresses in the kernel: where it was interrupted, then where calls return to.
    pub fn kernel(&self) -> Words<'r> {
        self.behind(PERF_CONTEXT_KERNEL)
    }

    /// Addresses in the process: where it was, then where calls return to.
    pub fn user(&self) -> Words<'r> {
        self.behind(PERF_CONTEXT_USER)
    }

    /// What stands between a mark and the next one.
    fn behind(&self, mark: u64) -> Words<'r> {
        let words = self.0.iter();
        let Some(at) = words.clone().position(|word| word == mark) else { return Words::default() };
        let len = words.skip(at + 1).take_while(|word| *word < PERF_CONTEXT_MAX).count();
        self.0.part(at + 1..at + 1 + len)
    }
}
