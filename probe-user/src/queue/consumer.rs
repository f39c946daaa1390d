//! The receiver of what a drain finds.

use crate::queue::batch::Batch;
use crate::queue::notices::{CpuChange, Dump, Failure, Loss, Malformed};
use probe_common::RawRecord;
use std::ops::ControlFlow;

/// Receives records, losses and malformed bytes, in the order in which each CPU emitted them.
///
/// [`EvHandlers`](crate::EvHandlers) is the usual consumer. Implement this trait yourself to see records of
/// every kind in one place. Only [`record`](Self::record) is required.
///
/// Returning [`ControlFlow::Break`] stops the drain. This is not a failure: what was delivered is consumed,
/// and the next drain continues after it.
pub trait Consumer {
    /// Receives a record, borrowed from the ring.
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()>;

    /// The payload of the longest type of record that the consumer expects, in bytes. By default 0: it is not known.
    ///
    /// A ring that has no room for such a record loses each of them, and a loss wakes nobody. So waiting for a pipe with
    /// such rings fails at once ([`PollError`](crate::PollError)).
    fn longest(&self) -> usize {
        0
    }

    /// Whether the consumer takes records now. Asked before records are offered: [`ControlFlow::Break`] stops the
    /// drain without consuming any. By default, it always does.
    ///
    /// A consumer that returns `Break` from [`record`](Self::record) has consumed that record. Implement this
    /// to refuse records before they are consumed, for instance after a limit.
    #[inline]
    fn accepts(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Receives consecutive records. By default, passes each to [`record`](Self::record). Implement this to
    /// handle many records at a time.
    ///
    /// A record is consumed when it is taken out of the batch. Records that an implementation leaves in the
    /// batch go to `record`, unless it breaks.
    #[inline]
    fn batch(&mut self, cpu: u32, batch: &mut Batch<'_>) -> ControlFlow<()> {
        while let Some((kind, len)) = batch.next_shape() {
            batch.take_run(kind, len, |record| self.record(cpu, record))?;
        }
        ControlFlow::Continue(())
    }

    /// Receives a loss: the kernel had no room for some records, which precede the next record of that CPU.
    /// Ignored by default: the [`Ledger`](crate::ledger::Ledger) counts lost records in any case.
    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        let _ = loss;
        ControlFlow::Continue(())
    }

    /// Reports records that failed for another reason than a full ring: no event for their CPU, for instance, or
    /// programs nested too deep. Ignored by default: the [`Ledger`](crate::ledger::Ledger) counts them in any case.
    ///
    /// Such records leave no trace in a ring. A pipe with a [`Tally`](crate::ledger::Tally) looks for them once a second
    /// while it drains, and when it is closed; they do not wake it. Without the control page of the object
    /// ([`PipeParts::adaptive`](crate::PipeParts::adaptive)), records for which no output was tried, because they were too
    /// long or nested too deep, are reported with the next failed output, or at the end.
    fn failed(&mut self, failure: Failure) -> ControlFlow<()> {
        let _ = failure;
        ControlFlow::Continue(())
    }

    /// Reports malformed bytes that were skipped. Ignored by default: the [`Ledger`](crate::ledger::Ledger)
    /// counts them in any case.
    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        let _ = malformed;
        ControlFlow::Continue(())
    }

    /// Returns a CPU and how many of its records were no records of their kind, until there are no more that were not
    /// returned before. A pipe calls it after each drain, and the [`Ledger`](crate::ledger::Ledger) counts them as malformed.
    fn rejected(&mut self) -> Option<(u32, u64)> {
        None
    }

    /// Reports that a CPU went online or offline. No action is needed.
    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        let _ = change;
    }

    /// Announces a dump of a flight recorder ([`Options::overwrite`](crate::Options::overwrite)). Its records
    /// follow. No action is needed.
    fn dump(&mut self, dump: Dump) {
        let _ = dump;
    }

    /// Called after a drain that delivered something, when nothing more is available for now, and at the end. Flush
    /// buffered output here.
    fn caught_up(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<C: Consumer + ?Sized> Consumer for &mut C {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        (**self).record(cpu, record)
    }

    fn longest(&self) -> usize {
        (**self).longest()
    }

    fn accepts(&mut self) -> ControlFlow<()> {
        (**self).accepts()
    }

    fn batch(&mut self, cpu: u32, batch: &mut Batch<'_>) -> ControlFlow<()> {
        (**self).batch(cpu, batch)
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        (**self).lost(loss)
    }

    fn failed(&mut self, failure: Failure) -> ControlFlow<()> {
        (**self).failed(failure)
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        (**self).malformed(malformed)
    }

    fn rejected(&mut self) -> Option<(u32, u64)> {
        (**self).rejected()
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        (**self).cpu_changed(change);
    }

    fn dump(&mut self, dump: Dump) {
        (**self).dump(dump);
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        (**self).caught_up()
    }
}
