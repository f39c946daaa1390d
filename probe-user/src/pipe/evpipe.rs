//! The pipe: the map, the queues in it, and the ways to wait for records.

use crate::error::{PollError, TallyError};
use crate::ledger::accounting::Accounting;
use crate::ledger::balance::Ledger;
use crate::ledger::meter::Meter;
use crate::ledger::tally::Tally;
use crate::pipe::adaptive::Adaptive;
use crate::pipe::coverage::Coverage;
use crate::pipe::driving::Drive;
use crate::pipe::options::Wakeup;
use crate::pipe::room;
use crate::pipe::stop::Stop;
use crate::pipe::trigger::Trigger;
use crate::pipe::waiting::Waiting;
use crate::queue::consumer::Consumer;
use crate::queue::contents::Contents;
use crate::queue::evqueue::EvQueue;
use probe_common::RecordKind;
use probe_sys::epoll::Epoll;
use probe_sys::hint::forked;
use probe_sys::hotplug::Prepare;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// A perf event array, and a queue for each CPU whose event is in it.
///
/// There are four ways to consume:
///
/// - [`run`](Self::run) drains until it is stopped;
/// - [`poll`](Self::poll) waits, and drains once;
/// - [`drain`](Self::drain) does not wait: call it in an event loop of your own when the descriptor of the pipe ([`AsFd`])
///   is readable, and again while [`Progress::pending`], or at any time;
/// - `AsyncEvPipe` drains in a tokio task; [`OwnedRecords`](crate::OwnedRecords) and `RecordStream` return records
///   that you can keep.
///
/// Opened with [`Options::overwrite`](crate::Options::overwrite), the pipe is a flight recorder, which keeps the
/// newest records. All of the above then deliver what it has kept when a [`Trigger`] requests a [`dump`](Self::dump).
///
/// Dropping the pipe closes it. [`close`](Self::close) also consumes what is left, and reports what was lost. Detach
/// the programs that emit first; otherwise they count what they emit afterwards as failed.
///
/// A forked child does not inherit the rings. In the child, [`poll`](Self::poll) fails, a drain finds nothing, and
/// dropping or closing the pipe does not affect the parent.
///
/// CPUs may go online and offline meanwhile. A CPU that goes online gets a queue, and the pipe consumes what is left
/// in the ring of a CPU that goes offline. [`Consumer::cpu_changed`] reports both.
#[derive(Debug)]
pub struct EvPipe {
    // Dropped first: this makes programs send packed records while there are queues to receive them.
    pub(crate) waiting: Waiting,
    pub(crate) coverage: Coverage,
    pub(crate) accounting: Accounting,
    /// How many bytes of one ring a drain consumes before it goes on with the next CPU.
    pub(crate) budget: usize,
    pub(crate) bytes_per_cpu: usize,
    pub(crate) contents: Contents,
    pub(crate) flight: Option<Flight>,
}

/// The additional state of a flight recorder.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) trigger: Trigger,
    /// The number of dumps so far.
    pub(crate) dumps: u64,
}

/// The result of draining all queues once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Progress {
    /// The number of records passed to the consumer.
    pub records: u64,
    /// Whether the consumer stopped the drain.
    pub flow: ControlFlow<()>,
    /// Whether there is more to drain: the next [`EvPipe::poll`] will not wait.
    pub pending: bool,
}

impl Progress {
    /// No records were delivered.
    pub(crate) const NONE: Self =
        Self { records: 0, flow: ControlFlow::Continue(()), pending: false };
}

impl EvPipe {
    /// Registers a hook that prepares each CPU that goes online from now on, before programs find its event.
    pub fn prepare_beside(&mut self, beside: Box<dyn Prepare>) {
        self.coverage.queues.prepare_beside(beside);
    }

    /// When the kernel wakes the consumer: the requested policy, or the one that the pipe fell back to.
    pub fn wakeup(&self) -> Wakeup {
        self.waiting.wakeup
    }

