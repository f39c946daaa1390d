//! Samples of events, as they are in the rings.

use super::error::PerfError;
use super::event::Event;
use super::event_opener::EventOpener;
use super::later_cpus::LaterCpus;
use super::place::Place;
use super::record::{Body, Layout, Record, RecordError};
use super::sampler_builder::SamplerBuilder;
use super::sampler_rings::{SamplerRings, Taken};
use crate::error::forked;
use crate::hotplug::Changes;
use crate::sys::fork::Process;
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

/// Samples of events, of whoever they are observed of, and what other records there are.
///
/// Each CPU, or each thread that is observed wherever it runs, has a ring. They are read in turns: what is in one
/// when its turn begins, then the next. So records are in the order of their CPU, or thread, and no other.
///
/// CPUs may come and go meanwhile: those that come later are observed, too, if the [`Scope`](super::Scope) is one of
/// CPUs and they are in it, from when a record is asked for next ([`uncovered`](Self::uncovered) tells of those that
/// cannot be); and of one that goes, what is in its ring is given. Threads and what they make are observed on all CPUs
/// that the machine has, whether these are online yet or not.
///
/// ```no_run
/// use probe_user::perf::record::Body;
/// use probe_user::perf::{Next, Sampler, Scope, Software};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let builder = Sampler::builder().event(Software::CpuClock).frequency(99).scope(Scope::System);
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
/// Its rings are mapped in the process that opened it alone. In a child that is forked, it has no records, and to
/// wait for one fails; to drop it does its parent's no harm.
#[derive(Debug)]
pub struct Sampler {
    opener: EventOpener,
    rings: SamplerRings,
    later: Option<LaterCpus>,
    is_enabled: bool,
    layout: Layout,
    counts: SamplerCounts,
    /// Who has the rings.
    process: Process,
}

/// What there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SamplerCounts {
    /// Records that were read, samples and others.
    pub records: u64,
    /// Samples that were read.
    pub samples: u64,
    /// Records that the kernel had no room for, and samples that the hardware had none for.
    pub lost: u64,
    /// How often an event was too fast, and silent for a while.
    pub throttled: u64,
    /// Records that were none.
    pub malformed: u64,
}

/// What comes next.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nothing is allocated for a record")]
pub enum Next<'s> {
    /// A record.
    Record(Record<'s>),
    /// Something that is not the record that it should be.
    Malformed(RecordError),
    /// Nothing, in the time given.
    Timeout,
    /// Nothing any more: all threads have ended that were observed.
    End,
}

impl Sampler {
    /// What is sampled, and how.
    pub fn builder() -> SamplerBuilder {
        SamplerBuilder::default()
    }

    pub(super) fn new(opener: EventOpener, rings: SamplerRings, later: Option<LaterCpus>) -> Self {
        let (layout, counts) = (opener.layout(), SamplerCounts::default());
        Self { opener, rings, later, is_enabled: false, layout, counts, process: Process::this() }
    }

    /// Switches the events on, and those of CPUs that come later.
    ///
    /// # Errors
    ///
    /// Those of the call.
    pub fn enable(&mut self) -> Result<(), PerfError> {
        self.is_enabled = true;
        self.rings.switch(true)
    }

    /// Switches the events off. What is in the rings can be read.
    ///
    /// # Errors
    ///
    /// Those of the call.
    pub fn disable(&mut self) -> Result<(), PerfError> {
        self.is_enabled = false;
        self.rings.switch(false)
    }

    /// What records have.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The events, in the order in which they were given.
    pub fn events(&self) -> &[Event] {
        self.opener.events()
    }

    /// Which of the events the id of a [record](Record::id) stands for: an event has one for each CPU, or thread, and
    /// another one when the CPU is back.
    pub fn ids(&self) -> &HashMap<u64, usize> {
        self.rings.ids()
    }

    /// The CPUs that have come and are not observed, and why.
    pub fn uncovered(&self) -> impl Iterator<Item = (u32, &PerfError)> {
        let uncovered = self.later.iter().flat_map(LaterCpus::uncovered);
        uncovered.map(|(cpu, error)| (*cpu, error))
    }

    /// Why the sampler does not learn of CPUs that come and go, if it does not.
    pub fn hotplug_error(&self) -> Option<&io::Error> {
        self.later.as_ref()?.error()
    }

