//! The flight recorder: rings that keep the newest records, dumps of them, and pauses.

mod tail;

pub use crate::pipe::trigger::Trigger;
pub use crate::queue::notices::Dump;

use crate::error::{PauseError, PauseStep};
use crate::pipe::adaptive::Adaptive;
use crate::pipe::evpipe::{EvPipe, Progress};
use crate::queue::consumer::Consumer;
use crate::queue::evqueue::EvQueue;
use probe_sys::hint::forked;
use probe_sys::membarrier;
use std::ops::ControlFlow;
use tail::FoundRecord;

impl EvPipe {
    /// Pauses the output of the rings (`PERF_EVENT_IOC_PAUSE_OUTPUT`) until the pipe [resumes](Self::resume).
    ///
    /// When this returns, every program that was writing has finished. What was emitted before the pause is
    /// in the rings, and you may consume it meanwhile.
    ///
    /// Every record that is emitted during the pause fails with
    /// [`NoSpace`](probe_common::tally::FailureClass::NoSpace), as if the rings were full: the kernel counts
    /// it as lost, the consumer gets a [`Loss`](crate::Loss), and the [`Ledger`](crate::ledger::Ledger)
    /// balances.
    ///
    /// Nothing is packed during a pause, and open blocks are sent before it takes effect. If a program is in
    /// the middle of a record at that moment and stays there, because it sleeps or is preempted, its block
    /// fails like the records of the pause, unless the pause ends first. A block arrives or fails as a whole.
    ///
    /// Pausing a paused pipe does nothing.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to pause a ring (before 4.7) or to wait for programs (`membarrier(2)`), or if this
    /// process was forked from the one that opened the pipe. In all cases the pipe is not paused.
    pub fn pause(&mut self) -> Result<(), PauseError> {
        self.check_rings()?;
        if self.coverage.queues.is_paused() {
            return Ok(());
        }
        if let Some(adaptive) = &mut self.waiting.adaptive {
            adaptive.hold();
        }
        let paused = self.coverage.queues.pause().and_then(|()| self.wait_for_writers());
        if paused.is_err() {
            // An event that cannot be resumed no longer exists.
            let _ = self.coverage.queues.resume();
            self.pack();
        }
        paused
    }

    /// Resumes the output of the rings. Does nothing if the pipe is not paused.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to resume a ring: those of other CPUs are resumed, and you can try again. Also if
    /// this process was forked from the one that opened the pipe.
    pub fn resume(&mut self) -> Result<(), PauseError> {
        self.check_rings()?;
        let result = self.coverage.queues.resume();
        self.pack();
        result
    }

    /// Whether the pipe is paused.
    pub fn is_paused(&self) -> bool {
        self.coverage.queues.is_paused()
    }

    /// Fails if this process does not own the rings.
    pub(crate) fn check_rings(&self) -> Result<(), PauseError> {
        if self.coverage.queues.are_here() {
            return Ok(());
        }
        let cpu = self.queues().first().map_or(0, EvQueue::cpu);
        Err(PauseError { step: PauseStep::Ring(cpu), cause: forked() })
    }

    /// Lets programs pack records again.
    pub(crate) fn pack(&mut self) {
        if let Some(adaptive) = &mut self.waiting.adaptive {
            adaptive.pack();
        }
    }

    /// Waits until every program that began to write before the pause has finished.
    fn wait_for_writers(&self) -> Result<(), PauseError> {
        // The flush program interrupts its CPU, and reports whether any program there is between the
        // beginning of a record and the end of its output. Nothing is packed, so it sends nothing.
        if self.waiting.adaptive.as_ref().is_some_and(Adaptive::flush_all) {
            return Ok(());
        }
        membarrier::wait_for_programs()
            .map_err(|cause| PauseError { step: PauseStep::Writers, cause })
    }

    /// A handle that requests dumps of this pipe. `None` unless the pipe is a flight recorder
    /// ([`Options::overwrite`](crate::Options::overwrite)).
    pub fn trigger(&self) -> Option<Trigger> {
        self.flight.as_ref().map(|flight| flight.trigger.clone())
    }

