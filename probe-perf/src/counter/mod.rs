//! Counting events.
//!
//! The crate `perf-event2` does not replace this module. It opens its own descriptors from its own event types, which
//! would duplicate events, targets and error messages.

mod control_page;
mod group;

pub use control_page::{ControlPage, PageCapabilities, Snapshot};
pub use group::{Group, GroupReading, MemberReading};

use crate::error::PerfError;
use crate::event::{Event, Source};
use crate::target::{OpenSites, Site, Target};
use probe_sys::bpf;
use probe_sys::clock;
use probe_sys::perf_event::{Flags, PerfEvent, ReadFormat};
use std::io;
use std::ops::AddAssign;
use std::os::fd::{AsFd, BorrowedFd};
use std::slice;
use std::time::Duration;

/// A counted event. It opens one event of the kernel for each thread or CPU of its [`Target`].
///
/// The methods fail if a call does: [`PerfError::Call`] names the call, the event, and the thread or CPU.
///
/// ```no_run
/// use probe_perf::{Counter, Software, Target};
///
/// let faults = Counter::open(&Software::PageFaults.into(), &Target::ThisProcess)?;
/// faults.enable()?;
/// let page = vec![1u8; 1 << 20];
/// faults.disable()?;
/// println!("{} page faults, for {} bytes", faults.read()?.value, page.len());
/// # Ok::<(), probe_perf::PerfError>(())
/// ```
#[derive(Debug)]
pub struct Counter {
    sites: OpenSites<PerfEvent>,
    page: Option<ControlPage>,
    /// Whether all sites have a program in common.
    is_tracepoint: bool,
}

/// How a counter was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadBy {
    /// From the control page and the CPU, without a system call.
    ControlPage,
    /// By a system call.
    SystemCall,
}

/// The clock of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clock {
    /// Perf's own clock, which starts at about boot and is not adjusted.
    Perf,
    /// `CLOCK_MONOTONIC`.
    Monotonic,
}

impl Counter {
    /// Returns a builder, for counters that need more than the defaults.
    pub fn builder() -> CounterBuilder {
        CounterBuilder::default()
    }

    /// Opens a counter, disabled.
    ///
    /// # Errors
    ///
    /// As [`CounterBuilder::open`].
    pub fn open(event: &Event, target: &Target) -> Result<Self, PerfError> {
        Self::builder().open(event, target)
    }

    /// Starts counting.
    pub fn enable(&self) -> Result<(), PerfError> {
        self.control("enable", PerfEvent::enable)
    }

    /// Stops counting: events that happen after this returns are not counted. An event that is happening in another thread
    /// at this moment may still be counted.
    pub fn disable(&self) -> Result<(), PerfError> {
        self.control("disable", PerfEvent::disable)
    }

    /// Resets the count to 0, but not the times, nor the counts of ended processes that inherited the counter.
    pub fn reset(&self) -> Result<(), PerfError> {
        self.control("reset", PerfEvent::reset)
    }

    /// Counts for this many more periods at each site, then stops. On some kernels, such as 6.18, a tracepoint that stopped
    /// this way does not count again; open a new counter there.
    ///
    /// # Errors
    ///
    /// EINVAL without a [period](CounterBuilder::period), for inherited counters, and for 0 periods.
    pub fn refresh(&self, periods: u32) -> Result<(), PerfError> {
        let periods = i32::try_from(periods).unwrap_or(i32::MAX);
        // The kernel takes 0 for no limit.
        self.control("refresh", |event| match periods {
            0 => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            _ => event.refresh(periods),
        })
    }

    /// Attaches an eBPF program for as long as the counter is open. For a tracepoint, the program is of that type. It runs
    /// with each hit, whatever the thread and the CPU, and if it returns 0, no perf event of the machine sees the hit. For
    /// other events, it is of type perf_event and runs after each [period](CounterBuilder::period).
    ///
    /// # Errors
    ///
    /// EINVAL for a program of another type, EEXIST if the counter already has one.
    pub fn attach_program(&self, program: BorrowedFd<'_>) -> Result<(), PerfError> {
        let attach = |_: &Site, event: &PerfEvent| event.set_bpf(program);
        // A tracepoint itself has the programs of all its events, each once.
        let sites = if self.is_tracepoint { 1 } else { usize::MAX };
        self.sites.call("attach a program to", attach).take(sites).collect()
    }

