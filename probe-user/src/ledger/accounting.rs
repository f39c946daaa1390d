//! The accounting of a pipe: losses as they happen, and what is left at the end.

use crate::error::OpenError;
use crate::ledger::accounts::Accounts;
use crate::ledger::failures::Failures;
use crate::queue::batch::Batch;
use crate::queue::consumer::Consumer;
use crate::queue::evqueue::EvQueue;
use crate::queue::notices::{CpuChange, Dump, Failure, Loss, Malformed};
use probe_common::RawRecord;
use probe_common::control::SCRATCH_MAP;
use probe_common::tally::{FailureClass, OutputTally};
use probe_sys::bpf::PerCpuArray;
use probe_sys::control_page::ControlPage;
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Lost records that have been reported.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    records: u64,
    /// What the CPU's entry in the control page showed before they were counted.
    page: Option<u64>,
}

/// The accounts of a pipe, as far as it has the eBPF side's maps.
#[derive(Debug)]
pub(crate) struct Accounting {
    pub(crate) accounts: Option<Arc<Accounts>>,
    scratch: Option<Arc<ScratchSlots>>,
    /// Where CPUs count, too, what is lost and what fails.
    page: Option<Arc<ControlPage>>,
    /// The lost records of each CPU that have been reported.
    reported: BTreeMap<u32, Reported>,
    failures: Failures,
}

impl Accounting {
    /// `cpus` are those whose failures are reported; `None` for all.
    pub(crate) fn new(
        accounts: Option<Arc<Accounts>>,
        scratch: Option<Arc<ScratchSlots>>,
        page: Option<Arc<ControlPage>>,
        cpus: Option<&[u32]>,
    ) -> Self {
        let (reported, failures) = (BTreeMap::new(), Failures::new(cpus));
        Self { accounts, scratch, page, reported, failures }
    }

    /// Reports the failures of another CPU, too.
    pub(crate) fn watch(&mut self, cpu: u32) {
        self.failures.set_watched(cpu, true);
    }

    /// Goes on with the failures of a CPU where another accounting ends.
    pub(crate) fn follow(&mut self, cpu: u32, earlier: &mut Self) {
        self.failures.follow(cpu, &mut earlier.failures);
    }

    /// What has failed for another reason than a full ring and is not reported yet. `None` if it is not time to look yet, or the
    /// counts cannot be read.
    pub(crate) fn failures(&mut self) -> Option<Vec<Failure>> {
        self.failures.look(self.accounts.as_ref()?, self.page.as_deref()).ok()?
    }

    /// Reports a failure to a consumer, unless that has broken already. Then a later look finds the failure again.
    pub(crate) fn report<C: Consumer>(
        &mut self,
        failure: Failure,
        flow: ControlFlow<()>,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        if flow.is_break() {
            self.failures.look_again();
            return flow;
        }
        self.failures.report(failure);
        consumer.failed(failure)
    }

    /// Whether a consumer broke before it received every failure.
    pub(crate) fn has_failures_left(&self) -> bool {
        self.failures.are_left()
    }

    /// Wraps a consumer, which then receives the number of lost records where the ring reports lost outputs.
    pub(crate) fn before<'t, C>(&'t mut self, consumer: &'t mut C) -> InRecords<'t, C> {
        let Self { accounts, page, reported, .. } = self;
        InRecords { reported, page: page.as_deref(), accounts: accounts.as_deref(), consumer }
    }

