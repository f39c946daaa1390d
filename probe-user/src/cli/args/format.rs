//! How what is told is written.

use clap::ValueEnum;
use probe_user::trace::output;

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns
    #[default]
    Table,
    /// One JSON object a line
    Jsonl,
    /// A timeline for ui.perfetto.dev or chrome://tracing
    Perfetto,
}

impl From<Format> for output::Format {
    fn from(format: Format) -> Self {
        match format {
            Format::Table => Self::Table,
            Format::Jsonl => Self::Jsonl,
            Format::Perfetto => Self::Perfetto,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ReplayFormat {
    /// Aligned columns
    #[default]
    Table,
    /// One JSON object a line
    Jsonl,
    /// A timeline for ui.perfetto.dev or chrome://tracing
    Perfetto,
    /// A line for each way that led to a hit, for programs that draw flame graphs
    Folded,
    /// A flame graph
    Svg,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum CountFormat {
    /// Aligned columns
    #[default]
    Table,
    /// One JSON object a line
    Jsonl,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LatencyFormat {
    /// A histogram for each function
    #[default]
    Table,
    /// One JSON object a line, for each function
    #[value(alias = "json")]
    Jsonl,
    /// A picture
    Svg,
}

impl From<LatencyFormat> for output::LatencyFormat {
    fn from(format: LatencyFormat) -> Self {
        match format {
            LatencyFormat::Table => Self::Table,
            LatencyFormat::Jsonl => Self::Jsonl,
            LatencyFormat::Svg => Self::Svg,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum StackFormat {
    /// A line for each function, the most frequent way first
    #[default]
    Table,
    /// A line for each way, for programs that draw flame graphs
    Folded,
    /// A flame graph
    Svg,
}

impl From<StackFormat> for output::StackFormat {
    fn from(format: StackFormat) -> Self {
        match format {
            StackFormat::Table => Self::Table,
            StackFormat::Folded => Self::Folded,
            StackFormat::Svg => Self::Svg,
        }
    }
}

/// How times are shown.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Time {
    /// CLOCK_MONOTONIC: since the system was started
    #[default]
    Mono,
    /// The clock on the wall, here; in JSON, as a second member `local`
    Local,
    /// Since the event before; in JSON, as a second member `delta`, in nanoseconds
    Delta,
}

impl From<Time> for output::Time {
    fn from(time: Time) -> Self {
        match time {
            Time::Mono => Self::Mono,
            Time::Local => Self::Local,
            Time::Delta => Self::Delta,
        }
    }
}
