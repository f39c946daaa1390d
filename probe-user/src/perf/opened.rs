//! Events that are open at each place of a scope.

use super::error::PerfError;
use super::event::Event;
use super::place::Place;
use super::scope::Scope;
use crate::sys::perf_event::{Attr, PerfEvent};
use std::os::fd::AsFd;

/// What `open` opens of these events, at each place of a scope. Threads that have ended since they were found are
/// none.
pub(super) fn opened<T>(
    scope: &Scope,
    events: &[Event],
    open: impl Fn(&Place) -> Result<T, PerfError>,
) -> Result<Vec<(Place, T)>, PerfError> {
    opened_of(scope.places_of(events, false)?, |place| place, open)
}

/// The same, of each of these: a place, or an event at one. Nor is anything opened on a CPU that is offline, if that
/// fails.
pub(super) fn opened_of<I, T>(
    each: impl IntoIterator<Item = I>,
    place_of: impl Fn(&I) -> &Place,
    mut open: impl FnMut(&I) -> Result<T, PerfError>,
) -> Result<Vec<(I, T)>, PerfError> {
    let mut all = Vec::new();
    let mut passed_over = None;
    for one in each {
        match open(&one) {
            Ok(event) => all.push((one, event)),
            Err(error) if error.is_of_gone_thread() || place_of(&one).is_offline => {
                passed_over = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match passed_over {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

/// Opens an event, called `name`, at a place.
pub(super) fn open(attr: &Attr, place: &Place, name: &str) -> Result<PerfEvent, PerfError> {
    let opened = place.attr(attr).open_in(place.pid(), place.cpu(), None);
    opened.map_err(|source| place.refused(name, source))
}

/// Has an event at a place write into the ring of the one that was opened first there.
pub(super) fn share(
    event: &PerfEvent,
    first: &PerfEvent,
    name: &Event,
    place: &Place,
) -> Result<(), PerfError> {
    event.set_output(first.as_fd()).map_err(|source| {
        let (event, place) = (name.described(), place.to_string());
        PerfError::Share { event, place, source }
    })
}
