//! The AUX areas of an event, of whoever it is observed of.

use super::aux::{AuxMode, AuxTrace};
use super::error::PerfError;
use super::event::Event;
use super::opened::opened_of;
use super::place::Place;
use super::scope::Scope;
use super::waiting;
use crate::sys::perf_event::Flags;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::slice;
use std::time::{Duration, Instant};

/// An event with AUX areas: one for each CPU, or for each thread that is observed wherever it runs. They are mapped
/// in the process that opened it alone: in a child that is forked, they have nothing.
#[derive(Debug)]
pub struct AuxTraces {
    traces: Vec<AuxTrace>,
    /// Of each event of all traces, whether those have ended that it is of.
    have_ended: Vec<bool>,
}

impl AuxTraces {
    /// Opens an event, with areas that are used so. It is off until [`enable`](Self::enable), or, with
    /// [`Flags::ENABLE_ON_EXEC`], until the process executes a program.
    ///
    /// # Errors
    ///
    /// If there is no such event, nobody of whom to observe it, no privilege to do so, or as
    /// [`AuxTrace::open`].
    pub fn open(
        event: &Event,
        scope: &Scope,
        mode: AuxMode,
        flags: Flags,
    ) -> Result<Self, PerfError> {
        let (mut traces, mut by_ring) = (Vec::<AuxTrace>::new(), HashMap::<Place, usize>::new());
        let places = scope.places_of(slice::from_ref(event), true)?;
        let open = |place: &Place| {
            match by_ring.get(&place.of_ring()) {
                Some(&first) => traces[first].share(event, place, flags)?,
                None => {
                    traces.push(AuxTrace::open_at(event, place, mode, flags)?);
                    by_ring.insert(place.of_ring(), traces.len() - 1);
                }
            }
            Ok(())
        };
        let opened = opened_of(places, |place| place, open)?;
        Ok(Self { traces, have_ended: vec![false; opened.len()] })
    }

    /// Those of each CPU, or thread.
    pub fn traces(&mut self) -> &mut [AuxTrace] {
        &mut self.traces
    }

    /// Switches all of them on.
    ///
    /// # Errors
    ///
    /// As [`AuxTrace::enable`].
    pub fn enable(&self) -> Result<(), PerfError> {
        self.switch(AuxTrace::enable)
    }

    /// Switches all of them off. What they have written is all in the areas then.
    ///
    /// # Errors
    ///
    /// As [`AuxTrace::disable`].
    pub fn disable(&self) -> Result<(), PerfError> {
        self.switch(AuxTrace::disable)
    }

    /// Waits for pieces of data, for other descriptors to be readable, or for the time to pass. `false` if all
    /// threads have ended that were observed: then it does not wait.
    ///
    /// Pieces wake only when there is half an area of them.
    ///
    /// # Errors
    ///
    /// If waiting fails.
    pub fn wait(
        &mut self,
        besides: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<bool, PerfError> {
        if self.have_ended.iter().all(|has_ended| *has_ended) {
            return Ok(false);
        }
        let events = self.traces.iter().flat_map(AuxTrace::events).map(AsFd::as_fd);
        let deadline = Instant::now().checked_add(timeout);
        let waited = waiting::wait(events.zip(&mut self.have_ended), besides, deadline);
        waited.map_err(|source| PerfError::Wait { source })?;
        Ok(true)
    }

    fn switch(&self, switch: fn(&AuxTrace) -> io::Result<()>) -> Result<(), PerfError> {
        let switched = self.traces.iter().try_for_each(switch);
        switched.map_err(|source| PerfError::Switch { source })
    }
}