    /// Delivers what the rings of a flight recorder hold and no earlier dump has delivered.
    ///
    /// Of each CPU, these are the newest records: only whole ones, and without a gap. The records of all CPUs
    /// are sorted by time. Records of one CPU with the same time keep the order in which they were emitted.
    /// [`Consumer::dump`] is called first, and losses are reported before the records.
    ///
    /// The rings are [paused](Self::pause) during the dump, for as long as the consumer takes. Records
    /// emitted meanwhile fail, are counted, and are reported with the next dump. Records that are packed
    /// meanwhile are kept if their block does not fill up before the dump ends.
    ///
    /// If the consumer breaks or panics, the records that it has not received are never delivered.
    ///
    /// For a pipe that does not overwrite, this is [`drain_all`](Self::drain_all).
    ///
    /// # Errors
    ///
    /// If the kernel refuses to pause a ring or to wait for programs: nothing is delivered, and the next dump has the
    /// records. Also if this process was forked from the one that opened the pipe.
    pub fn dump<C: Consumer>(&mut self, consumer: &mut C) -> Result<Progress, PauseError> {
        if self.flight.is_none() {
            let before = self.given();
            let flow = self.drain_all(consumer);
            return Ok(Progress {
                records: self.given() - before,
                flow,
                pending: self.waiting.pending,
            });
        }
        self.check_rings()?;
        self.coverage.follow(&mut self.waiting, consumer);
        let mut progress = if self.coverage.queues.is_paused() {
            self.give_tails(consumer)
        } else {
            self.pause()?;
            self.pack();
            let paused = Paused { pipe: &mut *self };
            paused.pipe.give_tails(consumer)
        };
        if progress.flow.is_continue() {
            progress.flow = consumer.caught_up();
        }
        Ok(progress)
    }

    /// Delivers a dump if one was requested, and checks for CPUs that went online or offline.
    pub(crate) fn dump_if_asked<C: Consumer>(
        &mut self,
        consumer: &mut C,
    ) -> Result<Progress, PauseError> {
        if self.flight.as_ref().is_some_and(|flight| flight.trigger.take()) {
            return self.dump(consumer);
        }
        self.coverage.follow(&mut self.waiting, consumer);
        Ok(Progress::NONE)
    }

    /// Delivers what has been written to the rings since the last dump. No program may write to them now.
    pub(crate) fn give_tails<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
        let before = self.given();
        let flow = self.give_all_tails(consumer);
        self.count_rejected(consumer);
        Progress { records: self.given() - before, flow, pending: false }
    }

    fn given(&self) -> u64 {
        self.queues().iter().map(|queue| queue.counts().records).sum()
    }

    fn give_all_tails<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        let sent = self.accounting.accounts.as_ref().and_then(|accounts| accounts.sent().ok());
        let overwritten = |queues: &[EvQueue]| -> u64 {
            let counts = queues.iter().flat_map(|queue| queue.received().overwritten.iter());
            counts.map(|(_, count)| count).sum()
        };
        let before = overwritten(self.queues());
        let mut found = Vec::new();
        for (number, queue) in self.coverage.queues.iter_mut().enumerate() {
            let cpu = queue.cpu();
            let sent = |kind| Some(sent.as_ref()?.get(&(cpu, kind)).copied().unwrap_or(0));
            queue.find(number, &mut found, sent, consumer)?;
        }
        // The sort is stable, and fast for a few long sorted runs, as here.
        found.sort_by_key(|record: &FoundRecord| record.time);
        // The accounts may have begun later meanwhile.
        let newly_overwritten = overwritten(self.queues()).saturating_sub(before);
        let number = self.flight.as_mut().map_or(0, |flight| {
            flight.dumps += 1;
            flight.dumps - 1
        });
        let overwritten = sent.is_some().then_some(newly_overwritten);
        consumer.dump(Dump { number, records: found.len() as u64, overwritten });
        self.accounting.settle(self.coverage.queues.iter_mut(), consumer)?;
        for record in &found {
            self.coverage.queues.at(record.queue).give(record, consumer)?;
        }
        self.coverage.queues.iter_mut().for_each(EvQueue::end_dump);
        ControlFlow::Continue(())
    }
}

/// Keeps a pipe paused for as long as this lives, and resumes it even if the consumer panics.
struct Paused<'p> {
    pipe: &'p mut EvPipe,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        // An event that cannot be resumed no longer exists.
        let _ = self.pipe.resume();
    }
}
