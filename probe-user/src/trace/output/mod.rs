//! Writing trace events for people and for programs.

mod clock;
mod flame;
mod form;
mod json;
mod jsonl;
mod latency;
mod lines;
mod names;
mod perfetto;
mod printer;
mod record_lines;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod schema;
mod stacks;
mod table;
mod value;

pub use clock::Time;
pub(super) use clock::realtime_offset;
pub use latency::LatencyFormat;
pub(super) use names::Names;
pub use printer::Printer;
pub use record_lines::RecordLines;
pub use stacks::StackFormat;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Aligned columns, one event a line.
    #[default]
    Table,
    /// One JSON object a line, each as `docs/events.schema.json` describes it: first what is traced,
    /// then events, and what was lost where it is missing, and last what became of every event.
    ///
    /// Names of tasks and files are strings: whatever a terminal would not show as itself is
    /// written as `\u` escapes, which a JSON parser turns back; what is not UTF-8 is U+FFFD, as
    /// [`String::from_utf8_lossy`] has it.
    Jsonl,
    /// Chrome's trace event format, which Perfetto and `chrome://tracing` show as a timeline: threads
    /// are tracks. A field `latency`, unsigned and in nanoseconds, makes a slice of an event. The clock
    /// is always `CLOCK_MONOTONIC`. A trace that is cut off can be opened, too.
    Perfetto,
}

#[cfg(test)]
pub(super) mod tests {
    use super::clock::Stamp;
    use super::form::Form;
    use super::names::Names;
    use crate::trace::event::tests::Hit;
    use crate::trace::probe::Probe;
    use crate::trace::resolve::PlannedField;
    use crate::trace::shape::{Field, Shape};
    use crate::trace::symbolize::Symbols;

    /// Writes an event whose addresses have no names.
    pub(super) fn write(
        form: &mut impl Form,
        out: &mut Vec<u8>,
        hit: &Hit,
        probe: &Probe,
        stamp: Stamp<'_>,
    ) {
        let (event, mut symbols) = (hit.event(), Symbols::none());
        form.event(out, &event, probe, stamp, &mut Names::of(&event, &mut symbols));
    }

    /// A probe with these fields, in the order of their words.
    pub(crate) fn probe(spec: &str, fields: &[(&str, Shape)]) -> Probe {
        let fields = fields.iter().enumerate().map(|(slot, (name, shape))| PlannedField {
            field: Field { name: (*name).to_owned(), shape: shape.clone() },
            slot: slot as u8,
        });
        Probe::new(spec.parse().unwrap(), fields.collect())
    }
}
