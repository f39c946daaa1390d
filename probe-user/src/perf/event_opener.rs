//! Opening the events of a sampler, with the rings that they write to.

use super::error::PerfError;
use super::event::Event;
use super::opened::share;
use super::place::Place;
use super::record::{Layout, ReadFormat};
use super::sample_ring::SampleRing;
use crate::ring::page::RingPages;
use crate::sys::perf_event::{Attr, Flags, PerfEvent};
use std::io;
use std::os::fd::AsFd;

/// Opens events, at whatever place and time.
#[derive(Debug)]
pub(super) struct EventOpener {
    events: Vec<Event>,
    attrs: Vec<Attr>,
    bytes_per_ring: usize,
}

impl EventOpener {
    /// Opens these events, each as its attribute says.
    pub(super) fn new(events: Vec<Event>, attrs: Vec<Attr>, bytes_per_ring: usize) -> Self {
        Self { events, attrs, bytes_per_ring }
    }

    pub(super) fn events(&self) -> &[Event] {
        &self.events
    }

    /// What the records of an event have that is open.
    pub(super) fn layout(&self) -> Layout {
        self.attrs.first().map(Layout::of).unwrap_or_default()
    }

    /// Opens one of the events at a place. It writes to the ring of the one that was opened there first, or has one
    /// of its own.
    pub(super) fn open(
        &mut self,
        place: &Place,
        number: usize,
        first: Option<&PerfEvent>,
    ) -> Result<(PerfEvent, Option<SampleRing>), PerfError> {
        let event =
            self.event(place, number).map_err(|source| self.failed(place, number, source))?;
        // The kernel may be too old to tell what was lost.
        self.attrs[number].read_format = event.read_format().bits();
        if let Some(first) = first {
            share(&event, first, &self.events[number], place)?;
            return Ok((event, None));
        }
        let bytes = self.bytes_per_ring;
        let pages = RingPages::map(event.as_fd(), bytes).map_err(|source| PerfError::Map {
            bytes,
            place: place.to_string(),
            source,
        })?;
        Ok((event, Some(SampleRing::new(pages))))
    }

    /// One of the events, at a place.
    pub(super) fn event(&self, place: &Place, number: usize) -> io::Result<PerfEvent> {
        let (own, pid, cpu) = (place.attr(&self.attrs[number]), place.pid(), place.cpu());
        if own.read_format == ReadFormat::LOST.bits() {
            Attr { read_format: 0, ..own }.open_telling_lost(pid, cpu, None)
        } else {
            own.open_in(pid, cpu, None)
        }
    }

    fn failed(&self, place: &Place, number: usize, source: io::Error) -> PerfError {
        let Attr { flags, sample_period: frequency, .. } = self.attrs[number];
        if Flags::from_bits_retain(flags).contains(Flags::FREQ)
            && source.raw_os_error() == Some(libc::EINVAL)
            && let Some(most) = most_samples()
            && frequency > most
        {
            return PerfError::Frequency { frequency, most };
        }
        place.refused(&self.events[number].described(), source)
    }
}

/// How many samples a second the kernel allows.
fn most_samples() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok()?;
    text.trim().parse().ok()
}