    /// Why the pipe fell back from [`Wakeup::Adaptive`], if it did.
    pub fn fallback(&self) -> Option<&str> {
        self.waiting.fallback.as_deref()
    }

    /// What the eBPF side counts, if the pipe knows its tally.
    pub fn tally(&self) -> Option<&Tally> {
        self.accounting.accounts.as_deref().map(|accounts| accounts.tally())
    }

    /// The queues, in ascending order of CPU.
    pub fn queues(&self) -> &[EvQueue] {
        self.coverage.queues.as_slice()
    }

    /// The queue of a CPU.
    pub fn queue(&self, cpu: u32) -> Option<&EvQueue> {
        self.coverage.queues.position(cpu).ok().map(|at| &self.queues()[at])
    }

    /// Accounts for every record so far.
    ///
    /// # Errors
    ///
    /// If the pipe has no [`tally`](Self::tally), the tally cannot be read, or this process was forked from the one
    /// that opened the pipe.
    pub fn ledger(&self) -> Result<Ledger, TallyError> {
        Self::ledger_of(std::iter::once(self))
    }

    /// Whether this process owns the rings. A forked child does not.
    pub(crate) fn is_here(&self) -> bool {
        self.coverage.queues.are_here()
    }

    /// A meter, with which any thread can read the counts while the pipe runs.
    pub fn meter(&self) -> Meter {
        Meter::new(self.accounting.accounts.clone(), Arc::clone(self.coverage.queues.shared()))
    }

    /// Why the pipe is not notified when CPUs go online or offline, if it is not. Programs on CPUs that go online
    /// later then have no ring to send to, and count that as failed.
    pub fn hotplug_error(&self) -> Option<&io::Error> {
        self.coverage.error()
    }

    /// The ring size of each CPU, in bytes.
    pub fn bytes_per_cpu(&self) -> usize {
        self.bytes_per_cpu
    }

