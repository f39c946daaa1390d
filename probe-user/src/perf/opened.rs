//! Events that are open at each place of a scope.

use super::error::PerfError;
use super::event::Event;
use super::place::Place;
use super::scope::Scope;
use crate::sys::perf_event::{Attr, PerfEvent};

/// What `open` opens of these events, at each place of a scope. Threads that have ended since they were found are
/// none.
pub(super) fn opened<T>(
    scope: &Scope,
    events: &[Event],
    open: impl Fn(&Place) -> Result<T, PerfError>,
) -> Result<Vec<(Place, T)>, PerfError> {
    opened_at(scope.places_of(events, false)?, open)
}

/// The same, at these places.
pub(super) fn opened_at<T>(
    places: Vec<Place>,
    mut open: impl FnMut(&Place) -> Result<T, PerfError>,
) -> Result<Vec<(Place, T)>, PerfError> {
    let mut all = Vec::new();
    let mut ended = None;
    for place in places {
        match open(&place) {
            Ok(event) => all.push((place, event)),
            Err(error) if error.is_of_gone_thread() => ended = Some(error),
            Err(error) => return Err(error),
        }
    }
    match ended {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

/// Opens an event, called `name`, at a place.
pub(super) fn open(attr: &Attr, place: &Place, name: &str) -> Result<PerfEvent, PerfError> {
    let opened = attr.open_in(place.pid(), place.cpu(), None);
    opened.map_err(|source| place.refused(name, source))
}
