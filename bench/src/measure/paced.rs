//! A producer at a fixed rate: latency, and the cost of waiting.

use super::consume::{Produced, TIMEOUT, consume};
use super::{Bench, Case, Outcome};
use crate::generator;
use crate::sink::{Sink, now};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

impl Bench {
    /// Emits at a fixed rate on one CPU.
    pub(super) fn paced(&mut self) -> Result<Outcome> {
        let Case { rate, random, millis, phase, .. } = self.case;
        ensure!(rate > 0, "--load paced needs a --rate of at least one record per second");
        let mut sink = Sink::new(1);
        let program = generator::loaded(&self.object, &self.program)?;
        let cpu = self.producers[0];
        // A consumer that should be idle has nothing to check between two records.
        let timeout = TIMEOUT.max(Duration::from_secs(2) / rate);
        let consumed = consume(&mut *self.reader, timeout, &mut sink, self.consumer, || {
            let start = Instant::now();
            generator::pin(cpu)?;
            // Long enough for a consumer to become idle.
            std::thread::sleep(Duration::from_millis(100));
            if let Some(phase) = phase {
                std::thread::sleep(until(phase));
            }
            let records = generator::pace(program, rate, random, Duration::from_millis(millis))?;
            Ok(Produced { start, records, result: () })
        })?;
        sink.verify(self.case.payload)?;
        consumed.outcome(sink)
    }
}

/// Time left until `phase` milliseconds after a full second.
fn until(phase: u64) -> Duration {
    let into_second = now() % 1_000_000_000;
    Duration::from_nanos((phase * 1_000_000 + 1_000_000_000 - into_second) % 1_000_000_000)
}