    /// Passes the records that are in the rings now to `consumer`, without waiting. A CPU that emits without pause
    /// gets its share and no more ([`Options::budget`](crate::Options::budget)).
    ///
    /// A flight recorder delivers a [dump](Self::dump) if one was requested, and nothing if the dump fails.
    pub fn drain<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
        if !self.coverage.queues.are_here() {
            return Progress::NONE;
        }
        if self.flight.is_some() {
            return self.dump_if_asked(consumer).unwrap_or(Progress::NONE);
        }
        // An outer epoll instance may have taken the readiness of the rings.
        self.waiting.due.add_all();
        self.drain_due(consumer)
    }

    /// Drains the rings that a wait has reported, and follows CPUs that go online and offline.
    fn drain_due<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
        let (mut progress, is_taken) = self.drain_queues(consumer);
        if (self.coverage.is_time_to_watch(progress.records) || is_taken)
            && self.coverage.follow(&mut self.waiting, consumer)
        {
            self.waiting.look_at_all();
            progress.pending = true;
        }
        if progress.flow.is_continue() {
            progress.flow = self.report_failures(consumer);
        } else if self.accounting.has_failures_left() {
            self.waiting.look_at_all();
        }
        self.count_rejected(consumer);
        progress.pending |= self.waiting.pending;
        progress
    }

    /// Corrects the counts for a record that was taken out of its ring but not delivered.
    pub(crate) fn not_delivered(&mut self, cpu: u32, kind: RecordKind) {
        if let Ok(at) = self.coverage.queues.position(cpu) {
            self.coverage.queues.at(at).not_delivered(kind);
        }
    }

    /// Counts the records that were not valid records of their kind.
    pub(crate) fn count_rejected<C: Consumer>(&mut self, consumer: &mut C) {
        while let Some((cpu, records)) = consumer.rejected() {
            if let Ok(at) = self.coverage.queues.position(cpu) {
                self.coverage.queues.at(at).reject(records);
            }
        }
    }

    /// Reports records that failed for another reason than a full ring, and covers CPUs again whose events are gone.
    fn report_failures<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        let mut flow = ControlFlow::Continue(());
        let Some(failures) = self.accounting.failures() else { return flow };
        let fresh = std::mem::take(&mut self.coverage.fresh);
        for failure in failures {
            let (cpu, is_left) = (failure.cpu, flow.is_break());
            flow = self.accounting.report(failure, flow, consumer);
            let is_fresh = fresh.contains(&cpu);
            if is_left && is_fresh {
                // It is looked at with what is reported later.
                self.coverage.fresh.insert(cpu);
            }
            if is_left || !is_fresh && self.coverage.repair(failure, &mut self.waiting, consumer) {
                // What is left has no wakeup of its own.
                self.waiting.look_at_all();
            }
        }
        flow
    }

    /// Drains the queues that are due, and those of lazy CPUs. Also returns whether another consumer has taken over one of these
    /// CPUs: it writes to the ring once, which wakes this one.
    fn drain_queues<C: Consumer>(&mut self, consumer: &mut C) -> (Progress, bool) {
        let (mut progress, mut is_taken) = (Progress::NONE, false);
        let Self { waiting, coverage: Coverage { queues, .. }, .. } = self;
        waiting.begin_drain();
        let mut counting = self.accounting.before(consumer);
        let claims = Arc::clone(queues.claims());
        queues.visit(waiting.visited.cpus(), waiting.from, |queue| {
            let cpu = queue.cpu();
            if progress.flow.is_break() {
                // This queue was not drained, so it may not be empty.
                waiting.due.add(cpu);
                return;
            }
            let before = queue.counts().records;
            let drained = queue.drain(&mut counting, self.budget);
            let records = queue.counts().records - before;
            if let Some(adaptive) = &mut waiting.adaptive {
                adaptive.drained(cpu, records);
            }
            is_taken |= !queue.is_taken_over() && claims.has_lost(cpu);
            progress.records += records;
            progress.flow = drained.flow;
            if drained.flow.is_break() {
                waiting.from = cpu + 1;
            }
            if drained.more {
                waiting.due.add(cpu);
            }
        });
        // This also sweeps where one CPU has more than its budget: the blocks of other CPUs must not wait for it.
        waiting.end_drain();
        progress.pending = waiting.pending;
        waiting.has_delivered |= progress.records > 0;
        if !progress.pending
            && progress.flow.is_continue()
            && std::mem::take(&mut waiting.has_delivered)
        {
            progress.flow = consumer.caught_up();
        }
        (progress, is_taken)
    }

    /// Waits until there are records, or for `timeout` (`None` waits without a limit), and drains once. Does not wait
    /// if the last drain left something.
    ///
    /// Also returns after a sweep that found nothing: check [`Progress::records`].
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait, or to pause a ring for a dump; if no ring has room for the longest type of record
    /// that `consumer` expects ([`Consumer::longest`]), or the pipe is [raw](crate::Options::raw) and has no such
    /// records; or if this process was forked from the one that opened the pipe.
    pub fn poll<C: Consumer>(
        &mut self,
        timeout: Option<Duration>,
        consumer: &mut C,
    ) -> Result<Progress, PollError> {
        Drive::poll(self, timeout, consumer)
    }

    /// Drains whenever there are records, until `stop` is stopped or `consumer` breaks.
    ///
    /// It looks only at the rings of CPUs that have woken it or are busy. So do not wait for the pipe's descriptor
    /// elsewhere meanwhile: that would take the wakeups.
    ///
    /// After a stop, it drains what was emitted before the stop. A flight recorder waits for triggers instead, and
    /// keeps what it has for [`close`](Self::close).
    ///
    /// # Errors
    ///
    /// As [`poll`](Self::poll).
    pub fn run<C: Consumer>(&mut self, stop: &Stop, consumer: &mut C) -> Result<(), PollError> {
        Drive::run(self, stop, consumer).map(drop)
    }

    /// Drains until everything that was in the rings at the start of the call is consumed, or `consumer` breaks.
    ///
    /// For a flight recorder, this is a [drain](Self::drain).
    pub fn drain_all<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        if self.flight.is_some() {
            return self.drain(consumer).flow;
        }
        if let Some(adaptive) = &self.waiting.adaptive
            && self.coverage.queues.are_here()
        {
            adaptive.send_blocks();
            self.waiting.look_at_all();
        }
        for _ in 0..=self.rounds() {
            let progress = self.drain(consumer);
            progress.flow?;
            if !progress.pending {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// The number of drains that consume everything now in the rings, no matter what arrives meanwhile: a ring holds
    /// no more than its size, and a CPU that has come back has more than one.
    pub(crate) fn rounds(&self) -> usize {
        let rings = self.queues().iter().map(|queue| 1 + queue.retired.len()).max();
        self.bytes_per_cpu.div_ceil(self.budget) * rings.unwrap_or(1)
    }

    /// The adaptive wakeups, if the pipe has them.
    pub(crate) fn adaptive_mut(&mut self) -> Option<&mut Adaptive> {
        self.waiting.adaptive.as_mut()
    }
}

impl Drive for EvPipe {
    fn epoll(&self) -> &Epoll {
        &self.waiting.epoll
    }

    fn is_here(&self) -> bool {
        self.is_here()
    }

    fn check<C: Consumer>(&self, consumer: &C) -> Result<(), PollError> {
        if !self.is_here() {
            return Err(forked().into());
        }
        if self.contents == Contents::Raw && consumer.longest() > 0 {
            return Err(PollError::raw());
        }
        room::check(self.bytes_per_cpu, consumer)
    }

    fn is_pending(&self) -> bool {
        self.waiting.pending
    }

    fn tick(&mut self) -> io::Result<()> {
        // A forked child shares the epoll instance.
        if self.is_here() { self.waiting.tick() } else { Err(forked()) }
    }

    fn look_again(&mut self) {
        // A flight recorder looks on request only.
        if self.flight.is_none() {
            self.waiting.look_at_all();
        }
    }

    fn follow<C: Consumer>(&mut self, consumer: &mut C) -> bool {
        let any = self.coverage.queues.are_here()
            && self.coverage.is_watch_left()
            && self.coverage.follow(&mut self.waiting, consumer);
        if any {
            self.waiting.look_at_all();
        }
        any
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), PollError> {
        if !self.coverage.queues.are_here() {
            return Err(forked().into());
        }
        Ok(self.waiting.wait(timeout)?)
    }

    fn drain_once<C: Consumer>(&mut self, consumer: &mut C) -> Result<Progress, PollError> {
        match self.flight {
            Some(_) => Ok(self.dump_if_asked(consumer)?),
            None => Ok(self.drain(consumer)),
        }
    }

    fn drain_waited<C: Consumer>(&mut self, consumer: &mut C) -> Result<Progress, PollError> {
        match self.flight {
            Some(_) => Ok(self.dump_if_asked(consumer)?),
            None => Ok(self.drain_due(consumer)),
        }
    }

    fn drain_all<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        self.drain_all(consumer)
    }
}

/// Becomes readable when a drain would find something, or a sweep is due, but not for what the last drain has left
/// ([`Progress::pending`]).
///
/// The first poll of the descriptor takes the readiness of a ring, and later ones do not see it. Adding the descriptor to
/// an epoll instance counts as a poll. So drain after each `EPOLL_CTL_ADD` and `EPOLL_CTL_MOD`, and whenever the
/// descriptor was readable, before you wait again. Watch it without `EPOLLET`: a drain may leave the notice of a CPU that
/// goes online or offline to the next one.
impl AsFd for EvPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiting.epoll.as_fd()
    }
}

impl AsRawFd for EvPipe {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(all(test, feature = "aya"))]
mod disturbed;
#[cfg(all(test, feature = "aya"))]
mod faults;
#[cfg(all(test, feature = "aya"))]
mod tests;