    /// Reports losses on these queues that no ring has reported. No program may emit any more.
    pub(crate) fn settle<'q, C: Consumer>(
        &mut self,
        mut queues: impl Iterator<Item = &'q mut EvQueue>,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let outputs = self.outputs();
        let mut counting = self.before(consumer);
        queues.try_for_each(|queue| counting.settle_outputs(queue, outputs.get(&queue.cpu())))
    }

    /// What each CPU has counted about failed outputs. Nothing if that is not known.
    fn outputs(&self) -> BTreeMap<u32, OutputTally> {
        self.accounts.as_ref().and_then(|accounts| accounts.outputs().ok()).unwrap_or_default()
    }

    /// Delivers the open blocks of offline CPUs and of the CPUs in `kept`, and reports the last failures and losses. Once the
    /// consumer has broken, this only counts what is not delivered.
    pub(crate) fn close<'q, C: Consumer>(
        &mut self,
        queues: impl Iterator<Item = &'q mut EvQueue>,
        kept: &[u32],
        mut flow: ControlFlow<()>,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        // Before what is left in the rings: a consumer that breaks there has been told of them.
        let look = |accounts: &Arc<Accounts>| self.failures.look_now(accounts).ok();
        for failure in self.accounts.as_ref().and_then(look).unwrap_or_default() {
            flow = self.report(failure, flow, consumer);
        }
        let (scratch, outputs) = (self.scratch.clone(), self.outputs());
        let mut counting = self.before(consumer);
        for queue in queues {
            let cpu = queue.cpu();
            if (!queue.is_online() || kept.contains(&cpu))
                // Its consumer receives what the CPU has kept.
                && !queue.is_taken_over()
                && let Some(scratch) = &scratch
                && let Ok(mut slot) = scratch.first_of(cpu)
            {
                flow = queue.recover(slot.as_mut_bytes(), flow, &mut counting);
            }
            if flow.is_continue() {
                flow = counting.settle_outputs(queue, outputs.get(&cpu));
            }
            if flow.is_continue() {
                flow = counting.settle_records(cpu, outputs.get(&cpu));
            }
        }
        flow
    }
}

/// The eBPF side's map of scratch slots, which holds what a CPU left there when it went offline.
#[derive(Debug)]
pub(crate) struct ScratchSlots {
    map: PerCpuArray,
}

impl ScratchSlots {
    pub(crate) fn from_map(map: impl AsFd) -> Result<Self, OpenError> {
        let map = PerCpuArray::open(map.as_fd(), |_| true)
            .map_err(|cause| OpenError::MapInfo { cause })?
            .map_err(|_| OpenError::NoMap { name: SCRATCH_MAP })?;
        Ok(Self { map })
    }

    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// The first slot of a CPU that does not write to it now, because it is offline or emits no more.
    fn first_of(&self, cpu: u32) -> io::Result<Vec<u64>> {
        let mut slot = Vec::new();
        self.map.read(0, |of, value| {
            if of == cpu {
                slot = value.to_vec();
            }
        })?;
        Ok(slot)
    }
}

/// A consumer that adds the number of lost records to each loss.
pub(crate) struct InRecords<'t, C> {
    reported: &'t mut BTreeMap<u32, Reported>,
    page: Option<&'t ControlPage>,
    accounts: Option<&'t Accounts>,
    consumer: &'t mut C,
}

impl<C: Consumer> InRecords<'_, C> {
    /// How many records the eBPF side has counted as lost on a CPU since the last call. The tally takes a system call and has
    /// to be read for all CPUs, so this looks in the control page first whether anything has changed.
    fn newly_lost(&mut self, cpu: u32) -> Option<u64> {
        // A CPU adds to the tally before it adds to the page. What this misses is reported later.
        let page = self.page.and_then(|page| Some(page.cpu(cpu)?.lost_records()));
        let reported = self.reported.get(&cpu);
        if page.is_some() && reported.is_some_and(|reported| reported.page == page) {
            return Some(0);
        }
        let outputs = self.accounts?.outputs().ok()?;
        Some(self.newly_tallied(cpu, outputs.get(&cpu)?, page))
    }

    fn newly_tallied(&mut self, cpu: u32, tally: &OutputTally, page: Option<u64>) -> u64 {
        let records = tally.lost_records;
        let before = self.reported.insert(cpu, Reported { records, page });
        // The accounts may have begun later meanwhile.
        records.saturating_sub(before.unwrap_or_default().records)
    }

    /// Reports lost outputs that the queue's rings have not reported.
    fn settle_outputs(
        &mut self,
        queue: &mut EvQueue,
        tally: Option<&OutputTally>,
    ) -> ControlFlow<()> {
        queue.settle(tally.map(|tally| tally.failed_for(FailureClass::NoSpace)), self)
    }

    /// Reports records that were counted only after their lost outputs had been reported.
    fn settle_records(&mut self, cpu: u32, tally: Option<&OutputTally>) -> ControlFlow<()> {
        match tally.map(|tally| self.newly_tallied(cpu, tally, None)) {
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
    fn accepts(&mut self) -> ControlFlow<()> {
        self.consumer.accepts()
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

    fn failed(&mut self, failure: Failure) -> ControlFlow<()> {
        self.consumer.failed(failure)
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.consumer.malformed(malformed)
    }

    fn rejected(&mut self) -> Option<(u32, u64)> {
        self.consumer.rejected()
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
