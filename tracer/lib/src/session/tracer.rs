//! A trace: attached probes, and the pipe that delivers their events.

use super::attached::{Attached, Detaching, Ended};
use crate::error::TraceError;
use crate::hook::expand::LeftOut;
use crate::kernel::features::is_refusal;
use crate::object::Sampling;
use crate::resolve::probe::Probe;
use crate::session::delivery::Delivery;
use crate::session::ledger::TraceLedger;
use crate::session::log_reader::LogReader;
use crate::session::missed::{self, Missed};
use probe_common::Record;
use probe_sys::perf_event::{PerfEvent, WakeAt};
use probe_tracer_common::trace::ProbeHit;
use probe_user::{Consumer, EvPipe, EvQueue, PollError, Progress, Stop, TallyError};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Attached probes, and the pipe that delivers their events. Dropping it detaches them.
#[derive(Debug)]
pub struct Tracer {
    pub(super) attached: Attached<Delivery>,
    pub(super) sampling: Sampling,
    pub(super) logger: Option<LogReader>,
}

impl Tracer {
    /// Begins a trace that was [held](crate::TracerBuilder::held). Hits that the kernel has not passed on until now are not
    /// counted as missed.
    ///
    /// # Errors
    ///
    /// If the kernel does not let the programs begin.
    pub fn begin(&mut self) -> Result<(), TraceError> {
        self.attached.count_from_now()?;
        self.attached.object.set_gate(true)
    }

    /// The map with processes that are not traced.
    pub(crate) fn readers(&self) -> Result<OwnedFd, TraceError> {
        self.attached.object.readers()
    }

    /// The probes, in the order of their numbers, and the fields of their events.
    pub fn probes(&self) -> &[Probe] {
        &self.attached.probes
    }

    /// How many programs the tables of their probes are compiled into. For tests.
    #[doc(hidden)]
    pub fn specialized(&self) -> usize {
        self.attached.object.specialized_count()
    }

    /// What the patterns match but the tracer does not probe: one for each pattern.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.attached.left_out
    }

    /// The pipe that delivers events, for its statistics.
    pub fn pipe(&self) -> &EvPipe {
        self.attached.output.pipe()
    }

    /// Delivers events to `consumer` until `stop` is stopped or `consumer` breaks.
    ///
    /// # Errors
    ///
    /// If waiting for events fails.
    pub fn run<C: Consumer>(&mut self, stop: &Stop, consumer: &mut C) -> Result<(), PollError> {
        self.attached.output.run(stop, consumer)
    }

    /// Waits for events, for at most `timeout` (`None` waits forever), and delivers them to
    /// `consumer`.
    ///
    /// # Errors
    ///
    /// If waiting for events fails.
    pub fn poll<C: Consumer>(
        &mut self,
        timeout: Option<Duration>,
        consumer: &mut C,
    ) -> Result<Progress, PollError> {
        self.attached.output.poll(timeout, consumer)
    }

    /// Delivers the available events to `consumer` without waiting. Call it from your own event
    /// loop when the descriptor is readable.
    pub fn drain<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
        self.attached.output.drain(consumer)
    }

    /// Whether the calling thread may still make the system calls of an attached trace: flushing
    /// blocks and reading counts.
    pub(crate) fn may_finish(&self) -> bool {
        let read = match self.pipe().tally() {
            Some(tally) => tally.of(ProbeHit::KIND).map(drop),
            None => Ok(()),
        };
        !matches!(read, Err(TallyError::Read { cause }) if is_refusal(&cause))
            && !matches!(self.attached.object.flush(self.any_cpu()), Err(error) if is_refusal(&error))
    }

    /// Whether the calling thread may open another CPU's event.
    pub(crate) fn may_open_events(&self) -> bool {
        let event = PerfEvent::bpf_output(self.any_cpu(), WakeAt::Events(1));
        !matches!(event, Err(error) if is_refusal(&error))
    }

    fn any_cpu(&self) -> u32 {
        self.pipe().queues().first().map_or(0, EvQueue::cpu)
    }

    /// Detaches the probes, delivers the remaining events to `consumer`, and returns the
    /// accounting.
    ///
    /// # Errors
    ///
    /// If the counts in the kernel cannot be read.
    pub fn close<C: Consumer>(self, consumer: &mut C) -> Result<TraceLedger, TraceError> {
        self.finish(consumer).map(|(ledger, _)| ledger)
    }

    /// Like [`close`](Self::close), but leaves it to the caller when the probes are detached. They
    /// emit nothing any more.
    ///
    /// # Errors
    ///
    /// If the counts in the kernel cannot be read.
    pub fn finish<C: Consumer>(
        self,
        consumer: &mut C,
    ) -> Result<(TraceLedger, Detaching), TraceError> {
        let Self { mut attached, sampling, logger } = self;
        let Ended { missed: by_kernel, skipped, mut detaching } = attached.end()?;
        if logger.is_some() {
            // Programs that are attached go on logging, and the logger reads until there is nothing more.
            std::mem::take(&mut detaching).wait();
        }
        let Attached { probes, output: mut pipe, object, .. } = attached;
        let mut missed = vec![Missed::default(); probes.len()];
        if probes.iter().any(Probe::is_call) {
            missed = missed::calls(&object, probes.len())?;
        }
        missed.iter_mut().zip(by_kernel).for_each(|(missed, hits)| missed.by_kernel = hits);
        if !sampling.is_all() {
            let sampled_out = missed::sampled_out(&object, probes.len())?;
            missed.iter_mut().zip(sampled_out).for_each(|(missed, hits)| missed.sampled_out = hits);
        }
        if object.may_be_undecided() {
            let undecided = missed::undecided(&object, probes.len())?;
            missed.iter_mut().zip(undecided).for_each(|(missed, hits)| missed.undecided = hits);
        }
        let _ = pipe.drain_all(consumer);
        drop(logger);
        let (records, late) = pipe.close(consumer)?;
        let not_followed = object.not_followed()?;
        Ok((TraceLedger { records, late, not_followed, missed, skipped }, detaching))
    }
}

/// The descriptor is readable when there may be events: call [`drain`](Tracer::drain) then.
impl AsFd for Tracer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attached.output.as_fd()
    }
}
