//! A trace: probes attached, and the pipe that their hits come through.

use super::attach::Links;
use super::builder::{Attached, TracerBuilder};
use super::calls;
use super::delivery::Delivery;
use super::error::TraceError;
use super::expand::LeftOut;
use super::features::is_refusal;
use super::ledger::Ledger;
use super::log_reader::LogReader;
use super::missed::Missed;
use super::object::Object;
use super::probe::Probe;
use super::sampling::{self, Sampling};
use crate::consumer::Consumer;
use crate::error::{PollError, TallyError};
use crate::evpipe::{EvPipe, Progress};
use crate::evqueue::EvQueue;
use crate::stop::Stop;
use crate::sys::perf_event::{PerfEvent, WakeAt};
use probe_common::Record;
use probe_common::trace::ProbeHit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Attached probes, and the pipe that their hits come through. To drop it detaches them.
#[derive(Debug)]
pub struct Tracer {
    // Dropped first: no program emits into a pipe that is gone.
    links: Links,
    probes: Vec<Probe>,
    left_out: Vec<LeftOut>,
    pipe: Delivery,
    object: Object,
    sampling: Sampling,
    logger: Option<LogReader>,
}

impl Tracer {
    /// Sets a trace up.
    pub fn builder() -> TracerBuilder {
        TracerBuilder::default()
    }

    pub(super) fn new(
        attached: Attached<Delivery>,
        sampling: Sampling,
        logger: Option<LogReader>,
    ) -> Self {
        let Attached { links, probes, left_out, object, output: pipe } = attached;
        Self { links, probes, left_out, pipe, object, sampling, logger }
    }

    /// The probes, in the order of their numbers, and what their events have.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// What patterns match, and what is not probed all the same: one for each pattern.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The pipe that events come through, to look at what it has counted.
    pub fn pipe(&self) -> &EvPipe {
        self.pipe.pipe()
    }

    /// Gives events to `consumer` until `stop` is stopped or `consumer` breaks.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub fn run<C: Consumer>(&mut self, stop: &Stop, consumer: &mut C) -> Result<(), PollError> {
        self.pipe.run(stop, consumer)
    }

    /// Waits until there are events, or for `timeout` (`None` is for ever), and gives them to `consumer`.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub fn poll<C: Consumer>(
        &mut self,
        timeout: Option<Duration>,
        consumer: &mut C,
    ) -> Result<Progress, PollError> {
        self.pipe.poll(timeout, consumer)
    }

    /// Gives the events that are there to `consumer`, without waiting: when the descriptor is readable,
    /// in a loop of your own.
    pub fn drain<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
        self.pipe.drain(consumer)
    }

    /// Whether the calling thread may make the calls of a trace that is attached: to have blocks
    /// sent, and to read what was counted.
    pub(super) fn may_finish(&self) -> bool {
        let read = match self.pipe().tally() {
            Some(tally) => tally.of(ProbeHit::KIND).map(drop),
            None => Ok(()),
        };
        !matches!(read, Err(TallyError::Read { source }) if is_refusal(&source))
            && !matches!(self.object.flush(self.any_cpu()), Err(error) if is_refusal(&error))
    }

    /// Whether the calling thread may open the event of another CPU.
    pub(super) fn may_open_events(&self) -> bool {
        let event = PerfEvent::bpf_output(self.any_cpu(), WakeAt::Events(1));
        !matches!(event, Err(error) if is_refusal(&error))
    }

    fn any_cpu(&self) -> u32 {
        self.pipe().queues().first().map_or(0, EvQueue::cpu)
    }

    /// Detaches the probes, gives `consumer` what is left, and tells what became of every record.
    ///
    /// # Errors
    ///
    /// If the eBPF side's count cannot be read.
    pub fn close<C: Consumer>(self, consumer: &mut C) -> Result<Ledger, TraceError> {
        let Self { links, probes, mut pipe, object, logger, sampling, .. } = self;
        let by_kernel = links.missed(probes.len());
        drop(links);
        let mut missed = vec![Missed::default(); probes.len()];
        if probes.iter().any(Probe::is_call) {
            missed = calls::missed(&object, probes.len())?;
        }
        missed.iter_mut().zip(by_kernel).for_each(|(missed, hits)| missed.by_kernel = hits);
        if !sampling.is_all() {
            let withheld = sampling::withheld(&object, probes.len())?;
            missed.iter_mut().zip(withheld).for_each(|(missed, hits)| missed.withheld = hits);
        }
        let _ = pipe.drain_all(consumer);
        drop(logger);
        let (records, late) = pipe.close(consumer)?;
        Ok(Ledger { records, late, not_followed: object.not_followed()?, missed })
    }
}

/// Readable when there may be events: call [`drain`](Tracer::drain) then.
impl AsFd for Tracer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}
