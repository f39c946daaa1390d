//! The rings that samples come through, and the events that write to them.

use super::error::PerfError;
use super::event_opener::EventOpener;
use super::opened::opened_of;
use super::place::Place;
use super::record::RecordError;
use super::sample_ring::{Place as RecordPlace, SampleRing};
use super::waiting;
use crate::sys::perf_event::PerfEvent;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// A record that was taken out, and the number of the ring that it is in.
pub(super) type Taken = (usize, Result<RecordPlace, RecordError>);

/// Events, and their rings, each of which has its turn.
#[derive(Debug, Default)]
pub(super) struct SamplerRings {
    opened: Vec<Opened>,
    /// Which of the events an id is, of all that ever were open.
    ids: HashMap<u64, usize>,
    rings: Vec<Ring>,
    /// Whose turn it is.
    turn: usize,
    /// What the kernel lost of events that are closed.
    lost_of_closed: u64,
}

/// An event that is open.
#[derive(Debug)]
struct Opened {
    event: PerfEvent,
    ring: Place,
    /// Whether those have ended that it is of.
    has_ended: bool,
}

#[derive(Debug)]
struct Ring {
    memory: SampleRing,
    place: Place,
    /// Whether its events are closed: nothing comes any more.
    is_left: bool,
}

impl SamplerRings {
    /// Opens each of these events, by their numbers, at its place.
    pub(super) fn open(
        &mut self,
        opener: &mut EventOpener,
        each: impl IntoIterator<Item = (Place, usize)>,
    ) -> Result<(), PerfError> {
        let mut by_ring = HashMap::<Place, usize>::new();
        opened_of(
            each,
            |(place, _)| place,
            |&(place, number)| {
                let ring = place.of_ring();
                let first = by_ring.get(&ring).map(|&first| &self.opened[first].event);
                let (event, memory) = opener.open(&place, number, first)?;
                let id = event.id().map_err(|source| PerfError::Switch { source })?;
                if let Some(memory) = memory {
                    by_ring.insert(ring, self.opened.len());
                    self.rings.push(Ring { memory, place: ring, is_left: false });
                }
                self.ids.insert(id, number);
                self.opened.push(Opened { event, ring, has_ended: false });
                Ok(())
            },
        )?;
        Ok(())
    }

    /// Closes the events of a CPU that write to a ring of its own. What is in there can be read, and then the ring is
    /// gone.
    pub(super) fn leave(&mut self, cpu: u32) {
        let is_left = |ring: &Place| ring.thread.is_none() && ring.cpu == Some(cpu);
        let Self { opened, rings, lost_of_closed, .. } = self;
        for Opened { event, .. } in opened.extract_if(.., |opened| is_left(&opened.ring)) {
            // If the CPU is back already, the ring would keep it alive.
            let _ = event.disable();
            // A kernel that does not tell now never did.
            *lost_of_closed += event.lost().ok().flatten().unwrap_or(0);
        }
        rings.iter_mut().filter(|ring| is_left(&ring.place)).for_each(|ring| ring.is_left = true);
    }

    /// The CPUs that have rings of their own.
    pub(super) fn cpus(&self) -> impl Iterator<Item = u32> {
        self.rings.iter().filter(|ring| !ring.is_left).filter_map(|ring| ring.place.cpu)
    }

    pub(super) fn ids(&self) -> &HashMap<u64, usize> {
        &self.ids
    }

    /// Switches the events on, or off.
    pub(super) fn switch(&self, is_on: bool) -> Result<(), PerfError> {
        self.opened.iter().try_for_each(|opened| opened.switch(is_on))
    }

    /// Switches those of a CPU on.
    pub(super) fn enable_on(&self, cpu: u32) -> Result<(), PerfError> {
        let mut own = self.opened.iter().filter(|opened| opened.ring.cpu == Some(cpu));
        own.try_for_each(|opened| opened.switch(true))
    }

    /// Whether all have ended that events are of.
    pub(super) fn are_of_nobody(&self) -> bool {
        self.opened.iter().all(|opened| opened.has_ended)
    }

    /// Waits for something to read, somebody's end, or others that are waited for `besides`. `false` if there was
    /// nothing in time.
    pub(super) fn wait(
        &mut self,
        besides: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> io::Result<bool> {
        let events =
            self.opened.iter_mut().map(|opened| (opened.event.as_fd(), &mut opened.has_ended));
        waiting::wait(events, besides, deadline)
    }

    /// What the kernel has lost, if it tells.
    pub(super) fn lost(&self) -> Result<Option<u64>, PerfError> {
        let mut sum = Some(self.lost_of_closed);
        for Opened { event, .. } in &self.opened {
            let lost = event.lost().map_err(|source| PerfError::Lost { source })?;
            sum = sum.zip(lost).map(|(sum, lost)| sum + lost);
        }
        Ok(sum)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.rings.len()
    }

    /// The next record of the ring whose turn it is.
    pub(super) fn take(&mut self) -> Option<Taken> {
        let taken = self.rings.get_mut(self.turn)?.memory.take()?;
        Some((self.turn, taken))
    }

    /// Gives the turn to the next ring. Whether that is the first one.
    pub(super) fn pass_turn(&mut self) -> bool {
        match self.rings.get(self.turn) {
            Some(ring) if ring.is_left && ring.memory.is_read() => {
                self.rings.remove(self.turn);
            }
            _ => self.turn += 1,
        }
        let is_over = self.turn >= self.rings.len();
        if is_over {
            self.turn = 0;
        }
        if let Some(ring) = self.rings.get_mut(self.turn) {
            ring.memory.begin_turn();
        }
        is_over
    }

    /// The bytes of a record that was just taken out.
    pub(super) fn bytes(&mut self, ring: usize, place: RecordPlace) -> &[u8] {
        self.rings[ring].memory.bytes(place)
    }
}

impl Opened {
    fn switch(&self, is_on: bool) -> Result<(), PerfError> {
        let switched = if is_on { self.event.enable() } else { self.event.disable() };
        switched.map_err(|source| PerfError::Switch { source })
    }
}
