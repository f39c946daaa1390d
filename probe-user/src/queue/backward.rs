//! Reads a ring that is written from its end to its beginning and overwrites its oldest records.
//!
//! The head decreases: the newest record is at the head, and older ones follow it. The oldest record is
//! either whole or has lost its end. Nothing in the ring is trusted.

use crate::queue::notices::MalformedReason;
use probe_common::{RawRecord, Records};
use probe_sys::ring::RingMemory;
use probe_sys::ring::page::Scratch;
use probe_sys::ring::perf_record::{Header, PerfRecord};

/// An overwritten ring, and how much of it has been read.
#[derive(Debug)]
pub(crate) struct Backward<M> {
    memory: M,
    scratch: Scratch,
    /// The head at the last look. Everything from there on is known.
    seen: u64,
}

/// The location of an output in its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// The position of its perf record.
    pub(crate) at: u64,
    /// The size of the perf record in bytes.
    pub(crate) size: usize,
}

/// What has been written to a ring since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Whole perf records, newest first.
    pub(crate) outputs: Vec<Output>,
    /// Bytes of perf records that were overwritten, wholly or partly.
    pub(crate) overwritten: u64,
    /// Bytes from a perf record with an impossible size on. Nothing shows where the next record starts.
    pub(crate) malformed: u64,
}

impl<M: RingMemory> Backward<M> {
    /// Starts at the current head: only later records are found.
    pub(crate) fn new(memory: M) -> Self {
        let seen = memory.head();
        Self { memory, scratch: Scratch::default(), seen }
    }

    /// The memory that the records come from.
    #[cfg(test)]
    fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Whether anything has been written since the last look.
    pub(crate) fn has_more(&self) -> bool {
        self.unread() > 0
    }

    /// How many bytes have been written since the last look.
    pub(crate) fn unread(&self) -> u64 {
        self.seen.wrapping_sub(self.memory.head())
    }

    /// Finds what has been written since the last look. No program may write to the ring meanwhile.
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
                // Newer records have overwritten its end.
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

    /// The perf record of an output.
    pub(crate) fn output(&mut self, output: Output) -> PerfRecord<'_> {
        let bytes = self.memory.bytes(output.at, output.size, &mut self.scratch);
        match Header::read(bytes, bytes.len()) {
            Some((header, _)) => PerfRecord::read(header, bytes),
            None => PerfRecord::Malformed,
        }
    }

    /// The record that starts `offset` bytes after the first record of an output's block.
    pub(crate) fn record(&mut self, output: Output, offset: usize) -> Option<RawRecord<'_>> {
        match self.output(output) {
            PerfRecord::Sample(block) => Records::new(block).ok()?.resume(offset).next()?.ok(),
            _ => None,
        }
    }

    /// Passes every record of an output's block to `take`, with its distance in bytes from the first record. Fails
    /// if the output is malformed.
    pub(crate) fn records(
        &mut self,
        output: Output,
        mut take: impl FnMut(RawRecord<'_>, usize),
    ) -> Result<(), MalformedReason> {
        let block = match self.output(output) {
            PerfRecord::Sample(block) => block,
            // The kernel reports losses elsewhere as well, where they are not overwritten.
            PerfRecord::Lost(_) | PerfRecord::Other => return Ok(()),
            PerfRecord::Malformed => return Err(MalformedReason::RecordBody),
        };
        let mut records = Records::new(block).map_err(MalformedReason::Block)?;
        loop {
            let offset = records.offset();
            match records.next() {
                Some(Ok(record)) => take(record, offset),
                Some(Err(error)) => return Err(MalformedReason::Block(error)),
                None => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
