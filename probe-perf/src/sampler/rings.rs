//! The rings of a sampler, and the events that write into them.

use crate::error::PerfError;
use crate::event::Event;
use crate::record::{Layout, ReadFormat, RecordError};
use crate::record_ring::{RecordRing, RecordSpan};
use crate::target::{Site, open_each};
use crate::waiting;
use probe_sys::perf_event::{Attr, Flags, PerfEvent};
use probe_sys::ring::page::RingPages;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// A record that was taken, and the number of its ring.
pub(super) type Taken = (usize, Result<RecordSpan, RecordError>);

/// Events and their rings, which are read one after the other.
#[derive(Debug, Default)]
pub(super) struct SamplerRings {
    opened: Vec<Opened>,
    /// The number of the event for each id that was ever open.
    pub(super) ids: HashMap<u64, usize>,
    rings: Vec<Ring>,
    /// The number of the ring that is being read.
    current: usize,
    /// The lost records of events that are closed.
    lost_of_closed: u64,
}

/// An event that is open.
#[derive(Debug)]
struct Opened {
    event: PerfEvent,
    ring: Site,
    /// Whether all threads of the event have ended.
    has_ended: bool,
}

#[derive(Debug)]
struct Ring {
    memory: RecordRing,
    site: Site,
    /// Whether its events are closed, so that no more records arrive.
    is_closed: bool,
}

impl SamplerRings {
    /// Opens each of these events, given by number, at its site.
    pub(super) fn open(
        &mut self,
        opener: &mut EventOpener,
        each: impl IntoIterator<Item = (Site, usize)>,
    ) -> Result<(), PerfError> {
        let mut by_ring = HashMap::<Site, usize>::new();
        open_each(
            each,
            |(site, _)| site,
            |&(site, number)| {
                let ring = site.of_ring();
                let first = by_ring.get(&ring).map(|&first| &self.opened[first].event);
                let (event, memory) = opener.open(&site, number, first)?;
                let id = event.id().map_err(PerfError::of_events("read an event's id"))?;
                if let Some(memory) = memory {
                    by_ring.insert(ring, self.opened.len());
                    self.rings.push(Ring { memory, site: ring, is_closed: false });
                }
                self.ids.insert(id, number);
                self.opened.push(Opened { event, ring, has_ended: false });
                Ok(())
            },
        )?;
        Ok(())
    }

    /// Adds the events and rings of another set. Its rings are read last.
    pub(super) fn add(&mut self, other: Self) {
        self.opened.extend(other.opened);
        self.ids.extend(other.ids);
        self.rings.extend(other.rings);
    }

    /// Closes the events of a CPU that write into its own ring. The ring is removed once the rest of it has been read.
    pub(super) fn close_on(&mut self, cpu: u32) {
        let is_own = |ring: &Site| ring.thread.is_none() && ring.cpu == Some(cpu);
        let Self { opened, rings, lost_of_closed, .. } = self;
        for Opened { event, .. } in opened.extract_if(.., |opened| is_own(&opened.ring)) {
            // If the CPU is online again, the mapped ring would keep the event running.
            let _ = event.disable();
            *lost_of_closed += event.lost().ok().flatten().unwrap_or(0);
        }
        rings.iter_mut().filter(|ring| is_own(&ring.site)).for_each(|ring| ring.is_closed = true);
    }

    /// The CPUs with their own rings.
    pub(super) fn cpus(&self) -> impl Iterator<Item = u32> {
        self.rings.iter().filter(|ring| !ring.is_closed).filter_map(|ring| ring.site.cpu)
    }

    /// Enables or disables the events.
    pub(super) fn switch(&self, is_on: bool) -> Result<(), PerfError> {
        let switch = if is_on { PerfEvent::enable } else { PerfEvent::disable };
        let switched = self.opened.iter().try_for_each(|opened| switch(&opened.event));
        switched.map_err(PerfError::of_events("enable or disable the events"))
    }

    /// Whether all observed threads have ended.
    pub(super) fn have_all_ended(&self) -> bool {
        self.opened.iter().all(|opened| opened.has_ended)
    }

