//! Where the records of every contender end: counted, and now and then timed.

use anyhow::{Result, ensure};
use rustix::time::{ClockId, clock_gettime};

/// What `bpf_ktime_get_ns` gives, in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The last word of a payload of so many bytes, which counts them from 0.
fn last_word(payload: usize) -> u64 {
    (payload / size_of::<u64>()) as u64 - 1
}

/// By default, it times none.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) records: u64,
    /// Losses that the contender told of.
    pub(crate) lost: u64,
    /// Of the last word of each record, so that somebody looks at it.
    pub(crate) sum: u64,
    /// One record in so many is timed; 0 for none.
    every: u64,
    /// How many come until one is timed. Counted down, since to divide would be a fifth of what a consumer
    /// does; from 0, it does not get there.
    untimed: u64,
    /// Nanoseconds from emission to here.
    pub(crate) latencies: Vec<u64>,
}

impl Sink {
    /// Times one record in `every`, if it is not 0.
    pub(crate) fn new(every: u64) -> Self {
        Self { every, untimed: every, latencies: Vec::with_capacity(1 << 20), ..Self::default() }
    }

    pub(crate) fn every(&self) -> u64 {
        self.every
    }

    /// Times one record in `every`, from now on.
    pub(crate) fn time_one_in(&mut self, every: u64) {
        if every != self.every {
            (self.every, self.untimed) = (every, every);
        }
    }

    /// Gives what it has to another one.
    pub(crate) fn pass_on_to(&mut self, other: &mut Self) {
        other.records += std::mem::take(&mut self.records);
        other.lost += std::mem::take(&mut self.lost);
        other.sum = other.sum.wrapping_add(std::mem::take(&mut self.sum));
        other.latencies.append(&mut self.latencies);
    }

    /// Whether what it took is what programs emit, with so many bytes of payload.
    pub(crate) fn verify(&self, payload: usize) -> Result<()> {
        let expected = self.records.wrapping_mul(last_word(payload));
        ensure!(self.sum == expected, "records have come that nobody emitted");
        Ok(())
    }

    /// Takes a record: its time, and its payload as bytes.
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

    /// Takes a record as peers carry it: header, payload, and what the kernel padded with.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_records_are_told_from_those_that_are_emitted() {
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
