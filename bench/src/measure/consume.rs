//! A consumer, while others produce.

use super::{Latency, Outcome};
use crate::generator::{self, join};
use crate::reader::{Reader, Spent};
use crate::sink::Sink;
use anyhow::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What producers did.
pub(super) struct Produced<T> {
    /// When they began.
    pub(super) start: Instant,
    pub(super) records: u64,
    /// What they have to tell besides.
    pub(super) told: T,
}

/// What happened while a consumer consumed.
pub(super) struct Consumed<T> {
    /// What the producers told.
    pub(super) told: T,
    attempted: u64,
    /// From the start of the producers until the last record was delivered.
    until_last: Duration,
    cpu: Duration,
    wakeups: u64,
}

impl<T> Consumed<T> {
    /// What was delivered to `sink`, and what that took the consumer.
    pub(super) fn outcome(&self, sink: Sink) -> Outcome {
        let seconds = self.until_last.as_secs_f64();
        Outcome {
            delivered_per_s: Some(sink.records as f64 / seconds),
            attempted: Some(self.attempted),
            lost: Some(self.attempted.saturating_sub(sink.records)),
            consumer_cpu: Some(self.cpu.as_secs_f64() / seconds),
            wakeups_per_s: Some(self.wakeups as f64 / seconds),
            latency_ns: Latency::of(sink.latencies),
            ..Outcome::default()
        }
    }
}

const NOT_YET: u64 = u64::MAX;

/// For so long a consumer waits by default, at most.
pub(super) const TIMEOUT: Duration = Duration::from_millis(100);

/// Consumes on this thread while `produce` runs on another, until everything has come that it says
/// it attempted, or nothing comes any more. It waits for `timeout` at most, and looks again.
pub(super) fn consume<T: Send>(
    reader: &mut dyn Reader,
    timeout: Duration,
    sink: &mut Sink,
    cpu: Option<u32>,
    produce: impl FnOnce() -> Result<Produced<T>> + Send,
) -> Result<Consumed<T>> {
    /// Longer than any contender keeps a record.
    const PATIENCE: Duration = Duration::from_millis(300);
    let attempted = AtomicU64::new(NOT_YET);
    let told_attempted = &attempted;
    std::thread::scope(|scope| {
        if let Some(cpu) = cpu {
            generator::pin(cpu)?;
        }
        let before = reader.spent();
        let producer = scope.spawn(move || {
            let produced = produce();
            let records = produced.as_ref().map_or(0, |produced| produced.records);
            told_attempted.store(records, Ordering::Release);
            produced
        });
        // When a record came last.
        let mut last = Spent { at: Instant::now(), ..before };
        loop {
            let seen = sink.records;
            reader.step(timeout, sink)?;
            if sink.records != seen {
                last = reader.spent();
            }
            let attempted = told_attempted.load(Ordering::Acquire);
            if attempted != NOT_YET && (sink.records >= attempted || last.at.elapsed() > PATIENCE) {
                break;
            }
        }
        let Produced { start, records: attempted, told } = join(producer)?;
        Ok(Consumed {
            told,
            attempted,
            until_last: last.at.duration_since(start),
            cpu: last.cpu - before.cpu,
            wakeups: last.wakeups - before.wakeups,
        })
    })
}
