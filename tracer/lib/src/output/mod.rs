//! Writing trace events, for people and for programs.

/// Appends text to a `Vec`. Writing to a `Vec` cannot fail.
macro_rules! put {
    ($out:expr, $($text:tt)*) => {{
        use std::io::Write;
        let _ = write!($out, $($text)*);
    }};
}

mod clock;
mod flame;
mod form;
#[cfg(test)]
mod hostile;
mod json;
mod jsonl;
mod labels;
mod latency;
mod names;
mod origin;
mod perfetto;
pub(crate) mod pieces;
mod printer;
mod record_lines;
#[cfg(test)]
pub(crate) mod schema;
mod stacks;
mod table;
mod value;
mod wall_clock;

pub use clock::{Time, load_time_zone};
pub use labels::{Beside, labels};
pub use latency::LatencyFormat;
pub(crate) use names::Names;
pub use origin::Origin;
pub use printer::Printer;
pub use record_lines::RecordLines;
pub use stacks::StackFormat;
#[cfg(test)]
pub(crate) use wall_clock::ClockChange;
pub use wall_clock::ClockChanges;
pub(crate) use wall_clock::ClockNotes;

use probe_user::CpuChange;
use serde::Serialize;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Aligned columns, one event on each line.
    #[default]
    Table,
    /// One JSON object per line, as described by `events.schema.json`: first what is traced, then the
    /// events, with a line wherever events were lost, and finally the ledger.
    ///
    /// Names of tasks and files are strings. Characters that a terminal would not print as themselves are
    /// written as `\u` escapes, which JSON parsers decode; invalid UTF-8 becomes U+FFFD, as in
    /// [`String::from_utf8_lossy`].
    Jsonl,
    /// Chrome's trace event format, which Perfetto and `chrome://tracing` show as a timeline with a track for
    /// each thread. A field `latency`, unsigned and in nanoseconds, turns an event into a slice. The clock is
    /// always `CLOCK_MONOTONIC`. Truncated traces can be opened, too.
    Perfetto,
}

/// A value as one line of JSON. Characters that a terminal would not print as themselves are escapes, as in
/// [`Format::Jsonl`].
pub fn json_line(value: &impl Serialize) -> String {
    let mut line = Vec::new();
    json::line(&mut line, value);
    // Nothing but UTF-8 is written.
    String::from_utf8_lossy(&line).into_owned()
}

/// Logs that a CPU went online or offline.
pub(crate) fn log_cpu_change(change: &CpuChange<'_>) {
    match change {
        CpuChange::Uncovered { .. } => log::warn!("{change}"),
        _ => log::info!("{change}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::clock::Stamp;
    use super::form::Form;
    use super::names::Names;
    use crate::resolve::PlannedField;
    use crate::resolve::event::Value;
    use crate::resolve::event::tests::Hit;
    use crate::resolve::names::ValueNames;
    use crate::resolve::probe::Probe;
    use crate::resolve::shape::{Enumeration, Field, Shape};
    use crate::symbolize::Symbols;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Writes an event without looking up names of addresses.
    pub(in crate::output) fn write(
        form: &mut impl Form,
        out: &mut Vec<u8>,
        hit: &Hit,
        probe: &Probe,
        stamp: Stamp<'_>,
    ) {
        let (event, mut symbols) = (hit.event(), Symbols::none());
        form.event(out, &event, probe, stamp, &mut Names::of(&event, &mut symbols));
    }

    /// Any shape.
    pub(crate) fn shapes(
        enumerations: impl Strategy<Value = Enumeration>,
    ) -> impl Strategy<Value = Shape> {
        let others = prop::sample::select(vec![
            Shape::Unsigned,
            Shape::Signed,
            Shape::Hex,
            Shape::Bool,
            Shape::Char,
            Shape::Duration,
            Shape::Pointer,
            Shape::PointerOrError,
            Shape::Symbol,
            Shape::Text,
            Shape::Bytes,
            Shape::Buffer,
            Shape::Bits,
            Shape::List { size: 4, of: Box::new(Shape::Signed) },
            Shape::List { size: 0, of: Box::new(Shape::Symbol) },
            Shape::KernelStack,
            Shape::UserStack,
            Shape::Result,
        ]);
        prop_oneof![
            1 => enumerations.prop_map(|enumeration| Shape::Enum(Arc::new(enumeration))),
            3 => others,
        ]
    }

    /// A probe whose field `state` has a name for 1, whose `address` is a socket address, and whose `next` is a value
    /// of an enumeration.
    pub(in crate::output) fn named_probe() -> Probe {
        let states = Enumeration { is_signed: true, names: vec![(1, "SLEEPING".to_owned())] };
        let state = ValueNames::of_enumeration(&states);
        let fields = [
            ("state", Shape::Unsigned, Some(state)),
            ("address", Shape::Bytes, Some(ValueNames::SocketAddress)),
            ("next", Shape::Enum(Arc::new(states)), None),
        ];
        let fields = fields.into_iter().enumerate().map(|(slot, (name, shape, names))| {
            let field = Field { name: name.to_owned(), shape, names: names.map(Arc::new) };
            PlannedField::new(field, slot as u8)
        });
        Probe::new("f".parse().unwrap(), fields.collect())
    }

    /// An event of that probe.
    pub(in crate::output) fn named_hit(state: u64) -> Hit {
        let address = [libc::AF_INET as u8, 0, 0, 80, 127, 0, 0, 1];
        let (state, address) = (Value::Integer(state), Value::Bytes(&address));
        Hit::new(b"a", 0, &[state, address, state])
    }

    /// A probe with these fields, in the order of their words.
    pub(crate) fn probe(spec: &str, fields: &[(&str, Shape)]) -> Probe {
        let fields = fields.iter().enumerate().map(|(slot, (name, shape))| {
            let field = Field { name: (*name).to_owned(), shape: shape.clone(), names: None };
            PlannedField::new(field, slot as u8)
        });
        Probe::new(spec.parse().unwrap(), fields.collect())
    }
}
