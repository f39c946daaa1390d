//! Attached probes, whatever is done with their hits.

use crate::error::TraceError;
use crate::hook;
use crate::hook::attach::Links;
use crate::hook::expand::LeftOut;
use crate::object::Object;
use crate::object::per_cpu::PerCpu;
use crate::resolve::probe::Probe;
use crate::session::missed;
use crate::session::waits::Waiting;
use probe_sys::membarrier;
use probe_tracer_common::count::Count;

/// Attached probes. Dropping it detaches them.
#[derive(Debug)]
pub(crate) struct Attached<O> {
    // Dropped first, so that no program writes to a pipe or to maps that are closed.
    pub(crate) links: Links,
    pub(crate) probes: Vec<Probe>,
    pub(crate) left_out: Vec<LeftOut>,
    /// The hits that wait, if any may. Dropped before the output, into which they go.
    pub(crate) waiting: Option<Waiting>,
    /// Where their hits go.
    pub(crate) output: O,
    pub(crate) object: Object,
    /// The hits of each probe that the kernel did not pass on before they counted.
    pub(crate) missed: Vec<Option<u64>>,
    /// The hits of all probes that the kernel had [skipped](missed::skipped) by then.
    pub(crate) skipped: Option<u64>,
}

/// Probes that are still attached after the end of a trace, where they have no effect any more. Dropping it detaches them,
/// which takes long if there are thousands, because the kernel waits for each, unless a
/// [process in the background](crate::TracerBuilder::detach_in_background) does it.
#[derive(Debug, Default)]
pub struct Detaching {
    links: Links,
}

/// The end of the hits of all probes.
pub(crate) struct Ended {
    /// The number of hits of each probe that the kernel did not pass on.
    pub(crate) missed: Vec<Option<u64>>,
    /// The number of hits of all probes that the kernel [skipped](missed::skipped).
    pub(crate) skipped: Option<u64>,
    pub(crate) detaching: Detaching,
}

impl<O> Attached<O> {
    /// What the kernel has not passed on so far does not count.
    pub(crate) fn count_from_now(&mut self) -> Result<(), TraceError> {
        self.missed = self.links.missed(self.probes.len());
        self.skipped = missed::skipped(&self.object, &self.probes, &self.links)?;
        Ok(())
    }

    /// Ends the hits of all probes at the same time. Afterwards, no program counts or emits anything any more, and no hit waits.
    pub(crate) fn end(&mut self) -> Result<Ended, TraceError> {
        let closed = self.object.set_gate(false);
        let missed = self.links.missed(self.probes.len());
        let skipped = missed::skipped(&self.object, &self.probes, &self.links);
        // A program that is still running may not have counted yet.
        let has_ended = closed.is_ok() && membarrier::wait_for_programs().is_ok();
        let links = std::mem::take(&mut self.links);
        let links = if has_ended { links } else { detached(links) };
        self.waiting.take().map_or(Ok(()), Waiting::end)?;
        let since = |now: Option<u64>, before: Option<u64>| {
            now.map(|now| now.saturating_sub(before.unwrap_or(0)))
        };
        Ok(Ended {
            missed: missed
                .into_iter()
                .zip(&self.missed)
                .zip(&self.probes)
                .map(|((now, &then), probe)| {
                    since(now, then).filter(|_| hook::of(probe.spec().provider()).counts_missed())
                })
                .collect(),
            skipped: since(skipped?, self.skipped),
            detaching: Detaching { links },
        })
    }
}

impl Detaching {
    /// Detaches everything now.
    pub(crate) fn wait(self) {
        detached(self.links);
    }
}

/// Detaches everything now. When that is done, the last program has ended.
fn detached(mut links: Links) -> Links {
    links.in_background = false;
    drop(links);
    Links::default()
}

/// Probes whose hits are aggregated in the kernel instead of emitted.
pub(crate) type Aggregate = Attached<PerCpu<Count>>;

impl Aggregate {
    /// The counts of each probe so far: its hits, and those that it could not judge.
    pub(crate) fn counts(&self) -> Result<Vec<Count>, TraceError> {
        self.output.sum(self.probes.len(), |sum, Count { hits, unjudged }| {
            sum.hits += hits;
            sum.unjudged += unjudged;
        })
    }
}
