//! Many records at a time, however many outputs they came in.

use crate::counts::Given;
use crate::ring::perf_record::{Header, PerfRecord};
use crate::sys::prefetch;
use probe_common::{BlockError, RawRecord, RecordKind, Records, record_span};
use std::ops::ControlFlow;

/// So far ahead of the record that is taken, in bytes, the ring is fetched. The processor does so by itself, but only up
/// to the end of a page, of which this is one and a half; and what another CPU has just written is far away.
const AHEAD: usize = 6 << 10;

/// Records of one CPU that are not consumed yet, borrowed from the ring: those of one output after
/// another, until something else comes than records, or it is time to give room back.
#[derive(Debug)]
pub struct Batch<'r> {
    /// Perf records, of which the last may be cut off.
    bytes: &'r [u8],
    /// No perf record is begun from here on.
    limit: usize,
    /// Where the perf record is whose block is being consumed, and where it ends.
    at: usize,
    end: usize,
    /// What is left of that block.
    records: Records<'r>,
    /// Of which kind the last records are that were taken, and how many there are of them in a row.
    kind: RecordKind,
    run: u64,
    /// How many were taken before those.
    taken: u64,
    /// Whether all of them were emitted alone, or none.
    alone: bool,
    /// Where they are counted by kind.
    given: &'r mut Given,
    error: Option<BlockError>,
}

impl<'r> Batch<'r> {
    /// What comes at `at`, of whose first block so much is consumed already.
    #[inline]
    pub(crate) fn new(
        bytes: &'r [u8],
        limit: usize,
        at: usize,
        consumed: usize,
        given: &'r mut Given,
    ) -> Self {
        let mut this = Self::empty(given);
        (this.bytes, this.limit, this.at, this.end) = (bytes, limit, at, at);
        this.go_on();
        if this.is_empty() {
            this.alone = true;
            this.go_on();
        }
        if consumed != 0 {
            this.records = this.records.resume(consumed);
            this.go_on();
        }
        this
    }

    /// One block, of whose records so much is consumed already, in a perf record of `size` bytes.
    pub(crate) fn of_block(
        records: Records<'r>,
        consumed: usize,
        size: usize,
        given: &'r mut Given,
    ) -> Self {
        let mut this = Self::empty(given);
        this.alone = records.is_alone();
        (this.records, this.end) = (records.resume(consumed), size);
        this.go_on();
        this
    }

    #[inline]
    fn empty(given: &'r mut Given) -> Self {
        Self {
            bytes: &[],
            limit: 0,
            at: 0,
            end: 0,
            records: Records::default(),
            kind: RecordKind(0),
            run: 0,
            taken: 0,
            alone: false,
            given,
            error: None,
        }
    }

    /// The kind of the next record, or `None` at the end.
    #[inline(always)]
    pub fn next_kind(&self) -> Option<RecordKind> {
        self.records.next_kind()
    }

