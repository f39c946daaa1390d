//! Producers at full speed: the cost per record, and the rate delivered.

use super::consume::{Produced, TIMEOUT, consume};
use super::{Bench, EMPTY, Outcome};
use crate::generator::{self, join};
use crate::machine::peak_kib;
use crate::sink::Sink;
use anyhow::{Context, Result};
use aya::programs::SchedClassifier;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Runs per reading of the empty loop's cost.
const EMPTY_RUNS: u32 = 200_000;

/// Approximate time that one system call runs the program.
const STRETCH: Duration = Duration::from_millis(5);

/// One record in this many is timed: reading the clock takes ten times as long as draining a
/// record.
const SAMPLED: u64 = 251;

impl Bench {
    /// Emits at full speed while the consumer keeps up as well as it can.
    pub(super) fn full_speed(&mut self) -> Result<Outcome> {
        let stretch = self.calibrate()?;
        let sampled = if self.case.contender.profile().is_timed { SAMPLED } else { 0 };
        let mut sink = Sink::new(sampled);
        let producers = Producers {
            cpus: &self.producers,
            program: generator::loaded(&self.object, &self.program)?,
            empty: generator::loaded(&self.object, EMPTY)?,
            stretch,
            burst: self.case.load.burst(),
            time: Duration::from_millis(self.case.millis),
        };
        let consumed =
            consume(&mut *self.reader, TIMEOUT, &mut sink, self.consumer, || producers.produce())?;
        sink.verify(self.case.payload)?;
        let mean = |of: fn(&Cost) -> f64| {
            let costs = &consumed.produced;
            Some(costs.iter().map(of).sum::<f64>() / costs.len() as f64)
        };
        let (empty_ns, producer_ns_net) = (mean(|cost| cost.empty), mean(|cost| cost.emit));
        if !self.case.contender.delivers() {
            return Ok(Outcome { empty_ns, producer_ns_net, ..Outcome::default() });
        }
        let resident_kib = Some(resident_kib()?);
        Ok(Outcome { empty_ns, producer_ns_net, resident_kib, ..consumed.outcome(sink)? })
    }

    /// Runs of the program that fit into one [`STRETCH`].
    fn calibrate(&mut self) -> Result<u32> {
        const WARM: u32 = 2_500;
        let program = generator::loaded(&self.object, &self.program)?;
        let (cpu, burst) = (self.producers[0], self.case.load.burst());
        let sink = &mut Sink::default();
        let consumed = consume(&mut *self.reader, TIMEOUT, sink, self.consumer, || {
            let start = Instant::now();
            generator::pin(cpu)?;
            let time = generator::run(program, WARM)?;
            Ok(Produced { start, records: u64::from(WARM * burst), result: time / WARM })
        })?;
        let runs = STRETCH.as_nanos() / consumed.produced.as_nanos().max(1);
        Ok(u32::try_from(runs)?.max(1))
    }
}

/// Producers at full speed, one on each of `cpus`.
struct Producers<'b> {
    cpus: &'b [u32],
    program: &'b SchedClassifier,
    empty: &'b SchedClassifier,
    /// Runs of the program per system call.
    stretch: u32,
    /// Records per run.
    burst: u32,
    time: Duration,
}

/// The result of one producer.
struct Emitted {
    start: Instant,
    runs: u64,
    cost: Cost,
}

/// The cost of one producer's work, in nanoseconds.
struct Cost {
    /// Per run of the empty program.
    empty: f64,
    /// Per record, net of the empty program.
    emit: f64,
}

impl Producers<'_> {
    /// Starts all producers together and runs them until a common end.
    fn produce(&self) -> Result<Produced<Vec<Cost>>> {
        let all_ready = &Barrier::new(self.cpus.len());
        let emitted = std::thread::scope(|scope| {
            let emit = |&cpu| scope.spawn(move || self.emit(cpu, all_ready));
            let threads: Vec<_> = self.cpus.iter().map(emit).collect();
            threads.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        let start = emitted.iter().map(|emitted| emitted.start).min().context("no producers")?;
        let runs: u64 = emitted.iter().map(|emitted| emitted.runs).sum();
        let result = emitted.into_iter().map(|emitted| emitted.cost).collect();
        Ok(Produced { start, records: runs * u64::from(self.burst), result })
    }

    fn emit(&self, cpu: u32, all_ready: &Barrier) -> Result<Emitted> {
        let run_empty = || generator::run(self.empty, EMPTY_RUNS);
        let before = generator::pin(cpu).and_then(|()| run_empty());
        // Reach the barrier even after an error, or the other producers wait forever.
        all_ready.wait();
        let before = before?;
        let start = Instant::now();
        let (runs, run) = generator::run_until(self.program, self.stretch, start + self.time)?;
        let empty = before.min(run_empty()?).as_nanos() as f64 / f64::from(EMPTY_RUNS);
        let cost = Cost { empty, emit: (run - empty) / f64::from(self.burst) };
        Ok(Emitted { start, runs, cost })
    }
}

/// Peak resident memory of this process.
fn resident_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    peak_kib(&status).context("/proc/self/status has no VmHWM")
}
