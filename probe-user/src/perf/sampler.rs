//! Samples of events, as they are in the rings.

use super::error::PerfError;
use super::event::Event;
use super::record::{Body, Layout, Record, RecordError};
use super::sample_ring::{Place, SampleRing};
use super::sampler_builder::{Opened, SamplerBuilder};
use super::waiting::Alive;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Samples of events, of whoever they are observed of, and what other records there are.
///
/// Each CPU, or each thread that is observed wherever it runs, has a ring. They are read in turns: what is in one
/// when its turn begins, then the next. So records are in the order of their CPU, or thread, and no other.
///
/// CPUs that come later are not observed.
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
#[derive(Debug)]
pub struct Sampler {
    events: Vec<Event>,
    opened: Vec<Opened>,
    /// Which of the events an id is.
    ids: HashMap<u64, usize>,
    alive: Alive,
    rings: Vec<SampleRing>,
    /// Whose turn it is.
    turn: usize,
    layout: Layout,
    counts: SamplerCounts,
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

    pub(super) fn new(
        events: Vec<Event>,
        opened: Vec<Opened>,
        rings: Vec<SampleRing>,
        layout: Layout,
    ) -> Result<Self, PerfError> {
        let mut ids = HashMap::new();
        for Opened { event, number } in &opened {
            ids.insert(event.id().map_err(|source| PerfError::Switch { source })?, *number);
        }
        let alive = Alive::all(opened.len());
        let counts = SamplerCounts::default();
        Ok(Self { events, opened, ids, alive, rings, turn: 0, layout, counts })
    }

    /// Switches the events on.
    ///
    /// # Errors
    ///
    /// Those of the call.
    pub fn enable(&self) -> Result<(), PerfError> {
        let switched = self.opened.iter().try_for_each(|opened| opened.event.enable());
        switched.map_err(|source| PerfError::Switch { source })
    }

    /// Switches the events off. What is in the rings can be read.
    ///
    /// # Errors
    ///
    /// Those of the call.
    pub fn disable(&self) -> Result<(), PerfError> {
        let switched = self.opened.iter().try_for_each(|opened| opened.event.disable());
        switched.map_err(|source| PerfError::Switch { source })
    }

    /// What records have.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The events, in the order in which they were given.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Which of the events the id of a [record](Record::id) stands for: an event has one for each CPU, or thread.
    pub fn ids(&self) -> &HashMap<u64, usize> {
        &self.ids
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
    /// If waiting fails.
    pub fn next_blocking(&mut self, timeout: Option<Duration>) -> Result<Next<'_>, PerfError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut is_over = false;
        loop {
            if let Some(taken) = self.take() {
                return Ok(self.read(taken).map_or_else(Next::Malformed, Next::Record));
            }
            if self.alive.is_nobody() {
                return Ok(Next::End);
            }
            if is_over {
                return Ok(Next::Timeout);
            }
            let waited = self.alive.wait(&self.opened, &[], deadline);
            is_over = !waited.map_err(|source| PerfError::Wait { source })?;
        }
    }

    /// What there was until now.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell what it lost.
    pub fn counts(&self) -> Result<SamplerCounts, PerfError> {
        let mut told = Some(0);
        for Opened { event, .. } in &self.opened {
            let lost = event.lost().map_err(|source| PerfError::Lost { source })?;
            told = told.zip(lost).map(|(sum, lost)| sum + lost);
        }
        // A loss has a record when a later record has room; the kernel knows of it at once.
        let lost = told.unwrap_or(0).max(self.counts.lost);
        Ok(SamplerCounts { lost, ..self.counts })
    }

    /// Takes the next record out of the ring whose turn it is, or of another one, and says which.
    fn take(&mut self) -> Option<(usize, Result<Place, RecordError>)> {
        // The one whose turn it is may have got something since it began.
        for _ in 0..=self.rings.len() {
            let ring = self.rings.get_mut(self.turn)?;
            if let Some(taken) = ring.take() {
                return Some((self.turn, taken));
            }
            self.turn = (self.turn + 1) % self.rings.len();
            self.rings[self.turn].begin_turn();
        }
        None
    }

    fn read(
        &mut self,
        (ring, taken): (usize, Result<Place, RecordError>),
    ) -> Result<Record<'_>, RecordError> {
        let Self { rings, layout, counts, .. } = self;
        let read = taken
            .and_then(|place| Record::with_header(place.header, rings[ring].bytes(place), layout));
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
