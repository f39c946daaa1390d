//! Output formats.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use probe_tracer::output::{Format, LatencyFormat, StackFormat, Time};
use std::path::Path;

/// The values of an option: their names, of which only the first is shown, and their descriptions.
pub(super) type Values<T> = [(&'static [&'static str], &'static str, T)];

pub(super) const EVENTS: &Values<Format> = &[
    (&["table"], "Aligned columns", Format::Table),
    (&["jsonl"], "One JSON object per line", Format::Jsonl),
    (&["perfetto"], "A timeline for ui.perfetto.dev or chrome://tracing", Format::Perfetto),
];

/// Events or their stacks, in a format of either.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplayFormat {
    Events(Format),
    Stacks(StackFormat),
}

pub(super) const REPLAY: &Values<ReplayFormat> = &[
    (&["table"], "Aligned columns", ReplayFormat::Events(Format::Table)),
    (&["jsonl"], "One JSON object per line", ReplayFormat::Events(Format::Jsonl)),
    (
        &["perfetto"],
        "A timeline for ui.perfetto.dev or chrome://tracing",
        ReplayFormat::Events(Format::Perfetto),
    ),
    (
        &["folded"],
        "A line for each stack, as input for flame-graph programs",
        ReplayFormat::Stacks(StackFormat::Folded),
    ),
    (&["svg"], "A flame graph", ReplayFormat::Stacks(StackFormat::Svg)),
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum CountFormat {
    Table,
    Jsonl,
}

pub(super) const COUNTS: &Values<CountFormat> = &[
    (&["table"], "Aligned columns", CountFormat::Table),
    (&["jsonl"], "One JSON object per line", CountFormat::Jsonl),
];

pub(super) const LATENCIES: &Values<LatencyFormat> = &[
    (&["table"], "A histogram for each function", LatencyFormat::Table),
    (&["jsonl", "json"], "One JSON object per function, each on a line", LatencyFormat::Jsonl),
    (&["svg"], "An SVG picture", LatencyFormat::Svg),
];

pub(super) const STACKS: &Values<StackFormat> = &[
    (&["table"], "A line for each function, the most frequent stack first", StackFormat::Table),
    (&["folded"], "A line for each stack, as input for flame-graph programs", StackFormat::Folded),
    (&["svg"], "A flame graph", StackFormat::Svg),
];

pub(super) const CLOCKS: &Values<Time> = &[
    (&["mono"], "CLOCK_MONOTONIC: the time since the system started", Time::Mono),
    (&["local"], "The local wall clock; in JSON, as an additional member `local`", Time::Local),
    (
        &["delta"],
        "The time since the previous event; in JSON, as an additional member `delta`, in nanoseconds",
        Time::Delta,
    ),
];

/// The value that a file's extension names.
pub(super) fn named_by<T: Copy>(values: &'static Values<T>, file: &Path) -> Option<T> {
    let named = file.extension()?.to_str()?;
    value_named(values, named)
}

fn value_named<T: Copy>(values: &'static Values<T>, named: &str) -> Option<T> {
    values.iter().find(|(names, ..)| names.contains(&named)).map(|&(.., value)| value)
}

/// A parser of these values.
pub(super) fn one_of<T>(values: &'static Values<T>) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync,
{
    let possible = values
        .iter()
        .map(|(names, help, _)| PossibleValue::new(names[0]).aliases(&names[1..]).help(*help));
    PossibleValuesParser::new(possible)
        .try_map(|name| value_named(values, &name).ok_or("no such value"))
}