    /// Stores the counter of each CPU in a map (`BPF_MAP_TYPE_PERF_EVENT_ARRAY`) under the CPU's number. eBPF programs read
    /// it on that CPU (`bpf_perf_event_read_value` in bpf-helpers(7)). The map keeps the event open until the last copy of
    /// this descriptor of the map is closed, even if the counter is dropped earlier.
    ///
    /// # Errors
    ///
    /// EINVAL for a map of another type, or if the counter counts threads; E2BIG if the map has no entry for a CPU.
    pub fn put_into(&self, map: BorrowedFd<'_>) -> Result<(), PerfError> {
        let put = |site: &Site, event: &PerfEvent| {
            let is_array = bpf::map_info(map)?
                .is_some_and(|info| info.map_type == bpf::MAP_TYPE_PERF_EVENT_ARRAY);
            match site.cpu.filter(|_| is_array) {
                Some(cpu) => bpf::map_set_fd(map, cpu, event.as_fd()),
                None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            }
        };
        self.sites.call("put into a map", put).collect()
    }

    /// The sums of the counts and the times of all threads or CPUs.
    pub fn read(&self) -> Result<Reading, PerfError> {
        let mut sum = Reading::default();
        for reading in self.sites.call("read", |_, event| Reading::of(event)) {
            sum += reading?;
        }
        Ok(sum)
    }

    /// As [`read`](Self::read), but from the control page and without a system call if the page allows it. Also returns how
    /// the counter was read.
    ///
    /// The page allows this for hardware events while they count, in the thread that is the [target](Target::Thread) and
    /// opened the counter.
    pub fn read_here(&self) -> Result<(Reading, ReadBy), PerfError> {
        match self.page.as_ref().and_then(ControlPage::read) {
            Some(reading) => Ok((reading, ReadBy::ControlPage)),
            None => Ok((self.read()?, ReadBy::SystemCall)),
        }
    }

    /// The current time in nanoseconds, without a system call: of perf's clock if the control page has it, otherwise of
    /// `CLOCK_MONOTONIC`. The two differ: perf's clock is not adjusted.
    pub fn time(&self) -> (u64, Clock) {
        match self.page.as_ref().and_then(ControlPage::time) {
            Some(time) => (time, Clock::Perf),
            None => (clock::monotonic(), Clock::Monotonic),
        }
    }

    /// The control page, if there is one: the target must be one thread or one CPU, without children.
    pub fn control_page(&self) -> Option<&ControlPage> {
        self.page.as_ref()
    }

    /// The count of each thread or CPU.
    pub fn each(&self) -> Result<Vec<SiteReading>, PerfError> {
        let read = |site: &Site, event: &PerfEvent| {
            let reading = Reading::of(event)?;
            Ok(SiteReading { thread: site.thread, cpu: site.cpu, reading })
        };
        self.sites.call("read", read).collect()
    }

    /// The kernel's id of the event for each thread or CPU, as in records and groups.
    pub fn ids(&self) -> Result<Vec<u64>, PerfError> {
        self.sites.call("ask for the id of", |_, event| event.id()).collect()
    }

    fn control(
        &self,
        what: &'static str,
        control: impl Fn(&PerfEvent) -> io::Result<()>,
    ) -> Result<(), PerfError> {
        self.sites.call(what, |_, event| control(event)).collect()
    }
}

/// Builds a [`Counter`].
///
/// ```no_run
/// use probe_perf::{Counter, Software, Target};
///
/// let target = Target::ProcessAndChildren(1234);
/// let faults = Counter::builder().enabled_by_exec().open(&Software::PageFaults.into(), &target)?;
/// # Ok::<(), probe_perf::PerfError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterBuilder {
    period: u64,
    enabled_by_exec: bool,
}

impl CounterBuilder {
    /// Sets the period, in events: [`Counter::refresh`] counts periods, and a program runs once per period. Without this, the
    /// period is that of the event's terms, if they have one.
    ///
    /// With a period, the kernel throttles a hardware event: if it has too many periods in one tick of the timer
    /// (`kernel.perf_event_max_sample_rate`), it stops until the next tick and the count is too low. Use a long period, or
    /// none if you only count.
    #[must_use]
    pub fn period(self, events: u64) -> Self {
        Self { period: events, ..self }
    }

    /// Enables the counter when the process executes a program.
    #[must_use]
    pub fn enabled_by_exec(self) -> Self {
        Self { enabled_by_exec: true, ..self }
    }

    /// Opens the counter, disabled.
    ///
    /// # Errors
    ///
    /// If the event or the target does not exist, or you lack the privileges.
    pub fn open(self, event: &Event, target: &Target) -> Result<Counter, PerfError> {
        let mut attr = event.counting_attr(self.period)?;
        attr.read_format = (ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING).bits();
        attr.flags |= Flags::DISABLED.bits();
        if self.enabled_by_exec {
            attr.flags |= Flags::ENABLE_ON_EXEC.bits();
        }
        let name = event.described();
        let open = |site: &Site| site.open(&attr, &event.described());
        let sites = OpenSites::open(name, target, slice::from_ref(event), open)?;
        let page = page_of(&sites.each);
        let is_tracepoint = matches!(event.source(), Source::Tracepoint(..));
        Ok(Counter { sites, page, is_tracepoint })
    }
}

