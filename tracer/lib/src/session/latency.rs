//! Timing calls in the kernel.

use crate::error::TraceError;
use crate::hook::expand::LeftOut;
use crate::object::per_cpu::PerCpu;
use crate::resolve::probe::Probe;
use crate::session::attached::{Aggregate, Detaching, Ended};
use crate::session::missed::{self, Missed};
use probe_tracer_common::histogram::{HISTOGRAMS, Histogram};

/// Attached probes whose calls are timed. Dropping it detaches them.
///
/// No data leaves the kernel until it is [read](Self::read).
///
/// ```no_run
/// use probe_tracer::Tracer;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let stopwatch = Tracer::builder().probe("vfs_read".parse()?).time_with(|_| {})?;
/// std::thread::sleep(std::time::Duration::from_secs(1));
/// for (probe, latency) in stopwatch.close()?.probes {
///     println!("{}: {:?} ns in the mean", probe.spec(), latency.histogram.mean());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Stopwatch {
    aggregate: Aggregate,
    histograms: PerCpu<Histogram>,
}

/// How long calls took, once the probes are detached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latencies {
    /// The latency of each probe, in the order of their numbers.
    pub probes: Vec<(Probe, Latency)>,
    /// Processes and threads that should have been followed, but found no room.
    pub not_followed: u64,
    /// Entries and returns that the kernel did not pass on, mostly because another eBPF program was running
    /// on the CPU. It counts them for all tasks. `None` if it does not count them (before 6.7).
    pub skipped: Option<u64>,
}

/// How long the calls of one probe took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// The durations of the calls that were timed.
    pub histogram: Histogram,
    /// Calls that were not timed because too many programs interrupted each other on a CPU, or because the probe's condition
    /// could not be decided.
    pub untimed: u64,
    /// Calls that were not timed for other reasons, such as those that have not returned.
    pub missed: Missed,
}

impl Stopwatch {
    pub(crate) fn new(aggregate: Aggregate) -> Result<Self, TraceError> {
        let histograms = PerCpu::open(&aggregate.object, HISTOGRAMS)?;
        Ok(Self { aggregate, histograms })
    }

    /// The probes, in the order of their numbers.
    pub fn probes(&self) -> &[Probe] {
        &self.aggregate.probes
    }

    /// What the patterns match but the tracer does not probe: one for each pattern.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.aggregate.left_out
    }

    /// How long the calls that returned so far took, for each probe in the order of their numbers.
    ///
    /// # Errors
    ///
    /// If the counts cannot be read.
    pub fn read(&self) -> Result<Vec<Histogram>, TraceError> {
        self.histograms.sum(self.aggregate.probes.len(), Histogram::add)
    }

    /// Detaches the probes, and returns how long calls took.
    ///
    /// # Errors
    ///
    /// If the counts cannot be read.
    pub fn close(self) -> Result<Latencies, TraceError> {
        self.finish().map(|(latencies, _)| latencies)
    }

    /// Like [`close`](Self::close), but leaves it to the caller when the probes are detached. They
    /// time nothing any more.
    ///
    /// # Errors
    ///
    /// If the counts cannot be read.
    pub fn finish(mut self) -> Result<(Latencies, Detaching), TraceError> {
        let Ended { missed: by_kernel, skipped, detaching } = self.aggregate.end()?;
        let (histograms, counts) = (self.read()?, self.aggregate.counts()?);
        let Aggregate { probes, object, .. } = self.aggregate;
        let missed = missed::calls(&object, probes.len())?;
        let latencies = histograms.into_iter().zip(counts).zip(missed).zip(by_kernel);
        let latencies = latencies.map(|(((histogram, count), missed), by_kernel)| Latency {
            histogram,
            untimed: count.unjudged,
            missed: Missed { by_kernel, ..missed },
        });
        let not_followed = object.not_followed()?;
        let probes = probes.into_iter().zip(latencies).collect();
        Ok((Latencies { probes, not_followed, skipped }, detaching))
    }
}
