//! The AUX areas of an event on a target.

use super::{AuxMode, AuxTrace};
use crate::error::PerfError;
use crate::event::Event;
use crate::target::{Site, Target, open_each};
use crate::waiting;
use probe_sys::hint::forked;
use probe_sys::perf_event::Flags;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::slice;
use std::time::{Duration, Instant};

/// An event with AUX areas: one for each CPU, or for each thread that is observed on any CPU. Only the process that opened
/// them has the areas. In a forked child, they are empty, and waiting for data fails.
#[derive(Debug)]
pub struct AuxTraces {
    traces: Vec<AuxTrace>,
    /// For each event of all traces, whether its threads have ended.
    have_ended: Vec<bool>,
}

impl AuxTraces {
    /// Opens an event with AUX areas. It is disabled until [`enable`](Self::enable), or, with [`Flags::ENABLE_ON_EXEC`],
    /// until the process executes a program.
    ///
    /// # Errors
    ///
    /// If the event or the target does not exist, or you lack the privileges; otherwise as [`AuxTrace::open`].
    pub fn open(
        event: &Event,
        target: &Target,
        mode: AuxMode,
        flags: Flags,
    ) -> Result<Self, PerfError> {
        let (mut traces, mut by_ring) = (Vec::<AuxTrace>::new(), HashMap::<Site, usize>::new());
        let sites = target.sites_of(slice::from_ref(event), true)?;
        let open = |site: &Site| {
            match by_ring.get(&site.of_ring()) {
                Some(&first) => traces[first].share(event, site, flags)?,
                None => {
                    traces.push(AuxTrace::open_at(event, site, mode, flags)?);
                    by_ring.insert(site.of_ring(), traces.len() - 1);
                }
            }
            Ok(())
        };
        let opened = open_each(sites, |site| site, open)?;
        Ok(Self { traces, have_ended: vec![false; opened.len()] })
    }

    /// The traces of all CPUs or threads.
    pub fn traces(&mut self) -> &mut [AuxTrace] {
        &mut self.traces
    }

    /// Enables all of them, as [`AuxTrace::enable`] does.
    pub fn enable(&self) -> Result<(), PerfError> {
        let enabled = self.traces.iter().try_for_each(AuxTrace::enable);
        enabled.map_err(PerfError::of_events("enable the traces"))
    }

    /// Disables all of them, as [`AuxTrace::disable`] does. All data that they have written is then in the areas.
    pub fn disable(&self) -> Result<(), PerfError> {
        let disabled = self.traces.iter().try_for_each(AuxTrace::disable);
        disabled.map_err(PerfError::of_events("disable the traces"))
    }

    /// Waits for data, for one of the other descriptors to be readable, or for the timeout. Returns `false` without waiting
    /// if all observed threads have ended.
    ///
    /// Data wakes only when it fills half of an area.
    ///
    /// # Errors
    ///
    /// If waiting fails, or this process was forked from the one that opened the areas.
    pub fn wait(
        &mut self,
        besides: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<bool, PerfError> {
        if !self.traces.iter().all(|trace| trace.area.are_here()) {
            return Err(PerfError::of_events("wait for data")(forked()));
        }
        if self.have_ended.iter().all(|has_ended| *has_ended) {
            return Ok(false);
        }
        let events = self.traces.iter().flat_map(AuxTrace::events).map(AsFd::as_fd);
        let deadline = Instant::now().checked_add(timeout);
        let waited = waiting::wait(events.zip(&mut self.have_ended), besides, deadline);
        waited.map_err(PerfError::of_events("wait for data"))?;
        Ok(true)
    }
}
