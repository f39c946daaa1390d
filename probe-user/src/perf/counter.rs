//! One event, counted.
//!
//! By descriptors and ioctls of this crate: `perf-event2` opens its own, from event types of its own, so that
//! what is observed, of whom, and what an errno means would be told twice, and in two ways.

use super::control_page::ControlPage;
use super::error::PerfError;
use super::event::Event;
use super::opened::{open, opened};
use super::place::Place;
use super::reading::{PlaceReading, Reading};
use super::scope::Scope;
use crate::sys::bpf;
use crate::sys::clock;
use crate::sys::perf_event::{Flags, PerfEvent, ReadFormat};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::slice;

/// An event that is counted, of whom a [`Scope`] says: an event of the kernel for each place of it.
///
/// ```no_run
/// use probe_user::perf::{Counter, Scope, Software};
///
/// let faults = Counter::open(&Software::PageFaults.into(), &Scope::ThisProcess)?;
/// faults.enable()?;
/// let page = vec![1u8; 1 << 20];
/// faults.disable()?;
/// println!("{} page faults, for {} bytes", faults.read()?.value, page.len());
/// # Ok::<(), probe_user::perf::PerfError>(())
/// ```
#[derive(Debug)]
pub struct Counter {
    name: String,
    places: Vec<(Place, PerfEvent)>,
    page: Option<ControlPage>,
}

/// How something was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadBy {
    /// Out of the control page and the CPU, without a system call.
    ControlPage,
    /// By a system call.
    SystemCall,
}

/// Whose time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clock {
    /// Perf's own, which counts from about the start of the machine, and is not adjusted.
    Perf,
    /// `CLOCK_MONOTONIC`.
    Monotonic,
}

/// How a counter is opened, where the defaults are not it.
///
/// ```no_run
/// use probe_user::perf::{Counter, CounterOptions, Scope, Software};
///
/// let scope = Scope::ProcessAndChildren(1234);
/// let options = CounterOptions::new().enabled_by_exec();
/// let faults = Counter::open_with(&Software::PageFaults.into(), &scope, &options)?;
/// # Ok::<(), probe_user::perf::PerfError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterOptions {
    period: u64,
    enabled_by_exec: bool,
}

impl CounterOptions {
    /// Those of [`Counter::open`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Has periods of so many events, which [`Counter::refresh`] and programs count by.
    #[must_use]
    pub fn period(self, events: u64) -> Self {
        Self { period: events, ..self }
    }

    /// Counts from when the process executes a program, too.
    #[must_use]
    pub fn enabled_by_exec(self) -> Self {
        Self { enabled_by_exec: true, ..self }
    }
}

impl Counter {
    /// Opens it, not counting yet.
    ///
    /// # Errors
    ///
    /// If there is no such event, nobody of whom it could be counted, or no privilege to do so.
    pub fn open(event: &Event, scope: &Scope) -> Result<Self, PerfError> {
        Self::open_with(event, scope, &CounterOptions::new())
    }