/// The page of a single event that is not inherited. Failing to map it is not an error: system calls return everything
/// that it contains.
fn page_of(sites: &[(Site, PerfEvent)]) -> Option<ControlPage> {
    let [(site, event)] = sites else { return None };
    let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let is_own = site.thread == Some(own) && site.cpu.is_none();
    (!site.inherits).then(|| ControlPage::map(event.as_fd(), is_own).ok()).flatten()
}

/// A count, and how long it was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// How often the event happened while it was counted.
    pub value: u64,
    /// How long the counter was enabled; for a thread, only while it ran.
    pub enabled: Duration,
    /// How much of that time it counted: less than all of it if events outnumber the CPU's counters.
    pub running: Duration,
    /// The count for the whole time, of each thread or CPU by itself.
    estimate: Option<u64>,
}

/// Nothing was counted, in no time.
impl Default for Reading {
    fn default() -> Self {
        Self::new(0, 0, 0)
    }
}

impl Reading {
    fn new(value: u64, enabled: u64, running: u64) -> Self {
        let (enabled, running) = (Duration::from_nanos(enabled), Duration::from_nanos(running));
        let estimate = scaled(value, enabled, running);
        Self { value, enabled, running, estimate }
    }

    fn of(event: &PerfEvent) -> io::Result<Self> {
        let mut words = [0; 3];
        if event.read_words(&mut words)? < words.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let [value, enabled, running] = words;
        Ok(Self::new(value, enabled, running))
    }

    /// Estimates the count for the whole time that the counter was enabled. `None` if it was enabled but never counted, on any
    /// of the threads or CPUs that are added up: each has a share of the time of its own.
    pub fn scaled(&self) -> Option<u64> {
        self.estimate
    }
}

/// Estimates a count for the whole enabled time.
fn scaled(value: u64, enabled: Duration, running: Duration) -> Option<u64> {
    if enabled == running {
        return Some(value);
    }
    let scaled = u128::from(value) * enabled.as_nanos();
    let scaled = scaled.checked_div(running.as_nanos())?;
    Some(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// The count of one thread or CPU of a [`Target`](crate::Target).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SiteReading {
    /// The thread, if one is counted.
    pub thread: Option<u32>,
    /// The CPU, if one is counted.
    pub cpu: Option<u32>,
    /// The count.
    pub reading: Reading,
}

/// Adds the readings of several threads or CPUs. Times add up, too: in one second, two CPUs count for two.
impl AddAssign for Reading {
    fn add_assign(&mut self, other: Self) {
        self.value = self.value.wrapping_add(other.value);
        self.enabled += other.enabled;
        self.running += other.running;
        self.estimate =
            self.estimate.zip(other.estimate).map(|(sum, other)| sum.saturating_add(other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_to_the_enabled_time() {
        let scaled = |value, enabled, running| Reading::new(value, enabled, running).scaled();
        assert_eq!(scaled(10, 100, 50), Some(20));
        assert_eq!(scaled(10, 100, 100), Some(10));
        assert_eq!(scaled(7, 3, 2), Some(10), "whole events");
        assert_eq!(scaled(0, 0, 0), Some(0), "not enabled yet");
        assert_eq!(scaled(0, 100, 0), None, "never counted");
        assert_eq!(scaled(u64::MAX / 2, u64::MAX, 1 << 60), Some(u64::MAX), "no overflow");
    }

    #[test]
    fn each_cpu_is_scaled_by_its_own_share() {
        let sum = |readings: &[(u64, u64, u64)]| {
            let readings = readings
                .iter()
                .map(|&(value, enabled, running)| Reading::new(value, enabled, running));
            let mut sum = Reading::default();
            readings.for_each(|reading| sum += reading);
            sum.scaled()
        };
        assert_eq!(sum(&[]), Some(0));
        // An idle CPU counts all the time.
        assert_eq!(sum(&[(0, 100, 100), (1000, 100, 50)]), Some(2000));
        assert_eq!(sum(&[(1000, 100, 100), (0, 100, 0)]), None, "one was never counted");
        assert_eq!(sum(&[(1000, 100, 100), (0, 0, 0)]), Some(1000), "one was not enabled");
    }

    #[test]
    fn readings_add_up() {
        let mut sum = Reading::default();
        sum += Reading::new(1, 10, 5);
        sum += Reading::new(2, 20, 20);
        let times = (sum.enabled.as_nanos(), sum.running.as_nanos());
        assert_eq!((sum.value, times), (3, (30, 25)));
    }
}
