//! How a pipe is opened.

use crate::error::OpenError;
use crate::sys::memory::page_size;
use crate::sys::perf_event::WakeAt;
use std::time::Duration;

/// When the kernel wakes the consumer.
///
/// A wakeup is an interrupt on the producing CPU, which costs many times what the record itself
/// does. So the fewer, the faster; and what no wakeup tells of, a sweep finds
/// ([`Options::sweep`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wakeup {
    /// After every record: the least delay at a low rate, the slowest at a high one.
    EveryRecord,
    /// After every so many records; not 0.
    Every(u32),
    /// Once so many bytes are in the ring; not 0, and less than the ring.
    Watermark(u32),
    /// Never: whoever consumes, polls.
    PollOnly,
}

/// How a pipe is opened. Every option has a default that works.
///
/// ```
/// use probe_user::{Options, Wakeup};
///
/// let options = Options::new().bytes_per_cpu(1 << 20).wakeup(Wakeup::EveryRecord);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    bytes_per_cpu: usize,
    wakeup: Option<Wakeup>,
    cpus: Option<Vec<u32>>,
    sweep: Duration,
    budget: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// 256 KiB for each CPU that is online; a wakeup at a quarter of that; a sweep every 10 ms.
    pub fn new() -> Self {
        Self {
            bytes_per_cpu: 256 << 10,
            wakeup: None,
            cpus: None,
            sweep: Duration::from_millis(10),
            budget: 128 << 10,
        }
    }

    /// Bytes of ring for each CPU: a power of two, a page at least. They count against
    /// `kernel.perf_event_mlock_kb` and `RLIMIT_MEMLOCK`.
    #[must_use]
    pub fn bytes_per_cpu(mut self, bytes: usize) -> Self {
        self.bytes_per_cpu = bytes;
        self
    }

    /// When the kernel wakes the consumer. The default is a watermark of a quarter of the ring.
    #[must_use]
    pub fn wakeup(mut self, wakeup: Wakeup) -> Self {
        self.wakeup = Some(wakeup);
        self
    }

    /// The CPUs whose records are wanted, by id. The default is all that are online.
    #[must_use]
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = u32>) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        self.cpus = Some(cpus);
        self
    }

    /// The longest that a record waits for a wakeup which does not come, since too little is in the
    /// ring. Wakes the consumer that often, unless every record does so anyway. With
    /// [`Wakeup::PollOnly`] it is how long [`EvPipe::poll`](crate::EvPipe::poll) waits that has no
    /// timeout.
    #[must_use]
    pub fn sweep(mut self, interval: Duration) -> Self {
        self.sweep = interval;
        self
    }

    /// How many bytes of one CPU's ring are consumed before it is the next CPU's turn.
    #[must_use]
    pub fn budget(mut self, bytes: usize) -> Self {
        self.budget = bytes.max(1);
        self
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes_per_cpu
    }

    pub(crate) fn wanted_cpus(&self) -> Option<&[u32]> {
        self.cpus.as_deref()
    }

    pub(crate) fn sweep_interval(&self) -> Duration {
        self.sweep
    }

    pub(crate) fn budget_bytes(&self) -> usize {
        self.budget
    }

    /// Whether records can wait in the ring without a wakeup, so that a timer has to tell of them.
    pub(crate) fn needs_sweeps(&self) -> bool {
        !matches!(self.wakeup, Some(Wakeup::EveryRecord | Wakeup::Every(1) | Wakeup::PollOnly))
    }

    pub(crate) fn is_poll_only(&self) -> bool {
        self.wakeup == Some(Wakeup::PollOnly)
    }

    pub(crate) fn wake_at(&self) -> WakeAt {
        match self.wakeup {
            None => WakeAt::Bytes(u32::try_from(self.bytes_per_cpu / 4).unwrap_or(u32::MAX)),
            Some(Wakeup::EveryRecord) => WakeAt::Events(1),
            Some(Wakeup::Every(n)) => WakeAt::Events(n),
            Some(Wakeup::Watermark(bytes)) => WakeAt::Bytes(bytes),
            // The kernel caps it at the ring's size: the ring is full before the first wakeup.
            Some(Wakeup::PollOnly) => WakeAt::Bytes(u32::MAX),
        }
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let page = page_size();
        let bytes = self.bytes_per_cpu;
        // Half the address space would be the kernel's limit; 2 GiB is a typing error already.
        const MOST: usize = 1 << 30;
        if !bytes.is_power_of_two() || bytes < page || bytes > MOST {
            let above = bytes.clamp(page, MOST).next_power_of_two();
            let below = if bytes.clamp(page, MOST) == above { above } else { above / 2 };
            return Err(OpenError::Bytes { bytes, page, below, above });
        }
        match self.wakeup {
            Some(Wakeup::Every(0) | Wakeup::Watermark(0)) => {
                Err(OpenError::Wakeup { what: "a wakeup after 0 is not a wakeup: use PollOnly" })
            }
            Some(Wakeup::Watermark(mark)) if mark as usize >= bytes => Err(OpenError::Wakeup {
                what: "the watermark has to be less than the bytes per CPU",
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_ring_has_are_refused_with_the_nearest_that_one_has() {
        let page = page_size();
        for bytes in [page, page * 2, 1 << 30] {
            assert!(Options::new().bytes_per_cpu(bytes).check().is_ok(), "{bytes}");
        }
        let nearest = |bytes| match Options::new().bytes_per_cpu(bytes).check() {
            Err(OpenError::Bytes { below, above, .. }) => (below, above),
            other => panic!("{bytes}: {other:?}"),
        };
        assert_eq!(nearest(0), (page, page));
        assert_eq!(nearest(page * 3), (page * 2, page * 4));
        assert_eq!(nearest(usize::MAX), (1 << 30, 1 << 30));
    }

    #[test]
    fn wakeups_that_never_come_are_refused() {
        for wakeup in [Wakeup::Every(0), Wakeup::Watermark(0), Wakeup::Watermark(256 << 10)] {
            assert!(Options::new().wakeup(wakeup).check().is_err(), "{wakeup:?}");
        }
    }
}
