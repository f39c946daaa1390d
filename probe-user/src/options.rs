//! How a pipe is opened.

use crate::error::OpenError;
use crate::evqueue::Writing;
use crate::sys::memory::page_size;
use crate::sys::perf_event::WakeAt;
use crate::sys::realtime;
use std::time::Duration;

/// When the kernel wakes the consumer.
///
/// A wakeup is an interrupt on the producing CPU, which costs many times what the record itself
/// does. So the fewer, the faster; and what no wakeup tells of, a sweep finds
/// ([`Options::sweep`]). With all but [`Adaptive`](Self::Adaptive), each record is an output of its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wakeup {
    /// As few as the latency allows: none while records keep coming, none while none come, one for
    /// the first record after a pause. Records are packed, many to an output.
    ///
    /// It needs kernel 5.10, and programs whose object the pipe knows whole
    /// ([`EvPipe::from_object`](crate::EvPipe::from_object)). Otherwise the pipe falls back to a
    /// watermark of a quarter of the ring (half with [`Options::realtime`]) and a sweep every half `max_latency`, and
    /// [`EvPipe::fallback`](crate::EvPipe::fallback) says why.
    Adaptive {
        /// The longest from a record's emission to its handler, scheduling apart; a millisecond at
        /// least.
        max_latency: Duration,
    },
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
    wakeup: Wakeup,
    cpus: Option<Vec<u32>>,
    sweep: Duration,
    budget: usize,
    overwrites: bool,
    realtime: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// 256 KiB for each CPU that is online; adaptive wakeups, with a latency of at most 10 ms.
    pub fn new() -> Self {
        Self {
            bytes_per_cpu: 256 << 10,
            wakeup: Wakeup::Adaptive { max_latency: Duration::from_millis(10) },
            cpus: None,
            sweep: Duration::from_millis(10),
            budget: 128 << 10,
            overwrites: false,
            realtime: None,
        }
    }

    /// Bytes of ring for each CPU: a power of two, a page at least. They count against
    /// `kernel.perf_event_mlock_kb` and `RLIMIT_MEMLOCK`.
    #[must_use]
    pub fn bytes_per_cpu(mut self, bytes: usize) -> Self {
        self.bytes_per_cpu = bytes;
        self
    }

    /// When the kernel wakes the consumer. The default is adaptive, with at most 10 ms of latency.
    #[must_use]
    pub fn wakeup(mut self, wakeup: Wakeup) -> Self {
        self.wakeup = wakeup;
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

    /// A flight recorder: each ring keeps what its CPU emitted last, and nothing is given until a
    /// [dump](crate::EvPipe::dump), for which a [`Trigger`](crate::Trigger) may ask.
    ///
    /// Of the wakeups, only [`Wakeup::Adaptive`] makes a difference, which the default is: with it, records
    /// are packed. None wakes, and none sweeps: nobody runs until there is a dump.
    #[must_use]
    pub fn overwrite(mut self) -> Self {
        self.overwrites = true;
        self
    }

    /// The threads of a [`PerCpuPipe`](crate::PerCpuPipe) have this real-time priority, from 1 to 99 (`SCHED_FIFO` of
    /// `sched(7)`; `perf record --realtime` does so). It takes root, `CAP_SYS_NICE` or `RLIMIT_RTPRIO`.
    ///
    /// While a consumer has something to do, no task without such a priority runs on its CPU, so those that emit wait
    /// for it: a small ring is enough, which stays in the processor's cache. What can still be lost is what interrupts
    /// emit, tasks of a higher priority, and a task that fills half of the ring before the kernel lets another one run, or
    /// while code of the consumer is read from its file, which is waited for the first time that it runs (`mlockall(2)`).
    /// A consumer that never ends takes its CPU, up to what `kernel.sched_rt_runtime_us` leaves for others.
    #[must_use]
    pub fn realtime(mut self, priority: u32) -> Self {
        self.realtime = Some(priority);
        self
    }

    pub(crate) fn realtime_priority(&self) -> Option<u32> {
        self.realtime
    }

    pub(crate) fn overwrites(&self) -> bool {
        self.overwrites
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes_per_cpu
    }

    pub(crate) fn wanted_cpus(&self) -> Option<&[u32]> {
        self.cpus.as_deref()
    }

    pub(crate) fn budget_bytes(&self) -> usize {
        self.budget
    }

    pub(crate) fn policy(&self) -> Wakeup {
        self.wakeup
    }

    /// How often to sweep for records that lie in the ring without a wakeup; `None` where every
    /// record has one, or nobody wants any.
    pub(crate) fn sweep_interval(&self) -> Option<Duration> {
        match self.wakeup {
            _ if self.overwrites => None,
            Wakeup::EveryRecord | Wakeup::Every(1) | Wakeup::PollOnly => None,
            Wakeup::Every(_) | Wakeup::Watermark(_) => Some(self.sweep),
            Wakeup::Adaptive { max_latency } => Some(max_latency / 2),
        }
    }

    /// How long to wait where nothing ever wakes.
    pub(crate) fn poll_interval(&self) -> Option<Duration> {
        (self.wakeup == Wakeup::PollOnly && !self.overwrites).then_some(self.sweep)
    }

    pub(crate) fn writing(&self) -> Writing {
        if self.overwrites { Writing::Backward } else { Writing::Forward(self.wake_at()) }
    }

    fn wake_at(&self) -> WakeAt {
        match self.wakeup {
            Wakeup::Adaptive { .. } => WakeAt::Bytes(self.watermark()),
            Wakeup::EveryRecord => WakeAt::Events(1),
            Wakeup::Every(n) => WakeAt::Events(n),
            Wakeup::Watermark(bytes) => WakeAt::Bytes(bytes),
            // The kernel caps it at the ring's size: the ring is full before the first wakeup.
            Wakeup::PollOnly => WakeAt::Bytes(u32::MAX),
        }
    }

    /// How much is in a ring when its consumer is woken that does not sleep. One that has to wait for its turn has three
    /// quarters left meanwhile.
    pub(crate) fn watermark(&self) -> u32 {
        let parts = if self.realtime.is_some() { 2 } else { 4 };
        u32::try_from(self.bytes_per_cpu / parts).unwrap_or(u32::MAX)
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if let Some(priority) = self.realtime
            && !realtime::PRIORITIES.contains(&priority)
        {
            let why = format!("{priority} is none, they go from 1 to 99 (sched(7))");
            return Err(OpenError::Realtime { why });
        }
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
            Wakeup::Every(0) | Wakeup::Watermark(0) => {
                Err(OpenError::Wakeup { what: "a wakeup after 0 is not a wakeup: use PollOnly" })
            }
            Wakeup::Adaptive { max_latency } if max_latency < Duration::from_millis(1) => {
                Err(OpenError::Wakeup { what: "a max_latency below 1 ms is polling: use PollOnly" })
            }
            Wakeup::Watermark(mark) if mark as usize >= bytes && !self.overwrites => {
                Err(OpenError::Wakeup {
                    what: "the watermark has to be less than the bytes per CPU",
                })
            }
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
    fn priorities_that_there_are_not_are_refused() {
        for (priority, is_one) in [(0, false), (1, true), (99, true), (100, false)] {
            assert_eq!(Options::new().realtime(priority).check().is_ok(), is_one, "{priority}");
        }
    }

    #[test]
    fn wakeups_that_never_come_are_refused() {
        let max_latency = Duration::from_micros(999);
        for wakeup in [
            Wakeup::Adaptive { max_latency },
            Wakeup::Every(0),
            Wakeup::Watermark(0),
            Wakeup::Watermark(256 << 10),
        ] {
            assert!(Options::new().wakeup(wakeup).check().is_err(), "{wakeup:?}");
        }
    }
}
