//! Timing calls, in the kernel.

use super::aggregate::Aggregate;
use super::calls;
use super::error::TraceError;
use super::expand::LeftOut;
use super::missed::Missed;
use super::per_cpu::PerCpu;
use super::probe::Probe;
use probe_common::histogram::{HISTOGRAMS, Histogram};

/// Attached probes whose calls are timed. To drop it detaches them.
///
/// Nothing comes out of the kernel before it is [read](Self::read).
///
/// ```no_run
/// use probe_user::trace::Tracer;
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

/// How long calls took, once nothing is timed any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latencies {
    /// Of each probe, in the order of their numbers.
    pub probes: Vec<(Probe, Latency)>,
    /// Processes and threads that should have been followed, and for which there was no room.
    pub not_followed: u64,
}

/// How long the calls of a function took, of the kernel or of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// Of the calls that were timed.
    pub histogram: Histogram,
    /// Calls that are not among them, since too many programs interrupted each other on a CPU.
    pub untimed: u64,
    /// Calls that are not among them for other reasons: those that have not returned, for one.
    pub missed: Missed,
}

impl Stopwatch {
    pub(super) fn new(aggregate: Aggregate) -> Result<Self, TraceError> {
        let histograms = PerCpu::open(&aggregate.object, HISTOGRAMS)?;
        Ok(Self { aggregate, histograms })
    }

    /// The probes, in the order of their numbers.
    pub fn probes(&self) -> &[Probe] {
        &self.aggregate.probes
    }

    /// What patterns match, and what is not probed all the same: one for each pattern.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.aggregate.left_out
    }

    /// How long calls took that have returned so far, for each probe in the order of their numbers.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn read(&self) -> Result<Vec<Histogram>, TraceError> {
        self.histograms.sum(self.aggregate.probes.len(), Histogram::add)
    }

    /// Detaches the probes, and tells how long calls took.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn close(mut self) -> Result<Latencies, TraceError> {
        let by_kernel = self.aggregate.detach();
        let (histograms, counts) = (self.read()?, self.aggregate.counts()?);
        let Aggregate { probes, object, .. } = self.aggregate;
        let missed = calls::missed(&object, probes.len())?;
        let latencies = histograms.into_iter().zip(counts).zip(missed).zip(by_kernel);
        let latencies = latencies.map(|(((histogram, count), missed), by_kernel)| Latency {
            histogram,
            untimed: count.unjudged,
            missed: Missed { by_kernel, ..missed },
        });
        let not_followed = object.not_followed()?;
        Ok(Latencies { probes: probes.into_iter().zip(latencies).collect(), not_followed })
    }
}
