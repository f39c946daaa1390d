//! Sampling events.

mod builder;
mod hotplug;
mod rings;

pub use builder::SamplerBuilder;

use crate::error::PerfError;
use crate::event::Event;
use crate::record::{Body, Layout, Record, RecordError};
use crate::target::Site;
use hotplug::Hotplug;
use probe_sys::hint::forked;
use probe_sys::hotplug::{Changes, CpuWatch};
use probe_sys::process::Process;
use rings::{EventOpener, SamplerRings, Taken};
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

/// Reads samples of events, and other records, from the kernel's rings.
///
/// Each CPU has a ring, or each thread that is observed on any CPU. The rings are read one after the other, each as
/// far as it is filled at that moment. Records are therefore in order within a CPU or thread, and in no order between them.
///
/// CPUs may go online and offline. If the [`Target`](super::Target) includes a CPU that goes online, the sampler opens its
/// events there when you ask for the next record; [`uncovered`](Self::uncovered) reports CPUs where that failed. After the
/// machine was suspended, it opens them again on all CPUs; without the privilege for that, they stay as they are. The
/// records of a CPU that goes offline are still read. Threads and their children are observed on all CPUs of the machine,
/// whether these are online or not.
///
/// ```no_run
/// use probe_perf::record::Body;
/// use probe_perf::{Next, Sampler, Software, Target};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let builder = Sampler::builder().event(Software::CpuClock).frequency(99).target(Target::System);
/// let mut sampler = builder.callchains().open()?;
/// sampler.enable()?;
/// while let Next::Record(record) = sampler.next_blocking(None)? {
///     if let Body::Sample(sample) = record.body {
///         println!("{:?} at {:x?}", sample.thread, sample.ip);
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// Only the process that opened the sampler has its rings. In a forked child, there are no records, and waiting for one
/// fails. Dropping the sampler there does not affect the parent.
#[derive(Debug)]
pub struct Sampler {
    opener: EventOpener,
    rings: SamplerRings,
    hotplug: Option<Hotplug>,
    is_enabled: bool,
    layout: Layout,
    counts: SamplerCounts,
    /// The process that has the rings.
    process: Process,
}

/// How many records there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SamplerCounts {
    /// Records that were read, including samples.
    pub records: u64,
    /// Samples that were read.
    pub samples: u64,
    /// Records for which the kernel had no room, and samples for which the hardware had none.
    pub lost: u64,
    /// How often an event was throttled because it was too frequent.
    pub throttled: u64,
    /// Records that were malformed.
    pub malformed: u64,
    /// Samples for which the hardware had no room. `lost` has only the others until all are added up.
    lost_in_hardware: u64,
}

/// The result of waiting for a record.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nothing is allocated for a record")]
pub enum Next<'s> {
    /// A record.
    Record(Record<'s>),
    /// A malformed record.
    Malformed(RecordError),
    /// The time is over.
    Timeout,
    /// All observed threads have ended, and all records have been read.
    End,
}

impl Sampler {
    /// Returns a builder.
    pub fn builder() -> SamplerBuilder {
        SamplerBuilder::default()
    }

    fn new(opener: EventOpener, rings: SamplerRings, hotplug: Option<Hotplug>) -> Self {
        let (layout, counts) = (opener.layout(), SamplerCounts::default());
        Self { opener, rings, hotplug, is_enabled: false, layout, counts, process: Process::this() }
    }

    /// Enables the events, and those of CPUs that go online later.
    ///
    /// # Errors
    ///
    /// If a call fails, or this process was forked from the one that opened the sampler.
    pub fn enable(&mut self) -> Result<(), PerfError> {
        self.switch(true)
    }

    /// Disables the events. The rest of the rings can still be read.
    ///
    /// # Errors
    ///
    /// As [`enable`](Self::enable).
    pub fn disable(&mut self) -> Result<(), PerfError> {
        self.switch(false)
    }

