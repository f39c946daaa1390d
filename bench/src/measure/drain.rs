//! The cost of draining a record, next to a bare walk over the same bytes.

use super::{Bench, Outcome, median};
use crate::generator;
use crate::sink::Sink;
use crate::walk::Ring;
use anyhow::Result;
use std::time::{Duration, Instant};

impl Bench {
    /// Fills a ring and drains it on one CPU, so that its bytes are in that CPU's cache.
    pub(super) fn drain(&mut self) -> Result<Outcome> {
        let cpu = self.producers[0];
        generator::pin(cpu)?;
        let bytes = self.case.ring_kib << 10;
        let program = generator::loaded(&self.object, &self.program)?;
        // Half of the L2 cache, and at most half of the ring.
        let count = u32::try_from((256 << 10).min(bytes / 2) / (self.case.payload + 40))?;
        let walk = self.reader.event(cpu).map(|event| Ring::map(event, bytes)).transpose()?;
        let (mut drains, mut walks) = (Vec::new(), Vec::new());
        let start = Instant::now();
        let mut round = 0;
        let mut sums = 0;
        while start.elapsed() < Duration::from_millis(self.case.millis) || round < 4 {
            generator::run(program, count)?;
            round += 1;
            // Alternate, so that drain and walk each get to touch the bytes first.
            if let Some(ring) = walk.as_ref().filter(|_| round % 2 == 0) {
                let start = Instant::now();
                let (records, sum) = std::hint::black_box(ring.walk());
                walks.push(start.elapsed().as_nanos() as f64 / records.max(1) as f64);
                sums += sum;
                self.reader.drain(&mut Sink::default())?;
                continue;
            }
            let mut sink = Sink::default();
            let start = Instant::now();
            self.reader.drain(&mut sink)?;
            let time = start.elapsed().as_nanos() as f64;
            sink.verify(self.case.payload)?;
            if sink.records > 0 {
                drains.push(time / sink.records as f64);
            }
            sums += sink.sum;
        }
        std::hint::black_box(sums);
        Ok(Outcome { drain_ns: median(drains), walk_ns: median(walks), ..Outcome::default() })
    }
}
