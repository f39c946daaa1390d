//! Consuming while producers run.

use super::{Latency, Outcome};
use crate::generator::{self, join};
use crate::reader::{Reader, Spent};
use crate::sink::Sink;
use anyhow::{Result, ensure};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The result of the producers.
pub(super) struct Produced<T> {
    /// When the producers started.
    pub(super) start: Instant,
    pub(super) records: u64,
    /// Any further result.
    pub(super) result: T,
}

/// What happened while the consumer ran.
pub(super) struct Consumed<T> {
    /// The further result of the producers.
    pub(super) produced: T,
    attempted: u64,
    /// From the producers' start to the last delivered record.
    until_last: Duration,
    cpu: Duration,
    wakeups: u64,
}

impl<T> Consumed<T> {
    /// The outcome of what `sink` received, and its cost.
    pub(super) fn outcome(&self, sink: Sink) -> Result<Outcome> {
        let Self { attempted, .. } = *self;
        ensure!(sink.records <= attempted, "received {} of {attempted} records", sink.records);
        let seconds = self.until_last.as_secs_f64();
        Ok(Outcome {
            delivered_per_s: Some(sink.records as f64 / seconds),
            attempted: Some(attempted),
            lost: Some(attempted - sink.records),
            consumer_cpu: Some(self.cpu.as_secs_f64() / seconds),
            wakeups_per_s: Some(self.wakeups as f64 / seconds),
            latency_ns: Latency::of(sink.latencies),
            ..Outcome::default()
        })
    }
}

const NOT_YET: u64 = u64::MAX;

/// The default for a consumer's longest wait.
pub(super) const TIMEOUT: Duration = Duration::from_millis(100);

/// Consumes on this thread while `produce` runs on another one, until all attempted records have
/// arrived or no more arrive. Each wait lasts for `timeout` at most.
pub(super) fn consume<T: Send>(
    reader: &mut dyn Reader,
    timeout: Duration,
    sink: &mut Sink,
    cpu: Option<u32>,
    produce: impl FnOnce() -> Result<Produced<T>> + Send,
) -> Result<Consumed<T>> {
    /// Longer than any contender holds a record back.
    const PATIENCE: Duration = Duration::from_millis(300);
    let attempted = AtomicU64::new(NOT_YET);
    let published = &attempted;
    std::thread::scope(|scope| {
        if let Some(cpu) = cpu {
            generator::pin(cpu)?;
        }
        let before = reader.spent();
        let producer = scope.spawn(move || {
            let produced = produce();
            let records = produced.as_ref().map_or(0, |produced| produced.records);
            published.store(records, Ordering::Release);
            produced
        });
        // When the last record arrived.
        let mut last = Spent { at: Instant::now(), ..before };
        loop {
            let seen = sink.records;
            reader.step(timeout, sink)?;
            if sink.records != seen {
                last = reader.spent();
            }
            let attempted = published.load(Ordering::Acquire);
            if attempted != NOT_YET && (sink.records >= attempted || last.at.elapsed() > PATIENCE) {
                break;
            }
        }
        let Produced { start, records: attempted, result } = join(producer)?;
        Ok(Consumed {
            produced: result,
            attempted,
            until_last: last.at.duration_since(start),
            cpu: last.cpu - before.cpu,
            wakeups: last.wakeups - before.wakeups,
        })
    })
}
