//! The names that an event needs.

use crate::trace::event::{TraceEvent, Value};
use crate::trace::output::Names;
use crate::trace::probe::Probe;
use crate::trace::shape::Shape;
use crate::trace::symbolize::Symbols;

/// Looks up every address that the event has, as outputs do.
pub(super) fn look_up(event: &TraceEvent<'_>, probe: &Probe, symbols: &mut Symbols) {
    let mut names = Names::of(event, symbols);
    for (field, value) in event.values(probe) {
        match value {
            Value::Stack(addresses) => drop(names.stack(&field.shape, addresses)),
            Value::Integer(address) if field.shape == Shape::Symbol => drop(names.symbol(address)),
            _ => {}
        }
    }
}