    fn switch(&mut self, is_on: bool) -> Result<(), PerfError> {
        if !self.process.is_this() {
            // They are the events of the other process.
            return Err(PerfError::of_events("enable or disable the events")(forked()));
        }
        self.is_enabled = is_on;
        self.rings.switch(is_on)
    }

    /// The layout of records.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The events, in the order in which they were added.
    pub fn events(&self) -> &[Event] {
        &self.opener.events
    }

    /// The number of the event for each id of a [record](Record::id). An event has an id for each CPU or thread, and a new
    /// one when the CPU goes online again.
    pub fn ids(&self) -> &HashMap<u64, usize> {
        &self.rings.ids
    }

    /// The CPUs that went online but are not observed, and why. After the machine was suspended, they also include CPUs that
    /// never went offline, and so still are observed, if the events could not be opened again.
    pub fn uncovered(&self) -> impl Iterator<Item = (u32, &PerfError)> {
        let uncovered = self.hotplug.iter().flat_map(|hotplug| &hotplug.uncovered);
        uncovered.map(|(cpu, error)| (*cpu, error))
    }

    /// Why the sampler does not learn of CPUs that go online or offline, if it does not.
    pub fn hotplug_error(&self) -> Option<&io::Error> {
        self.hotplug.as_ref()?.watch.as_ref().err()
    }