    /// Waits for records, for the end of threads, or for one of the `besides`. Returns `false` on a timeout.
    pub(super) fn wait(
        &mut self,
        besides: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> io::Result<bool> {
        let events =
            self.opened.iter_mut().map(|opened| (opened.event.as_fd(), &mut opened.has_ended));
        waiting::wait(events, besides, deadline)
    }

    /// How many records the kernel has lost; 0 if it does not report that.
    pub(super) fn lost(&self) -> Result<u64, PerfError> {
        let lost = self.opened.iter().map(|opened| Ok(opened.event.lost()?.unwrap_or(0)));
        let sum = lost.sum::<io::Result<u64>>();
        sum.map(|lost| lost + self.lost_of_closed)
            .map_err(PerfError::of_events("read how many records were lost"))
    }

    /// The number of rings.
    pub(super) fn len(&self) -> usize {
        self.rings.len()
    }

    /// Takes the next record of the ring that is being read.
    pub(super) fn take(&mut self) -> Option<Taken> {
        let taken = self.rings.get_mut(self.current)?.memory.take()?;
        Some((self.current, taken))
    }

    /// Goes on to the next ring. Returns whether that is the first one.
    pub(super) fn next_ring(&mut self) -> bool {
        match self.rings.get(self.current) {
            Some(ring) if ring.is_closed && ring.memory.is_read() => {
                self.rings.remove(self.current);
            }
            _ => self.current += 1,
        }
        let is_first = self.current >= self.rings.len();
        if is_first {
            self.current = 0;
        }
        if let Some(ring) = self.rings.get_mut(self.current) {
            ring.memory.begin_slice();
        }
        is_first
    }

    /// The bytes of the record that was just taken.
    pub(super) fn bytes(&mut self, ring: usize, span: RecordSpan) -> &[u8] {
        self.rings[ring].memory.bytes(span)
    }
}

/// Opens the events of a sampler, at any site and time.
#[derive(Debug)]
pub(super) struct EventOpener {
    pub(super) events: Vec<Event>,
    /// The attributes of each event.
    pub(super) attrs: Vec<Attr>,
    pub(super) bytes_per_ring: usize,
}

impl EventOpener {
    /// The layout of records.
    pub(super) fn layout(&self) -> Layout {
        self.attrs.first().map(Layout::of).unwrap_or_default()
    }

    /// Opens one of the events at a site. It writes into the ring of the first event there, or into a new one.
    pub(super) fn open(
        &mut self,
        site: &Site,
        number: usize,
        first: Option<&PerfEvent>,
    ) -> Result<(PerfEvent, Option<RecordRing>), PerfError> {
        let event = self.event(site, number).map_err(|cause| self.failed(site, number, cause))?;
        // The kernel may be too old to report lost records.
        self.attrs[number].read_format = event.read_format().bits();
        if let Some(first) = first {
            site.share_ring(&event, first, &self.events[number])?;
            return Ok((event, None));
        }
        let bytes = self.bytes_per_ring;
        let pages = RingPages::map(event.as_fd(), bytes).map_err(|cause| PerfError::Map {
            bytes,
            site: site.to_string(),
            cause,
        })?;
        Ok((event, Some(RecordRing::new(pages))))
    }

    /// Opens one of the events at a site, without a ring.
    pub(super) fn event(&self, site: &Site, number: usize) -> io::Result<PerfEvent> {
        let (own, pid, cpu) = (site.attr(&self.attrs[number]), site.pid(), site.cpu());
        let format = ReadFormat::from_bits_retain(own.read_format);
        if format.contains(ReadFormat::LOST) {
            let read_format = (format - ReadFormat::LOST).bits();
            Attr { read_format, ..own }.open_telling_lost(pid, cpu, None)
        } else {
            own.open_in(pid, cpu, None)
        }
    }

    fn failed(&self, site: &Site, number: usize, cause: io::Error) -> PerfError {
        let Attr { flags, sample_period: frequency, .. } = self.attrs[number];
        if Flags::from_bits_retain(flags).contains(Flags::FREQ)
            && cause.raw_os_error() == Some(libc::EINVAL)
            && let Some(most) = most_samples()
            && frequency > most
        {
            return PerfError::Frequency { frequency, most };
        }
        site.cannot_open(&self.events[number].described(), cause)
    }
}

/// The samples per second that the kernel allows.
fn most_samples() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok()?;
    text.trim().parse().ok()
}
