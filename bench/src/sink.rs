//! The common end of all contenders: counts records and times a sample of them.

use anyhow::{Result, ensure};
use rustix::time::{ClockId, clock_gettime};

/// The clock of `bpf_ktime_get_ns`, in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The last word of a payload of `payload` bytes, whose words count from 0.
fn last_word(payload: usize) -> u64 {
    (payload / size_of::<u64>()) as u64 - 1
}

/// The default sink times no records.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) records: u64,
    /// Losses that the contender reported.
    pub(crate) lost: u64,
    /// Sum of the last word of each record, which forces a read of the payload.
    pub(crate) sum: u64,
    /// One record in `every` is timed; 0 for none.
    every: u64,
    /// Records left until the next timed one. A countdown avoids a division, which would be a fifth
    /// of a consumer's work. Starting from 0, it never reaches the next one.
    untimed: u64,
    /// Nanoseconds from emission to the sink.
    pub(crate) latencies: Vec<u64>,
}

impl Sink {
    /// Times one record in `every`, or none if that is 0.
    pub(crate) fn new(every: u64) -> Self {
        Self { every, untimed: every, latencies: Vec::with_capacity(1 << 20), ..Self::default() }
    }

    pub(crate) fn every(&self) -> u64 {
        self.every
    }

    /// Times one record in `every` from now on.
    pub(crate) fn time_one_in(&mut self, every: u64) {
        if every != self.every {
            (self.every, self.untimed) = (every, every);
        }
    }

    /// Moves everything counted so far to `other`.
    pub(crate) fn pass_on_to(&mut self, other: &mut Self) {
        other.records += std::mem::take(&mut self.records);
        other.lost += std::mem::take(&mut self.lost);
        other.sum = other.sum.wrapping_add(std::mem::take(&mut self.sum));
        other.latencies.append(&mut self.latencies);
    }

    /// Checks that the records received are those that the programs emit with `payload` bytes.
    pub(crate) fn verify(&self, payload: usize) -> Result<()> {
        let expected = self.records.wrapping_mul(last_word(payload));
        ensure!(self.sum == expected, "received records that no program emitted");
        Ok(())
    }

    /// Takes a record by its time and its payload.
    #[inline(always)]
    pub(crate) fn record(&mut self, time: u64, payload: &[u8]) {
        self.records += 1;
        if let Some(word) = payload.last_chunk() {
            self.sum = self.sum.wrapping_add(u64::from_ne_bytes(*word));
        }
        self.untimed = self.untimed.wrapping_sub(1);
        if self.untimed == 0 {
            self.untimed = self.every;
            self.latencies.push(now().saturating_sub(time));
        }
    }

    /// Takes a record in the peers' format: header, payload, then the kernel's padding.
    #[inline(always)]
    pub(crate) fn framed(&mut self, bytes: &[u8], payload: usize) {
        use probe_common::RecordHeader;
        use zerocopy::FromBytes;
        if let Ok((header, rest)) = RecordHeader::read_from_prefix(bytes)
            && let Some(payload) = rest.get(..payload.min(header.len as usize))
        {
            self.record(header.time, payload);
        }
    }

    /// Takes a block of equal records in the pipe's format.
    #[cfg(feature = "libbpf")]
    #[inline(always)]
    pub(crate) fn block(&mut self, bytes: &[u8]) {
        if let Ok(records) = probe_common::Records::new(bytes)
            && let Some((kind, len)) = records.next_shape()
        {
            records.alike(kind, len).for_each(|record| self.record(record.time, record.payload));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_no_program_emitted_are_rejected() {
        let emitted: [u64; 8] = std::array::from_fn(|at| at as u64);
        let bytes = |words: [u64; 8]| words.map(u64::to_ne_bytes).concat();
        let mut sink = Sink::default();
        sink.verify(64).unwrap();
        for _ in 0..3 {
            sink.record(0, &bytes(emitted));
        }
        sink.verify(64).unwrap();
        sink.verify(16).unwrap_err();
        sink.record(0, &bytes([0; 8]));
        sink.verify(64).unwrap_err();
    }
}