    /// The next record, if there is one now. It lies in the ring, where it is until the next one is asked for.
    pub fn next_record(&mut self) -> Option<Result<Record<'_>, RecordError>> {
        let taken = self.take()?;
        Some(self.read(taken))
    }

    /// The next record. Waits for it, as long as there is somebody to be observed, and time: `None` is for
    /// ever.
    ///
    /// It wakes for each record, unless the sampler is built with
    /// [`wake_after_bytes`](SamplerBuilder::wake_after_bytes); then it looks at the end of its time, too.
    ///
    /// # Errors
    ///
    /// If waiting fails, or this process was forked from the one that opened the sampler.
    pub fn next_blocking(&mut self, timeout: Option<Duration>) -> Result<Next<'_>, PerfError> {
        if !self.process.is_this() {
            return Err(PerfError::Wait { source: forked() });
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut is_over = false;
        loop {
            if let Some(taken) = self.take() {
                return Ok(self.read(taken).map_or_else(Next::Malformed, Next::Record));
            }
            if self.later.is_none() && self.rings.are_of_nobody() {
                return Ok(Next::End);
            }
            if is_over {
                return Ok(Next::Timeout);
            }
            let news = self.later.as_ref().and_then(LaterCpus::as_fd);
            let waited = self.rings.wait(news.as_slice(), deadline);
            is_over = !waited.map_err(|source| PerfError::Wait { source })?;
        }
    }

    /// What there was until now.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell what it lost.
    pub fn counts(&self) -> Result<SamplerCounts, PerfError> {
        // A loss has a record when a later record has room; the kernel knows of it at once.
        let lost = self.rings.lost()?.unwrap_or(0).max(self.counts.lost);
        Ok(SamplerCounts { lost, ..self.counts })
    }

    /// Whether events will be opened on CPUs that come later.
    #[cfg(feature = "trace")]
    pub(crate) fn follows_cpus(&self) -> bool {
        self.later.is_some()
    }

    /// Opens the events on a CPU once more, as on one that comes later, and closes them.
    #[cfg(feature = "trace")]
    pub(crate) fn try_to_cover(&self) -> io::Result<()> {
        let Some(cpu) = self.rings.cpus().next() else { return Ok(()) };
        let mut each = self.events_on(cpu).into_iter();
        each.try_for_each(|(place, number)| self.opener.event(&place, number).map(drop))
    }

    /// Takes the next record out of the ring whose turn it is, or of another one, and says which.
    fn take(&mut self) -> Option<Taken> {
        if !self.process.is_this() {
            return None;
        }
        // The one whose turn it is may have got something since it began.
        let mut turns = self.rings.len() + 1;
        while turns > 0 {
            if let Some(taken) = self.rings.take() {
                return Some(taken);
            }
            turns -= 1;
            // A ring that nobody waits for any more may hold what came after its turn.
            if self.rings.pass_turn() && self.follow_cpus() {
                turns = self.rings.len() + 1;
            }
        }
        None
    }

    /// Opens the events on CPUs that have come, and closes those of CPUs that have gone. Whether there were any.
    fn follow_cpus(&mut self) -> bool {
        let mut any = false;
        while let Some(changes) = self.cpu_changes() {
            any = true;
            let Changes { gone, come } = changes;
            gone.into_iter().for_each(|cpu| self.rings.leave(cpu));
            for cpu in come {
                let events = self.events_on(cpu);
                if events.is_empty() {
                    continue;
                }
                let covered = self.cover(cpu, events);
                if covered.is_err() {
                    self.rings.leave(cpu);
                }
                if let Some(later) = &mut self.later {
                    later.opened(cpu, covered);
                }
            }
        }
        any
    }

    fn cpu_changes(&self) -> Option<Changes> {
        self.later.as_ref()?.next(self.rings.cpus())
    }

    /// Which events are observed on a CPU that comes later, by their numbers, and where that is.
    fn events_on(&self, cpu: u32) -> Vec<(Place, usize)> {
        let Some(later) = &self.later else { return Vec::new() };
        let numbers = later.numbers_on(cpu, self.opener.events());
        numbers.map(|number| (Place::on_cpu(cpu), number)).collect()
    }

    /// Opens these events on a CPU that is online, perhaps again.
    fn cover(&mut self, cpu: u32, events: Vec<(Place, usize)>) -> Result<(), PerfError> {
        self.rings.leave(cpu);
        self.rings.open(&mut self.opener, events)?;
        if self.is_enabled { self.rings.enable_on(cpu) } else { Ok(()) }
    }

    fn read(&mut self, (ring, taken): Taken) -> Result<Record<'_>, RecordError> {
        let Self { rings, layout, counts, .. } = self;
        let read = taken
            .and_then(|place| Record::with_header(place.header, rings.bytes(ring, place), layout));
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
            Body::Lost { lost, .. } | Body::LostSamples(lost) => {
                self.lost = self.lost.saturating_add(lost);
            }
            Body::Throttle(_) => self.throttled += 1,
            _ => {}
        }
    }
}
