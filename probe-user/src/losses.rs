//! How many records were lost with the outputs that the kernel says it lost.

use crate::batch::Batch;
use crate::consumer::{Consumer, CpuChange, Dump, Loss, Malformed};
use crate::ledger::Books;
use probe_common::RawRecord;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// What each CPU's losses came to that were told already, in records.
#[derive(Debug, Default)]
pub(crate) struct ToldLosses {
    records: BTreeMap<u32, u64>,
}

impl ToldLosses {
    /// Stands before a consumer, and tells it of records where the ring tells of outputs.
    pub(crate) fn before<'t, C>(
        &'t mut self,
        books: Option<&'t Books>,
        consumer: &'t mut C,
    ) -> InRecords<'t, C> {
        InRecords { told: self, books, consumer }
    }
}

/// A consumer that is told how many records were lost.
pub(crate) struct InRecords<'t, C> {
    told: &'t mut ToldLosses,
    books: Option<&'t Books>,
    consumer: &'t mut C,
}

impl<C> InRecords<'_, C> {
    /// How many records the eBPF side has counted as lost on a CPU since this was asked last.
    fn newly_lost(&mut self, cpu: u32) -> Option<u64> {
        let lost = self.books?.outputs_of(cpu).ok()?.lost_records;
        let told = self.told.records.insert(cpu, lost).unwrap_or(0);
        Some(lost.wrapping_sub(told))
    }
}

impl<C: Consumer> InRecords<'_, C> {
    /// Tells of records that were counted after the outputs they were lost with had been told: once nobody
    /// emits any more.
    pub(crate) fn settle(&mut self, cpu: u32) -> ControlFlow<()> {
        match self.newly_lost(cpu) {
            None | Some(0) => ControlFlow::Continue(()),
            records => self.consumer.lost(Loss { cpu, count: 0, records }),
        }
    }
}

impl<C: Consumer> Consumer for InRecords<'_, C> {
    #[inline]
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.consumer.record(cpu, record)
    }

    #[inline]
    fn batch(&mut self, cpu: u32, batch: &mut Batch<'_>) -> ControlFlow<()> {
        self.consumer.batch(cpu, batch)
    }

    #[cold]
    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        let records = self.newly_lost(loss.cpu);
        self.consumer.lost(Loss { records, ..loss })
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.consumer.malformed(malformed)
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        self.consumer.cpu_changed(change);
    }

    fn dump(&mut self, dump: Dump) {
        self.consumer.dump(dump);
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        self.consumer.caught_up()
    }
}