    /// The kind of the next record, and how long its payload says it is.
    #[inline(always)]
    pub(crate) fn next_shape(&self) -> Option<(RecordKind, usize)> {
        self.records.next_shape()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Where the perf record begins that is not consumed, or not to its end.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Where it ends.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// How much of its block is consumed: what the next batch is to begin with.
    #[inline]
    pub(crate) fn consumed(&self) -> usize {
        match self.error {
            // What is before it has been taken. Who panics now is told of it the next time.
            Some(BlockError::RecordOverlong { at, .. }) => at,
            _ if self.is_empty() => 0,
            _ => self.records.offset(),
        }
    }

    /// Counts what has been taken, by kind, and gives how many that is in all.
    #[inline]
    pub(crate) fn close(&mut self) -> u64 {
        self.end_run();
        std::mem::take(&mut self.taken)
    }

    /// What is taken next is of this kind.
    #[inline(always)]
    fn start_run(&mut self, kind: RecordKind) {
        if kind != self.kind {
            self.end_run();
            self.kind = kind;
        }
    }

    /// Gives the records of this kind that come next to `take`, until it breaks. Most payloads are `usual` bytes
    /// long.
    #[inline(always)]
    pub(crate) fn take_run<B>(
        &mut self,
        kind: RecordKind,
        usual: usize,
        mut take: impl FnMut(RawRecord<'r>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        // To begin a run, and to end it, takes as long as four records do.
        if self.records.kind_after_next().is_some_and(|other| other != kind) {
            return self.next().map_or(ControlFlow::Continue(()), take);
        }
        self.start_run(kind);
        let records = self.records.clone();
        let mut run = Run { batch: self, records, alike: 0, usual, count: 0 };
        loop {
            // Not worth it for one, which is what a block has where records are not packed.
            if run.records.remaining() > record_span(usual) {
                for record in run.records.alike(kind, usual) {
                    run.alike += 1;
                    prefetch::read_soon(record.payload, AHEAD);
                    take(record)?;
                }
                run.end_alike();
            }
            while let Some(record) = run.records.next_of(kind) {
                match record {
                    Ok(record) => {
                        run.count += 1;
                        take(record)?;
                    }
                    Err(error) => {
                        run.batch.error = Some(error);
                        return ControlFlow::Continue(());
                    }
                }
            }
            if !run.records.is_empty() {
                return ControlFlow::Continue(());
            }
            let Some(records) = run.batch.next_block() else { return ControlFlow::Continue(()) };
            run.records = records;
        }
    }

    #[inline]
    fn end_run(&mut self) {
        let count = std::mem::take(&mut self.run);
        self.given.add(self.kind, count, self.alone);
        self.taken += count;
    }

    /// What is wrong with the block, if that is why the batch ended.
    #[inline]
    pub(crate) fn error(&self) -> Option<BlockError> {
        self.error
    }

    /// Goes on with the next perf record where the block is at its end.
    #[inline(always)]
    fn go_on(&mut self) {
        if self.records.is_empty()
            && let Some(records) = self.next_block()
        {
            self.records = records;
        }
    }

    /// The block of the next perf record, if that is a sound sample, begins before the limit, lies in one piece, and was
    /// emitted alone or not as the others.
    #[inline(always)]
    fn next_block(&mut self) -> Option<Records<'r>> {
        self.at = self.end;
        if self.at >= self.limit {
            return None;
        }
        let rest = &self.bytes[self.at..];
        let (header, size) = Header::read(rest, rest.len())?;
        let PerfRecord::Sample(block) = PerfRecord::read(header, &rest[..size]) else {
            return None;
        };
        let records = Records::new(block).ok()?;
        if records.is_alone() != self.alone {
            return None;
        }
        self.end += size;
        Some(records)
    }
}

/// The records that come next in a batch, apart from it, so that a loop over them is one over registers. What was
/// taken is taken out of the batch when this is dropped, even if a handler panics.
struct Run<'b, 'r> {
    batch: &'b mut Batch<'r>,
    /// What is left of the block, those that are `alike` included.
    records: Records<'r>,
    /// How many were taken that have the usual length, and which that is.
    alike: usize,
    usual: usize,
    /// How many were taken before those.
    count: u64,
}

impl Run<'_, '_> {
    /// Takes those that are alike out of the block.
    #[inline(always)]
    fn end_alike(&mut self) {
        let alike = std::mem::take(&mut self.alike);
        self.records.skip_alike(self.usual, alike);
        self.count += alike as u64;
    }
}

impl Drop for Run<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.end_alike();
        self.batch.records = self.records.clone();
        self.batch.run += self.count;
        if self.batch.error.is_none() {
            self.batch.go_on();
        }
    }
}

/// Takes record after record.
impl<'r> Iterator for Batch<'r> {
    type Item = RawRecord<'r>;

    #[inline(always)]
    fn next(&mut self) -> Option<RawRecord<'r>> {
        match self.records.next()? {
            Ok(record) => {
                self.start_run(record.kind);
                self.run += 1;
                self.go_on();
                Some(record)
            }
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }
}
