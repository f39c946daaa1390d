//! What is in a ring that is written from its end to its beginning, over what is oldest.
//!
//! Its head decreases: the newest record is at the head, and the older ones follow. The oldest is whole, or
//! its beginning is there and its end is not. Nothing in the ring is believed.

use crate::ring::RingMemory;
use crate::ring::page::Scratch;
use crate::ring::perf_record::{Header, PerfRecord};
use probe_common::{BlockError, RawRecord, Records};

/// A ring that is overwritten, and how far back it was looked at.
#[derive(Debug)]
pub(crate) struct Backward<M> {
    memory: M,
    scratch: Scratch,
    /// The head when it was looked at: from there on, everything is known.
    seen: u64,
}

/// Where an output is in its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// The position of its perf record.
    pub(crate) at: u64,
    /// Bytes of the perf record.
    pub(crate) size: usize,
}

/// What has come into a ring since it was looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Whole perf records, newest first.
    pub(crate) outputs: Vec<Output>,
    /// Bytes of those that were overwritten, wholly or partly.
    pub(crate) overwritten: u64,
    /// Bytes behind one whose size cannot be: nothing tells where the next one starts.
    pub(crate) malformed: u64,
}

impl<M: RingMemory> Backward<M> {
    /// Of what comes from here on.
    pub(crate) fn new(memory: M) -> Self {
        let seen = memory.head();
        Self { memory, scratch: Scratch::new(), seen }
    }

    /// Where the records come from.
    #[cfg(test)]
    fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Whether something has come since it was looked at.
    pub(crate) fn has_more(&self) -> bool {
        self.memory.head() != self.seen
    }

    /// Looks at what has come since it was looked at last. Nobody may write meanwhile.
    pub(crate) fn look(&mut self) -> Found {
        let head = self.memory.head();
        let written = self.seen.wrapping_sub(head);
        self.seen = head;
        let size = self.memory.geometry().size() as u64;
        let there = written.min(size);
        let mut found = Found::default();
        let mut passed = 0;
        while passed < there {
            let at = head.wrapping_add(passed);
            let header = self.memory.bytes(at, Header::LEN, &mut self.scratch);
            let left = there - passed;
            match Header::read(header, usize::MAX) {
                Some((_, size)) if size as u64 <= left => {
                    found.outputs.push(Output { at, size });
                    passed += size as u64;
                }
                // Newer ones lie over its end.
                Some(_) if written > size => break,
                _ => {
                    found.malformed = left;
                    passed = there;
                }
            }
        }
        found.overwritten = written - passed;
        found
    }

    /// The perf record that an output is.
    pub(crate) fn output(&mut self, output: Output) -> PerfRecord<'_> {
        let bytes = self.memory.bytes(output.at, output.size, &mut self.scratch);
        match Header::read(bytes, bytes.len()) {
            Some((header, _)) => PerfRecord::read(header, bytes),
            None => PerfRecord::Malformed,
        }
    }

    /// The record that is so many bytes behind the first one of an output's block.
    pub(crate) fn record(&mut self, output: Output, offset: usize) -> Option<RawRecord<'_>> {
        match self.output(output) {
            PerfRecord::Sample(block) => Records::new(block).ok()?.resume(offset).next()?.ok(),
            _ => None,
        }
    }

    /// Gives every record of an output's block to `take`, whether it was emitted alone, and how many bytes it is behind
    /// the first one.
    pub(crate) fn records(
        &mut self,
        output: Output,
        mut take: impl FnMut(RawRecord<'_>, bool, usize),
    ) -> Result<(), Unsound> {
        let block = match self.output(output) {
            PerfRecord::Sample(block) => block,
            // What was lost, the kernel tells elsewhere as well, and there it is not overwritten.
            PerfRecord::Lost(_) | PerfRecord::Other => return Ok(()),
            PerfRecord::Malformed => return Err(Unsound::Body),
        };
        let mut records = Records::new(block).map_err(Unsound::Block)?;
        loop {
            let offset = records.offset();
            match records.next() {
                Some(Ok(record)) => take(record, records.is_alone(), offset),
                Some(Err(error)) => return Err(Unsound::Block(error)),
                None => return Ok(()),
            }
        }
    }
}

/// Why an output is not what it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsound {
    /// The perf record is not as long as its contents claim.
    Body,
    /// Its block is malformed.
    Block(BlockError),
}

#[cfg(test)]
mod tests;