    /// The next record, if there is one. It is borrowed from the ring until the next call.
    pub fn next_record(&mut self) -> Option<Result<Record<'_>, RecordError>> {
        let taken = self.take(&mut self.all_slices())?;
        Some(self.read(taken))
    }

    /// Passes the records that are in the rings now to `each`. Those that arrive meanwhile may wait for the next call, so it ends
    /// even if records arrive faster than they are read.
    pub fn for_each_so_far(&mut self, mut each: impl FnMut(Result<Record<'_>, RecordError>)) {
        let mut slices = self.all_slices();
        while let Some(taken) = self.take(&mut slices) {
            each(self.read(taken));
        }
    }

    /// Waits for the next record until the time is over; without a timeout, until all observed threads have ended.
    ///
    /// Each record wakes it, unless the sampler is built with [`wake_after_bytes`](SamplerBuilder::wake_after_bytes). In that
    /// case it also checks the rings when the time is over.
    ///
    /// # Errors
    ///
    /// If waiting fails, or this process was forked from the one that opened the sampler.
    pub fn next_blocking(&mut self, timeout: Option<Duration>) -> Result<Next<'_>, PerfError> {
        if !self.process.is_this() {
            return Err(PerfError::of_events("wait for records")(forked()));
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut is_over = false;
        loop {
            if let Some(taken) = self.take(&mut self.all_slices()) {
                return Ok(self.read(taken).map_or_else(Next::Malformed, Next::Record));
            }
            if self.hotplug.is_none() && self.rings.have_all_ended() {
                return Ok(Next::End);
            }
            if is_over {
                return Ok(Next::Timeout);
            }
            let watch = self.hotplug.as_ref().and_then(|hotplug| hotplug.watch.as_ref().ok());
            let watch = watch.map(CpuWatch::descriptors);
            let waited = self.rings.wait(watch.as_ref().map_or(&[], |both| both), deadline);
            let waited = waited.map_err(PerfError::of_events("wait for records"))?;
            is_over = !waited || deadline.is_some_and(|deadline| deadline <= Instant::now());
        }
    }

    /// The counts so far.
    ///
    /// # Errors
    ///
    /// If the kernel fails to report its losses.
    pub fn counts(&self) -> Result<SamplerCounts, PerfError> {
        // The kernel counts a loss at once, but writes its record only when there is room again.
        let in_rings = self.rings.lost()?.max(self.counts.lost);
        let lost = in_rings.saturating_add(self.counts.lost_in_hardware);
        Ok(SamplerCounts { lost, ..self.counts })
    }

    /// Whether the sampler opens its events on CPUs that go online later: it does if its target is CPUs or the system.
    pub fn follows_hotplug(&self) -> bool {
        self.hotplug.is_some()
    }

    /// Checks that the process may still open the events, as it must when a CPU goes online: opens them a second time on
    /// one of the CPUs and closes them. Call it after dropping privileges.
    ///
    /// # Errors
    ///
    /// The error of `perf_event_open`.
    pub fn try_reopen(&self) -> io::Result<()> {
        let Some(cpu) = self.rings.cpus().next() else { return Ok(()) };
        let mut each = self.events_on(cpu).into_iter();
        each.try_for_each(|(site, number)| self.opener.event(&site, number).map(drop))
    }

    /// The number of slices that have all records so far. One more than there are rings: the first one may have new records since
    /// its slice began.
    fn all_slices(&self) -> usize {
        self.rings.len() + 1
    }

    /// Takes the next record of this many slices, and says from which ring.
    fn take(&mut self, slices: &mut usize) -> Option<Taken> {
        if !self.process.is_this() {
            return None;
        }
        while *slices > 0 {
            if let Some(taken) = self.rings.take() {
                return Some(taken);
            }
            *slices -= 1;
            // A ring whose threads have ended may have records that arrived after its slice began.
            if self.rings.next_ring() && self.follow_cpus() {
                *slices = self.all_slices();
            }
        }
        None
    }

    /// Opens the events on CPUs that went online, and closes those of CPUs that went offline. Returns whether any did.
    fn follow_cpus(&mut self) -> bool {
        let mut any = false;
        while let Some(changes) = self.cpu_changes() {
            any = true;
            let Changes { gone, come } = changes;
            gone.into_iter().for_each(|cpu| self.rings.close_on(cpu));
            for cpu in come {
                let events = self.events_on(cpu);
                if events.is_empty() {
                    continue;
                }
                let covered = self.cover(cpu, events);
                if let Some(hotplug) = &mut self.hotplug {
                    hotplug.opened(cpu, covered);
                }
            }
        }
        any
    }

    fn cpu_changes(&mut self) -> Option<Changes> {
        let watch = self.hotplug.as_mut()?.watch.as_mut().ok()?;
        Some(watch.take()?.changes(self.rings.cpus()))
    }

    /// The events to observe on a CPU that went online, by number, and their sites.
    fn events_on(&self, cpu: u32) -> Vec<(Site, usize)> {
        let hotplug = self.hotplug.as_ref();
        hotplug.map_or_else(Vec::new, |hotplug| hotplug.events_on(cpu, &self.opener.events))
    }

    /// Opens these events on a CPU that went online, perhaps again. It may have been online all the time, so its events stay open
    /// if they cannot be opened again.
    fn cover(&mut self, cpu: u32, events: Vec<(Site, usize)>) -> Result<(), PerfError> {
        let mut opened = SamplerRings::default();
        opened.open(&mut self.opener, events)?;
        self.rings.close_on(cpu);
        if self.is_enabled {
            opened.switch(true)?;
        }
        self.rings.add(opened);
        Ok(())
    }

    fn read(&mut self, (ring, taken): Taken) -> Result<Record<'_>, RecordError> {
        let Self { rings, layout, counts, .. } = self;
        let read = taken
            .and_then(|span| Record::with_header(span.header, rings.bytes(ring, span), layout));
        counts.add(&read);
        read
    }
}

impl SamplerCounts {
    fn add(&mut self, read: &Result<Record<'_>, RecordError>) {
        let Ok(record) = read else {
            self.malformed += 1;
            return;
        };
        self.records += 1;
        match record.body {
            Body::Sample(_) => self.samples += 1,
            Body::Lost { lost, .. } => self.lost = self.lost.saturating_add(lost),
            Body::LostSamples(lost) => {
                self.lost_in_hardware = self.lost_in_hardware.saturating_add(lost);
            }
            Body::Throttle(_) => self.throttled += 1,
            _ => {}
        }
    }
}
