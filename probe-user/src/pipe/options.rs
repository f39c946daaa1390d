//! The options of a pipe.

use crate::error::OpenError;
use crate::queue::contents::Contents;
use crate::queue::event_ring::Writing;
use probe_sys::cpus;
use probe_sys::memory::page_size;
use probe_sys::perf_event::WakeAt;
use probe_sys::realtime;
use probe_sys::ring::page::rounded_up;
use std::io;
use std::time::Duration;

/// The largest ring, in bytes. The kernel's limit is half the address space, but more than 1 GiB is surely a mistake.
const MOST: usize = 1 << 30;

/// The default size of a ring, in bytes, and the limit for all rings together.
const DEFAULT: usize = 256 << 10;
const DEFAULT_TOTAL: usize = 64 << 20;

/// When the kernel wakes the consumer.
///
/// A wakeup is an interrupt on the producing CPU, and costs many times what the record itself does: fewer wakeups
/// mean more throughput. A sweep finds the records that have no wakeup ([`Options::sweep`]). With every policy but
/// [`Adaptive`](Self::Adaptive), each record is an output of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wakeup {
    /// By the rate of each CPU. A CPU that emits little wakes the consumer with every record, so that no record waits.
    /// Where wakeups get too frequent (above some 12,000 a second, from all CPUs together), a CPU causes none: the
    /// consumer sweeps its ring on a timer, and many records are packed into one output. A quiet CPU costs nothing.
    ///
    /// This needs kernel 5.10, and a pipe that knows all maps and the flush program of the object
    /// ([`EvPipe::from_object`](crate::EvPipe::from_object)). Otherwise the pipe falls back to a watermark of a
    /// quarter of the ring (half with [`Options::realtime`]) and a sweep every half `max_latency`, and
    /// [`EvPipe::fallback`](crate::EvPipe::fallback) returns the reason.
    Adaptive {
        /// The longest time from the emission of a record to its handler, excluding scheduling delays; at least 1 ms.
        max_latency: Duration,
    },
    /// After every record: the lowest latency at a low rate, the lowest throughput at a high one.
    EveryRecord,
    /// After every this many records; not 0.
    Every(u32),
    /// Once this many bytes are in the ring; not 0, and less than the size of the ring.
    Watermark(u32),
    /// Never: the consumer polls.
    PollOnly,
}