    /// The same, with options.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(
        event: &Event,
        scope: &Scope,
        options: &CounterOptions,
    ) -> Result<Self, PerfError> {
        let mut attr = event.attr()?;
        if options.period != 0 {
            attr.sample_period = options.period;
        }
        attr.read_format = (ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING).bits();
        attr.flags |= Flags::DISABLED.bits();
        if options.enabled_by_exec {
            attr.flags |= Flags::ENABLE_ON_EXEC.bits();
        }
        let name = event.described();
        let places = opened(scope, slice::from_ref(event), |place| open(&attr, place, &name))?;
        let page = page_of(&places);
        Ok(Self { name, places, page })
    }

    /// Counts from now on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn enable(&self) -> Result<(), PerfError> {
        self.tell("enable", PerfEvent::enable)
    }

    /// Counts no more: what happens after this returns is not in the count. What is happening just then in
    /// another thread may be counted a moment later.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn disable(&self) -> Result<(), PerfError> {
        self.tell("disable", PerfEvent::disable)
    }

    /// Begins at 0 again. The times go on; so do the counts of processes that inherited it and have ended.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn reset(&self) -> Result<(), PerfError> {
        self.tell("reset", PerfEvent::reset)
    }

    /// Counts for so many periods more, then no more, for each place. A tracepoint that has stopped so is
    /// not counted again on some kernels (6.18 is one): open it anew there.
    ///
    /// # Errors
    ///
    /// EINVAL without a [period](CounterOptions::period), and for what is inherited.
    pub fn refresh(&self, periods: u32) -> Result<(), PerfError> {
        let periods = i32::try_from(periods).unwrap_or(i32::MAX);
        self.tell("refresh", |event| event.refresh(periods))
    }

    /// Has an eBPF program run where the event happens: for a tracepoint, one of this type, which decides by
    /// its result whether the hit is counted at all; for others, one of the type perf_event, with a
    /// [period](CounterOptions::period), after each of them. For as long as the counter is open.
    ///
    /// # Errors
    ///
    /// EINVAL for a program of another type, EEXIST if there is one.
    pub fn attach_program(&self, program: BorrowedFd<'_>) -> Result<(), PerfError> {
        self.tell("attach a program to", |event| event.set_bpf(program))
    }

    /// Puts the counter of each CPU into a map (`BPF_MAP_TYPE_PERF_EVENT_ARRAY`), by the CPU's number, for eBPF
    /// programs to read on that CPU (`bpf_perf_event_read_value` in bpf-helpers(7)). There, it is open until the
    /// last copy of this descriptor of the map is closed, even if the counter is not any more.
    ///
    /// # Errors
    ///
    /// EINVAL if it is another map, or the counter is that of threads; E2BIG if the map has no entry for a CPU.
    pub fn put_into(&self, map: BorrowedFd<'_>) -> Result<(), PerfError> {
        const WHAT: &str = "put into a map";
        let Some((first, _)) = self.places.first() else { return Ok(()) };
        let info = bpf::map_info(map).map_err(|source| self.failed(WHAT, first, source))?;
        let is_array = info.map_type == bpf::MAP_TYPE_PERF_EVENT_ARRAY;
        for (place, event) in &self.places {
            let put = match place.cpu.filter(|_| is_array) {
                Some(cpu) => bpf::map_set_fd(map, cpu, event.as_fd()),
                None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            };
            put.map_err(|source| self.failed(WHAT, place, source))?;
        }
        Ok(())
    }

    /// The count of all places, and their times, added up.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn read(&self) -> Result<Reading, PerfError> {
        let mut sum = Reading::default();
        for (place, event) in &self.places {
            sum += self.read_at(place, event)?;
        }
        Ok(sum)
    }

    /// The same out of the control page, without a system call, where the page allows it; and how it was
    /// read.
    ///
    /// It is allowed to the thread that is counted ([`Scope::Thread`]) and opened the counter, for events of
    /// the CPU, while they count.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_here(&self) -> Result<(Reading, ReadBy), PerfError> {
        match self.page.as_ref().and_then(ControlPage::read) {
            Some(read) => {
                let reading = Reading::new(read.value, read.enabled, read.running);
                Ok((reading, ReadBy::ControlPage))
            }
            None => Ok((self.read()?, ReadBy::SystemCall)),
        }
    }

    /// Now, in nanoseconds, without a system call: by perf's clock where the control page gives it, else by
    /// `CLOCK_MONOTONIC`. They are not the same: the first is not adjusted.
    pub fn time(&self) -> (u64, Clock) {
        match self.page.as_ref().and_then(ControlPage::time) {
            Some(time) => (time, Clock::Perf),
            None => (clock::monotonic(), Clock::Monotonic),
        }
    }

    /// The control page, where there is one: for one thread or one CPU, without its children.
    pub fn control_page(&self) -> Option<&ControlPage> {
        self.page.as_ref()
    }

    /// The count of each place.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn each(&self) -> Result<Vec<PlaceReading>, PerfError> {
        let read = |(place, event): &(Place, PerfEvent)| {
            let reading = self.read_at(place, event)?;
            Ok(PlaceReading { thread: place.thread, cpu: place.cpu, reading })
        };
        self.places.iter().map(read).collect()
    }

    /// The kernel's number of the event, for each place: records and groups have it.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn ids(&self) -> Result<Vec<u64>, PerfError> {
        let id = |(place, event): &(Place, PerfEvent)| {
            event.id().map_err(|source| self.failed("ask for the id of", place, source))
        };
        self.places.iter().map(id).collect()
    }

    fn read_at(&self, place: &Place, event: &PerfEvent) -> Result<Reading, PerfError> {
        let mut words = [0; 3];
        let read = event.read_words(&mut words).and_then(|read| {
            let whole = read == words.len();
            whole.then_some(()).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        });
        read.map_err(|source| self.failed("read", place, source))?;
        let [value, enabled, running] = words;
        Ok(Reading::new(value, enabled, running))
    }

    fn tell(
        &self,
        what: &'static str,
        tell: impl Fn(&PerfEvent) -> io::Result<()>,
    ) -> Result<(), PerfError> {
        for (place, event) in &self.places {
            tell(event).map_err(|source| self.failed(what, place, source))?;
        }
        Ok(())
    }

    fn failed(&self, what: &'static str, place: &Place, source: io::Error) -> PerfError {
        PerfError::Call { what, event: self.name.clone(), place: place.to_string(), source }
    }
}

/// The page of a single event that is not inherited. It is not worth an error: all that it has can be had
/// without it.
fn page_of(places: &[(Place, PerfEvent)]) -> Option<ControlPage> {
    let [(place, event)] = places else { return None };
    let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let is_own = place.thread == Some(own) && place.cpu.is_none();
    (!place.inherits).then(|| ControlPage::map(event.as_fd(), is_own).ok()).flatten()
}
