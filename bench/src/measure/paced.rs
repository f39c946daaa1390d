//! A producer that emits at a rate: latency, and what waiting costs.

use super::consume::{Produced, consume};
use super::{Bench, Case, Outcome};
use crate::generator;
use crate::sink::Sink;
use anyhow::Result;
use std::time::{Duration, Instant};

impl Bench {
    /// Emits at a rate, on one CPU.
    pub(super) fn paced(&mut self) -> Result<Outcome> {
        let Case { rate, millis, .. } = self.case;
        let mut sink = Sink::new(1);
        let program = generator::loaded(&self.object, &self.program)?;
        let cpu = self.producers[0];
        let consumed = consume(&mut *self.reader, &mut sink, self.consumer, || {
            let start = Instant::now();
            generator::pin(cpu)?;
            // A consumer that is to be idle is so by then.
            std::thread::sleep(Duration::from_millis(100));
            let records = generator::pace(program, rate, Duration::from_millis(millis))?;
            Ok(Produced { start, records, told: () })
        })?;
        Ok(consumed.outcome(sink))
    }
}
