//! Batches of records, which can span many outputs.

use crate::queue::counts::KindCounts;
use probe_common::{BlockError, RawRecord, RecordKind, Records, record_span};
use probe_sys::prefetch;
use probe_sys::ring::perf_record::{Header, PerfRecord};
use std::ops::ControlFlow;

/// How far ahead of the current record the ring is prefetched, in bytes: one and a half pages. The hardware
/// prefetcher stops at the end of a page, and reading what another CPU has just written is slow.
const AHEAD: usize = 6 << 10;

/// Records of one CPU that are not consumed yet, borrowed from the ring.
///
/// A batch covers consecutive outputs. It ends where something other than records follows, or when it is time
/// to hand room back to the kernel.
#[derive(Debug)]
pub struct Batch<'r> {
    /// Perf records. The last one may be cut off.
    bytes: &'r [u8],
    /// No perf record that begins here or later is read.
    limit: usize,
    /// Where the perf record of the current block begins, and where it ends.
    at: usize,
    end: usize,
    /// The rest of that block.
    records: Records<'r>,
    /// The kind of the records taken last, and how many of them were taken in a row.
    kind: RecordKind,
    run: u64,
    /// How many records were taken before those.
    taken: u64,
    /// Counts the taken records by kind.
    given: &'r KindCounts,
    error: Option<BlockError>,
}

impl<'r> Batch<'r> {
    /// The batch that begins at `at`. The first `consumed` bytes of its first block are consumed already.
    #[inline]
    pub(crate) fn new(
        bytes: &'r [u8],
        limit: usize,
        at: usize,
        consumed: usize,
        given: &'r KindCounts,
    ) -> Self {
        let mut this = Self::empty(given);
        (this.bytes, this.limit, this.at, this.end) = (bytes, limit, at, at);
        this.go_on();
        if consumed != 0 {
            this.records = this.records.resume(consumed);
            this.go_on();
        }
        this
    }

    /// A batch of one block in a perf record of `size` bytes. The first `consumed` bytes of the block are
    /// consumed already.
    pub(crate) fn of_block(
        records: Records<'r>,
        consumed: usize,
        size: usize,
        given: &'r KindCounts,
    ) -> Self {
        let mut this = Self::empty(given);
        (this.records, this.end) = (records.resume(consumed), size);
        this.go_on();
        this
    }

    #[inline]
    fn empty(given: &'r KindCounts) -> Self {
        Self {
            bytes: &[],
            limit: 0,
            at: 0,
            end: 0,
            records: Records::default(),
            kind: RecordKind(0),
            run: 0,
            taken: 0,
            given,
            error: None,
        }
    }

    /// The kind of the next record, or `None` at the end.
    #[inline(always)]
    pub fn next_kind(&self) -> Option<RecordKind> {
        self.records.next_kind()
    }

    /// The kind of the next record, and the payload length that its header claims.
    #[inline(always)]
    pub(crate) fn next_shape(&self) -> Option<(RecordKind, usize)> {
        self.records.next_shape()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Where the first perf record begins that is not consumed completely.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Where that perf record ends.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// How much of its block is consumed, in bytes. The next batch starts there.
    #[inline]
    pub(crate) fn consumed(&self) -> usize {
        match self.error {
            // The records before `at` have been taken. If the consumer panics now, the next batch reports the
            // error.
            Some(BlockError::RecordOverlong { at, .. }) => at,
            _ if self.is_empty() => 0,
            _ => self.records.offset(),
        }
    }

    /// Adds the taken records to the counts by kind, and returns their number.
    #[inline]
    pub(crate) fn close(&mut self) -> u64 {
        self.end_run();
        std::mem::take(&mut self.taken)
    }

    /// Prepares for taking records of this kind.
    #[inline(always)]
    fn start_run(&mut self, kind: RecordKind) {
        if kind != self.kind {
            self.end_run();
            self.kind = kind;
        }
    }

    /// Passes the next records, as long as they are of this kind, to `take`, until it breaks. `usual` is the
    /// length of most payloads in bytes.
    #[inline(always)]
    pub(crate) fn take_run<B>(
        &mut self,
        kind: RecordKind,
        usual: usize,
        mut take: impl FnMut(RawRecord<'r>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        // Starting and ending a run costs as much as four records.
        if self.records.kind_after_next().is_some_and(|other| other != kind) {
            return self.next().map_or(ControlFlow::Continue(()), take);
        }
        self.start_run(kind);
        let records = self.records.clone();
        let mut run = Run { batch: self, records, alike: 0, usual, count: 0 };
        loop {
            // Not worth it for a single record, which is all that a block of unpacked records has.
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
        self.given.add(self.kind, count);
        self.taken += count;
    }

    /// What is wrong with the block, if the batch ended for that reason.
    #[inline]
    pub(crate) fn error(&self) -> Option<BlockError> {
        self.error
    }

    /// Moves on to the next perf record if the block is at its end.
    #[inline(always)]
    fn go_on(&mut self) {
        if self.records.is_empty()
            && let Some(records) = self.next_block()
        {
            self.records = records;
        }
    }

    /// The block of the next perf record, if that record is a valid sample, begins before the limit and does
    /// not wrap.
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
        self.end += size;
        Some(records)
    }
}

/// The next records of a batch, kept apart from it so that a loop over them runs in registers. Dropping a run
/// removes the taken records from the batch, even if a handler panics.
struct Run<'b, 'r> {
    batch: &'b mut Batch<'r>,
    /// The rest of the block, including the `alike` records.
    records: Records<'r>,
    /// How many records of the usual length were taken, and that length.
    alike: usize,
    usual: usize,
    /// How many records were taken before those.
    count: u64,
}

impl Run<'_, '_> {
    /// Removes the `alike` records from the block.
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

/// Takes one record after another.
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
