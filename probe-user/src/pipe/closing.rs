//! Closing a pipe, and the summary of what it has seen.

use crate::error::TallyError;
use crate::ledger::accounts::Accounts;
use crate::ledger::balance::Ledger;
use crate::ledger::handed_over::HandedOver;
use crate::pipe::adaptive::Adaptive;
use crate::pipe::evpipe::EvPipe;
use crate::queue::consumer::Consumer;
use crate::queue::counts::QueueCounts;
use crate::queue::evqueue::EvQueue;
use probe_sys::hint::forked;
use probe_sys::membarrier;
use std::sync::Arc;

/// The summary of a closed pipe.
#[derive(Debug)]
#[non_exhaustive]
pub struct Summary<C = ()> {
    /// The counts of each CPU's queue, in ascending order of CPU.
    pub cpus: Vec<(u32, QueueCounts)>,
    /// The sum of all counts.
    pub total: QueueCounts,
    /// Accounts for every record.
    pub ledger: Result<Ledger, TallyError>,
    /// The counts at which this ledger ends, and the new consumer's begins, for each CPU that was taken over.
    pub handed_over: HandedOver,
    /// Records that arrived too late to be ordered ([`OrderedPipe::late`](crate::OrderedPipe::late)); 0 for other
    /// pipes.
    pub late: u64,
    /// Records that were delivered before their time ([`OrderedPipe::early`](crate::OrderedPipe::early)); 0 for other
    /// pipes.
    pub early: u64,
    /// The consumers of a [`PerCpuPipe`](crate::PerCpuPipe), in ascending order of CPU; empty for other pipes, which
    /// only borrow theirs.
    pub consumers: Vec<(u32, C)>,
}

impl Summary {
    /// Adds the consumers of each CPU.
    pub(crate) fn with_consumers<C>(self, consumers: Vec<(u32, C)>) -> Summary<C> {
        let Self { cpus, total, ledger, handed_over, late, early, .. } = self;
        Summary { cpus, total, ledger, handed_over, late, early, consumers }
    }
}

impl EvPipe {
    /// Closes the pipe: takes the events out of the map, passes what is left to `consumer` (for a flight recorder, as
    /// a last dump), and returns a summary.
    ///
    /// Stops early if `consumer` breaks. What is left is then not delivered, and the ledger counts it as unread.
    pub fn close<C: Consumer>(mut self, consumer: &mut C) -> Summary {
        self.finish(consumer);
        Self::summary_of(std::iter::once(&self))
    }

    /// Does everything that has to happen before a pipe is dropped.
    pub(crate) fn finish<C: Consumer>(&mut self, consumer: &mut C) {
        if self.coverage.queues.are_here() {
            self.coverage.hand_over(&mut self.waiting, consumer);
        }
        // Programs send all packed records before the maps are emptied.
        let kept = self.waiting.adaptive.take().map(Adaptive::close).unwrap_or_default();
        if self.coverage.queues.are_here() {
            self.end(&kept, consumer);
        }
    }

    /// The summary of pipes that share their accounts, in ascending order of CPU.
    pub(crate) fn summary_of<'p>(pipes: impl Iterator<Item = &'p Self> + Clone) -> Summary {
        let ledger = Self::ledger_of(pipes.clone());
        let handed_over = ledger.as_ref().ok().zip(Self::accounts_of(pipes.clone()));
        let handed_over = handed_over
            .map(|(ledger, accounts)| HandedOver { counted: accounts.ends(ledger) })
            .unwrap_or_default();
        let mut summary = Summary {
            cpus: Vec::new(),
            total: QueueCounts::default(),
            ledger,
            handed_over,
            late: 0,
            early: 0,
            consumers: Vec::new(),
        };
        for queue in pipes.flat_map(Self::queues) {
            let counts = queue.counts();
            summary.cpus.push((queue.cpu(), counts));
            summary.total += counts;
        }
        summary
    }

    /// Accounts for every record so far that was meant for one of several pipes, which share their accounts.
    pub(crate) fn ledger_of<'p>(
        pipes: impl Iterator<Item = &'p Self> + Clone,
    ) -> Result<Ledger, TallyError> {
        let accounts = Self::accounts_of(pipes.clone()).ok_or(TallyError::NoTally)?;
        if !pipes.clone().all(|pipe| pipe.coverage.queues.are_here()) {
            return Err(forked().into());
        }
        accounts.read(pipes.flat_map(Self::queues))
    }

    fn accounts_of<'p>(mut pipes: impl Iterator<Item = &'p Self>) -> Option<&'p Arc<Accounts>> {
        pipes.find_map(|pipe| pipe.accounting.accounts.as_ref())
    }

    /// Takes the events out of the map, and delivers what is left. `kept` are the CPUs that have kept their block.
    fn end<C: Consumer>(&mut self, kept: &[u32], consumer: &mut C) {
        self.coverage.is_closing = true;
        self.coverage.queues.leave_map();
        // A program that has found an event there may still write to its ring. Where the kernel cannot wait for such
        // programs, that is left to luck.
        let _ = membarrier::wait_for_programs();
        let flow = match self.flight {
            None => self.drain_all(consumer),
            Some(_) => self.give_tails(consumer).flow,
        };
        let Self { accounting, coverage, .. } = self;
        let flow = accounting.close(coverage.queues.iter_mut(), kept, flow, consumer);
        self.count_rejected(consumer);
        if flow.is_continue() {
            let _ = consumer.caught_up();
        }
        self.queues().iter().for_each(EvQueue::disable);
    }
}
