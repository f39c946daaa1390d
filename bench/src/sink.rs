//! Where the records of every contender end: counted, and now and then timed.

use rustix::time::{ClockId, clock_gettime};

/// What `bpf_ktime_get_ns` gives, in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// By default, it times none.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) records: u64,
    /// Losses that the contender told of.
    pub(crate) lost: u64,
    /// Of one word of each record, so that somebody looks at it.
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
