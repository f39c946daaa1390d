//! The newest records of one CPU: finds them in its rings for a dump, and delivers them.

use crate::queue::backward::Output;
use crate::queue::consumer::Consumer;
use crate::queue::event_ring::EventRing;
use crate::queue::evqueue::EvQueue;
use crate::queue::notices::{Malformed, MalformedReason};
use probe_common::RecordKind;
use probe_common::limits::KINDS;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A record that a dump has found, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundRecord {
    pub(crate) time: u64,
    /// The number of its queue in this dump.
    pub(crate) queue: usize,
    /// The index of its ring in the queue, oldest first.
    ring: u16,
    /// The distance from the first record of its block, in bytes.
    offset: u16,
    output: Output,
}

/// How many rings of times before a CPU was offline are kept. Only a dump reads them, and each takes a descriptor and as much
/// memory as the ring of now.
const RETIRED: usize = 2;

impl EvQueue {
    /// Drops the oldest rings of earlier times, as if newer records had overwritten them. Does nothing to rings that are
    /// drained.
    pub(crate) fn limit_retired(&mut self) {
        while self.retired.len() > RETIRED
            && let Some(ring) = self.retired.front_mut().and_then(EventRing::backward_mut)
        {
            self.seen.received.overwritten_bytes.add(ring.unread());
            self.forget_oldest();
        }
    }

    /// Finds what has been written to the rings since the last dump, oldest first. No program may write to
    /// them now. `queue` is the number of this queue. `sent` returns the total number of records of a kind
    /// that this CPU has sent, if it is known.
    pub(crate) fn find<C: Consumer>(
        &mut self,
        queue: usize,
        records: &mut Vec<FoundRecord>,
        sent: impl Fn(RecordKind) -> Option<u64>,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let Self { cpu, ring, retired, seen, dumped, .. } = self;
        let received = Arc::clone(&seen.received);
        let mut malformed = |bytes, reason| {
            seen.counts.malformed += 1;
            seen.counts.malformed_bytes += bytes;
            consumer.malformed(Malformed { cpu: *cpu, bytes, reason })
        };
        for (number, ring) in retired.iter_mut().chain([ring]).enumerate() {
            let Some(ring) = ring.backward_mut() else { continue };
            let found = ring.look();
            received.overwritten_bytes.add(found.overwritten);
            if found.malformed > 0 {
                malformed(found.malformed, MalformedReason::RecordSize)?;
            }
            for &output in found.outputs.iter().rev() {
                let result = ring.records(output, |record, offset| {
                    dumped.found.add(record.kind, 1);
                    dumped.left += 1;
                    let (ring, offset) = (number as u16, offset as u16);
                    records.push(FoundRecord { time: record.time, queue, ring, offset, output });
                });
                if let Err(reason) = result {
                    malformed(output.size as u64, reason)?;
                }
            }
        }
        if received.overwritten_bytes.get() > 0 {
            for kind in (0..KINDS).filter_map(RecordKind::at) {
                // If that is not known now, it is in the next dump.
                if let Some(sent) = sent(kind) {
                    received.overwritten.set(kind, sent.saturating_sub(dumped.found.of(kind)));
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Delivers a record that was [found](Self::find).
    pub(crate) fn give<C: Consumer>(
        &mut self,
        found: &FoundRecord,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let at = usize::from(found.ring);
        let ring = self.retired.get_mut(at).unwrap_or(&mut self.ring);
        let Some(record) =
            ring.backward_mut().and_then(|ring| ring.record(found.output, found.offset.into()))
        else {
            return ControlFlow::Continue(());
        };
        consumer.accepts()?;
        // Count the record before the consumer sees it, because the consumer may panic.
        self.dumped.left -= 1;
        self.seen.received.given.add(record.kind, 1);
        self.seen.counts.records += 1;
        consumer.record(self.cpu, record)
    }

    /// Ends a dump whose records have all been delivered.
    pub(crate) fn end_dump(&mut self) {
        while !self.retired.is_empty() {
            self.forget_oldest();
        }
    }
}