/// The options of a pipe. Every option has a default that works.
///
/// ```
/// use probe_user::{Options, Wakeup};
///
/// let options = Options::new().bytes_per_cpu(1 << 20).wakeup(Wakeup::EveryRecord);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    bytes_per_cpu: Option<usize>,
    total_bytes: Option<usize>,
    wakeup: Wakeup,
    cpus: Option<Vec<u32>>,
    sweep: Duration,
    budget: usize,
    overwrites: bool,
    takes_over: bool,
    contents: Contents,
    realtime: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// 256 KiB for each online CPU, less on machines with more than 256 CPUs, and adaptive wakeups with a latency of at
    /// most 10 ms.
    pub fn new() -> Self {
        Self {
            bytes_per_cpu: None,
            total_bytes: None,
            wakeup: Wakeup::Adaptive { max_latency: Duration::from_millis(10) },
            cpus: None,
            sweep: Duration::from_millis(10),
            budget: 128 << 10,
            overwrites: false,
            takes_over: false,
            contents: Contents::Blocks,
            realtime: None,
        }
    }

    /// Sets the ring size of each CPU, in bytes: 1 to 1 GiB, rounded up to a power of two of at least a page.
    /// The rings count against `kernel.perf_event_mlock_kb` and `RLIMIT_MEMLOCK`. All rings together may then have more
    /// than the default limit; [`total_bytes`](Self::total_bytes) sets another one.
    ///
    /// A record for which even an empty ring has no room is always lost. 16 KiB have room for every record of
    /// `probe_ebpf`. With smaller rings, waiting fails if the type of a handler is too long
    /// ([`Consumer::longest`](crate::Consumer::longest)).
    #[must_use]
    pub fn bytes_per_cpu(mut self, bytes: usize) -> Self {
        // Opening refuses 0, and what is above the limit.
        self.bytes_per_cpu = rounded_up(bytes).filter(|size| *size <= MOST).or(Some(bytes));
        self
    }

    /// Limits the size of all rings together, in bytes. Where the rings of all CPUs that may go online (or of the
    /// [requested](Self::cpus) ones) would take more, each gets the largest power of two that its share allows. The default
    /// is 64 MiB.
    #[must_use]
    pub fn total_bytes(mut self, bytes: usize) -> Self {
        self.total_bytes = Some(bytes);
        self
    }

    /// Sets when the kernel wakes the consumer. The default is adaptive, with at most 10 ms of latency.
    #[must_use]
    pub fn wakeup(mut self, wakeup: Wakeup) -> Self {
        self.wakeup = wakeup;
        self
    }

    /// Selects the CPUs to receive records from, by id. The default is all online CPUs.
    #[must_use]
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = u32>) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        self.cpus = Some(cpus);
        self
    }

    /// Takes the CPUs from consumers that have them. Without this, opening a pipe over the CPUs of another one that still
    /// lives fails ([`OpenError::InUse`]).
    ///
    /// Nothing is delivered twice: what was sent before is in the rings of the earlier consumer, and what is sent
    /// afterwards in those of this pipe. The exception is the open block of a CPU that is offline during the change,
    /// which both deliver. Nothing is lost if the earlier pipe can notice the change, which requires adaptive wakeups
    /// or the control page. It reports the change ([`CpuChange::TakenOver`](crate::CpuChange::TakenOver)), delivers what
    /// its rings hold, and leaves the CPUs alone.
    ///
    /// A [raw](Self::raw) pipe has no control page, and neither has one over a map alone without `CAP_SYS_ADMIN`. There, the
    /// earlier pipe does not notice, and takes the events of this one out of the map when it is closed. End it first, or
    /// kill it.
    #[must_use]
    pub fn take_over(mut self) -> Self {
        self.takes_over = true;
        self
    }

    /// Unsets [`take_over`](Self::take_over).
    pub(crate) fn take_nothing_over(mut self) -> Self {
        self.takes_over = false;
        self
    }

    /// Sets how long a record may wait in the ring when the ring holds too little for a wakeup. The consumer wakes at
    /// this interval, unless every record wakes it anyway. With [`Wakeup::PollOnly`], this is how long an
    /// [`EvPipe::poll`](crate::EvPipe::poll) without a timeout waits, and how often a runtime looks. Not 0.
    #[must_use]
    pub fn sweep(mut self, interval: Duration) -> Self {
        self.sweep = interval;
        self
    }

    /// Sets how many bytes of one CPU's ring a drain consumes before it goes on with the next CPU.
    #[must_use]
    pub fn budget(mut self, bytes: usize) -> Self {
        // No ring holds more than the largest.
        self.budget = bytes.clamp(1, MOST);
        self
    }

    /// Makes the pipe a flight recorder: each ring keeps the newest records of its CPU, and the consumer receives
    /// nothing until a [dump](crate::EvPipe::dump), which a [`Trigger`](crate::flight::Trigger) may request.
    ///
    /// The only wakeup policy that makes a difference is the default, [`Wakeup::Adaptive`]: with it, records are
    /// packed. There are no wakeups and no sweeps: the consumer does not run until there is a dump. A CPU that comes online
    /// again has a new ring, and the next dump has what is in its two last ones, too.
    #[must_use]
    pub fn overwrite(mut self) -> Self {
        self.overwrites = true;
        self
    }

    /// Makes the pipe raw: it receives the outputs of programs that do not use `probe_ebpf`, whatever they pass to
    /// `bpf_perf_event_output`. Each output is one record of the kind [`RAW`](crate::RAW), without a time (0). It goes
    /// to the handler of [`on_unknown`](crate::EvHandlers::on_unknown), to [`Consumer::record`](crate::Consumer::record),
    /// or to a stream. A wait fails if there are handlers of record types, which would receive nothing.
    ///
    /// The payload is what the kernel has stored. The bytes of the packet that `BPF_F_CTXLEN` asks for follow the
    /// program's own without a gap. At the end are up to 7 stale bytes, because the kernel rounds the length up: `len`
    /// bytes arrive as `(len + 4).next_multiple_of(8) - 4`. Only the program's own format says where its data ends. The
    /// payload is 4-aligned.
    ///
    /// Such programs count nothing, so there is no [`ledger`](crate::EvPipe::ledger). The kernel's count of outputs that
    /// found a full ring is in [`QueueCounts::lost`](crate::QueueCounts::lost). Adaptive wakeups fall back to a
    /// watermark and a timer.
    ///
    /// ```no_run
    /// use probe_user::{EvHandlers, EvPipe, Options, Stop};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut pipe = EvPipe::from_pinned("/sys/fs/bpf/events", &Options::new().raw())?;
    /// let mut handlers = EvHandlers::new();
    /// handlers.on_unknown(|cpu, record| println!("{cpu}: {:?}", record.payload));
    /// pipe.run(&Stop::new()?, &mut handlers)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.contents = Contents::Raw;
        self
    }

    /// Gives the threads of a [`PerCpuPipe`](crate::PerCpuPipe) this real-time priority, from 1 to 99 (`SCHED_FIFO`
    /// in `sched(7)`), as `perf record --realtime` does. This needs root, `CAP_SYS_NICE` or `RLIMIT_RTPRIO`.
    ///
    /// While a consumer has records to consume, no task without such a priority runs on its CPU. So tasks that emit
    /// wait for the consumer, and a small ring that stays in the processor's cache is enough. Some records can still
    /// be lost:
    ///
    /// - those that interrupts or tasks of a higher priority emit;
    /// - those of a task that fills half of the ring before the kernel lets another task run;
    /// - those emitted while the consumer waits for memory: for its code to be read from a file, when the code runs
    ///   for the first time, or for the kernel to build a huge page (khugepaged). `mlockall(2)` prevents the former,
    ///   `PR_SET_THP_DISABLE` (`prctl(2)`) the latter.
    ///
    /// A consumer that never runs out of records occupies its CPU, except for what `kernel.sched_rt_runtime_us`
    /// leaves to others.
    #[must_use]
    pub fn realtime(mut self, priority: u32) -> Self {
        self.realtime = Some(priority);
        self
    }

    pub(crate) fn realtime_priority(&self) -> Option<u32> {
        self.realtime
    }

    pub(crate) fn takes_over(&self) -> bool {
        self.takes_over
    }

    pub(crate) fn contents(&self) -> Contents {
        self.contents
    }

    pub(crate) fn overwrites(&self) -> bool {
        self.overwrites
    }

    /// The requested ring size of each CPU, in bytes. The limit for all rings may allow less.
    pub fn bytes(&self) -> usize {
        self.bytes_per_cpu.unwrap_or(DEFAULT)
    }

    /// The options with the ring size that the limit for all rings allows on this machine.
    pub(crate) fn within_limit(&self) -> Result<Self, OpenError> {
        if self.limit().is_none() {
            return Ok(self.clone());
        }
        let len = |cpus: io::Result<Vec<u32>>| cpus.map_or(0, |cpus| cpus.len());
        let cpus = match &self.cpus {
            Some(cpus) => cpus.len(),
            // In a container, the list of possible CPUs may be too short.
            None => len(cpus::possible()).max(len(cpus::online())),
        };
        self.of_cpus(cpus)
    }

    /// The limit for all rings. There is no default one for rings of a requested size.
    fn limit(&self) -> Option<usize> {
        self.total_bytes.or(self.bytes_per_cpu.is_none().then_some(DEFAULT_TOTAL))
    }

    fn of_cpus(&self, cpus: usize) -> Result<Self, OpenError> {
        let mut this = self.clone();
        if let Some(total) = self.limit() {
            let share = (total / cpus.max(1)).checked_ilog2().map_or(0, |log| 1 << log);
            if share < page_size() {
                return Err(OpenError::RingLimit { total, cpus });
            }
            // The options of single CPUs are made of these.
            (this.bytes_per_cpu, this.total_bytes) = (Some(self.bytes().min(share)), None);
        }
        Ok(this)
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

    /// How often to sweep for records that lie in the ring without a wakeup; `None` where every record has one, or
    /// the pipe never wakes.
    pub(crate) fn sweep_interval(&self) -> Option<Duration> {
        match self.wakeup {
            _ if self.overwrites => None,
            Wakeup::EveryRecord | Wakeup::Every(1) | Wakeup::PollOnly => None,
            Wakeup::Every(_) | Wakeup::Watermark(_) => Some(self.sweep),
            Wakeup::Adaptive { max_latency } => Some(max_latency / 2),
        }
    }

    /// How long a wait without a timeout lasts where there are no wakeups.
    pub(crate) fn poll_interval(&self) -> Option<Duration> {
        (self.wakeup == Wakeup::PollOnly && !self.overwrites).then_some(self.sweep)
    }

    pub(crate) fn writing(&self) -> Writing {
        match self.overwrites {
            true => Writing::Backward,
            false => Writing::Forward(self.wake_at(), self.contents),
        }
    }

    fn wake_at(&self) -> WakeAt {
        match self.wakeup {
            Wakeup::Adaptive { .. } => WakeAt::Bytes(self.watermark()),
            Wakeup::EveryRecord => WakeAt::Events(1),
            Wakeup::Every(n) => WakeAt::Events(n),
            Wakeup::Watermark(bytes) => WakeAt::Bytes(bytes),
            // The kernel caps this at the size of the ring, so the ring is full before the first wakeup.
            Wakeup::PollOnly => WakeAt::Bytes(u32::MAX),
        }
    }

    /// How many bytes are in a ring when they wake a consumer that does not sleep. If the consumer then has to wait
    /// to be scheduled, the rest of the ring is still free.
    pub(crate) fn watermark(&self) -> u32 {
        let parts = if self.realtime.is_some() { 2 } else { 4 };
        u32::try_from(self.bytes() / parts).unwrap_or(u32::MAX)
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if let Some(priority) = self.realtime
            && !realtime::PRIORITIES.contains(&priority)
        {
            let why = format!("{priority} is out of range; use 1 to 99 (sched(7))");
            return Err(OpenError::Realtime { why });
        }
        let bytes = self.bytes();
        if !(1..=MOST).contains(&bytes) {
            return Err(OpenError::RingSize { bytes, most: MOST });
        }
        if self.contents == Contents::Raw && self.overwrites {
            let what = "a flight recorder sorts by time, which raw records do not have: leave out overwrite()";
            return Err(OpenError::Raw { what });
        }
        if self.sweep.is_zero() {
            return Err(OpenError::Wakeup { what: "the sweep interval is 0; use at least 1 ms" });
        }
        match self.wakeup {
            Wakeup::Every(0) | Wakeup::Watermark(0) => {
                Err(OpenError::Wakeup { what: "the threshold is 0; use at least 1, or PollOnly" })
            }
            Wakeup::Adaptive { max_latency } if max_latency < Duration::from_millis(1) => {
                Err(OpenError::Wakeup {
                    what: "max_latency is below 1 ms; use at least 1 ms, or PollOnly",
                })
            }
            Wakeup::Watermark(mark) if mark as usize >= bytes && !self.overwrites => {
                Err(OpenError::Wakeup { what: "the watermark must be less than the bytes per CPU" })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_sizes_round_up_and_are_limited() {
        let page = page_size();
        for (asked, bytes) in [(1, page), (page, page), (page * 3, page * 4), (MOST - 1, MOST)] {
            let options = Options::new().bytes_per_cpu(asked);
            assert_eq!((options.bytes(), options.check().is_ok()), (bytes, true), "{asked}");
        }
        for asked in [0, MOST + 1, usize::MAX] {
            let refused = Options::new().bytes_per_cpu(asked).check();
            assert!(matches!(refused, Err(OpenError::RingSize { bytes, .. }) if bytes == asked));
        }
    }

    #[test]
    fn all_rings_together_stay_within_a_limit() {
        let of_each = |options: &Options, cpus| options.of_cpus(cpus).unwrap().bytes();
        let default = Options::new();
        for (cpus, bytes) in [(1, 256 << 10), (256, 256 << 10), (257, 128 << 10), (4096, 16 << 10)]
        {
            assert_eq!(of_each(&default, cpus), bytes, "{cpus}");
        }
        // A size for each CPU is what was asked for, whatever the order of both.
        assert_eq!(of_each(&Options::new().bytes_per_cpu(8 << 20), 1000), 8 << 20);
        for limited in [
            Options::new().bytes_per_cpu(8 << 20).total_bytes(100 << 20),
            Options::new().total_bytes(100 << 20).bytes_per_cpu(8 << 20),
        ] {
            // Of the default size, too.
            let default = limited.clone().total_bytes(64 << 20);
            assert_eq!(of_each(&default, 9), 4 << 20);
            assert_eq!(
                [1, 12, 13, 1000].map(|cpus| of_each(&limited, cpus) >> 10),
                [8192, 8192, 4096, 64]
            );
        }
        for (total, cpus) in [(0, 1), (page_size() - 1, 1), (page_size() * 3, 4)] {
            let error = Options::new().total_bytes(total).of_cpus(cpus).unwrap_err();
            assert!(matches!(error, OpenError::RingLimit { total: of, .. } if of == total));
        }
    }

    #[test]
    fn a_flight_recorder_is_not_raw() {
        assert!(Options::new().raw().check().is_ok());
        let refused = Options::new().raw().overwrite().check();
        assert!(matches!(refused, Err(OpenError::Raw { .. })));
    }

    #[test]
    fn invalid_priorities_are_refused() {
        for (priority, is_valid) in [(0, false), (1, true), (99, true), (100, false)] {
            assert_eq!(Options::new().realtime(priority).check().is_ok(), is_valid, "{priority}");
        }
    }

    #[test]
    fn policies_that_never_wake_are_refused() {
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
