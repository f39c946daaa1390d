//! Why a text is not an event.

use crate::nearest::{nearest, suggestion};
use crate::pattern::BadPattern;
use probe_sys::escape::Escaped;
use probe_sys::hint::descriptor_hint;
use std::io;
use std::path::PathBuf;

/// Why a text does not name an event of this machine.
///
/// The message contains the cause, which [`source()`](std::error::Error::source) therefore does not return.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// No event has this name.
    #[error("there is no event `{}`{}", shown(name), near_or_forms(near))]
    Unknown {
        /// The name.
        name: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// The text after the name is not a modifier.
    #[error("`{}` is not a modifier: use u, k or uk", shown(.0))]
    Modifier(String),
    /// The named PMU has no such event.
    #[error(transparent)]
    Pmu(#[from] PmuError),
    /// The event's terms set a rate of samples, but it takes none.
    #[error("`{0}` takes no samples here, so leave out the term `freq`")]
    NotSampled(String),
    /// Reading the id of a tracepoint failed.
    #[error("cannot read the tracepoint's id: {}{}", .0, tracefs_hint(.0))]
    Tracefs(io::Error),
}

/// Similar names, or what names look like.
fn near_or_forms(near: &[String]) -> String {
    match near {
        [] => "; events have perf's names: cpu-clock, page-faults, CATEGORY:TRACEPOINT, PMU/TERM=VALUE/".into(),
        near => suggestion(near),
    }
}

/// Why `PMU/TERMS/` is not an event.
///
/// The message contains the cause, which [`source()`](std::error::Error::source) therefore does not return.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmuError {
    /// The text lacks the second slash.
    #[error("`{}` lacks the second slash: write PMU/TERM=VALUE,.../", shown(.0))]
    NotClosed(String),
    /// There is no PMU of this name.
    #[error("there is no PMU `{}`{}", shown(pmu), near_or_all(pmu, all))]
    NoPmu {
        /// The name.
        pmu: String,
        /// The PMUs of this machine.
        all: Vec<String>,
    },
    /// The PMU has neither a term nor an event with this name.
    #[error(
        "`{}` is neither a term nor an event of {pmu}, whose terms are {}{}{}",
        shown(term),
        listed(terms),
        has_events(events),
        suggestion(near)
    )]
    NoTerm {
        /// The PMU.
        pmu: String,
        /// The name.
        term: String,
        /// Its terms, with their bits.
        terms: Vec<String>,
        /// Its named events.
        events: Vec<String>,
        /// Similar names.
        near: Vec<String>,
    },
    /// A named event leaves a term open, and the text does not set it.
    #[error(
        "{event} of {pmu} requires the term `{}`: write {pmu}/{event},{}=NUMBER/",
        shown(term),
        shown(term)
    )]
    Open {
        /// The PMU.
        pmu: String,
        /// The event.
        event: String,
        /// The term.
        term: String,
    },
    /// The value of a term is not a number.
    #[error(
        "`{}` is not a valid number for `{}`: write it like 60 or 0x3c",
        shown(value),
        shown(term)
    )]
    Number {
        /// The term.
        term: String,
        /// The value.
        value: String,
    },
    /// The term, which is the rate of samples, has no value, or is 0.
    #[error("`{0}` requires a number greater than 0: write it like {0}=1000")]
    NoRate(String),
    /// The name for an event has invalid characters.
    #[error(
        "`{}` is not a valid event name: write it like name=reads, with letters, digits and any of _-.:=+",
        shown(.0)
    )]
    Name(String),
    /// The term exists in `perf` only.
    #[error("the term `{term}` of perf is not supported: {instead}")]
    Unsupported {
        /// The term.
        term: String,
        /// What to use instead.
        instead: &'static str,
    },
    /// The PMU is an invalid pattern.
    #[error("`{}` is not a valid pattern of PMUs: {}", shown(&.0.pattern), .0.what)]
    Pattern(BadPattern),
    /// The text stands for several events where one is required.
    #[error("`{}` stands for {} events: {}; name one of them", shown(text), events.len(), listed(events))]
    Several {
        /// The text.
        text: String,
        /// The events.
        events: Vec<String>,
    },
    /// A term of several bits has no value.
    #[error("`{term}` of {pmu} has no value: write {term}=VALUE, from 0 to {most:#x}")]
    NoValue {
        /// The PMU.
        pmu: String,
        /// The term.
        term: String,
        /// The largest value.
        most: u64,
    },
    /// The value of a term does not fit into its bits.
    #[error(
        "{value:#x} is too large for `{term}` of {pmu}, which has the bits {format}: the maximum is {most:#x}"
    )]
    TooLarge {
        /// The PMU.
        pmu: String,
        /// The term.
        term: String,
        /// The value.
        value: u64,
        /// Its bits.
        format: String,
        /// The largest value.
        most: u64,
    },
    /// Reading a file in sysfs failed.
    #[error("cannot read {}: {cause}{}", path.display(), descriptor_hint(cause))]
    Sysfs {
        /// The file.
        path: PathBuf,
        /// The error of the file.
        cause: io::Error,
    },
    /// The contents of a file in sysfs are not understood.
    #[error("{} contains `{}`, which is not understood", path.display(), shown(text.trim()))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Its contents.
        text: String,
    },
}

fn tracefs_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            ". Run as root, or let the user read /sys/kernel/tracing/events"
        }
        _ => descriptor_hint(error),
    }
}

fn shown(text: &str) -> Escaped<'_> {
    Escaped(text.as_bytes())
}

fn listed(names: &[String]) -> String {
    Escaped(names.join(", ").as_bytes()).to_string()
}

fn near_or_all(pmu: &str, all: &[String]) -> String {
    match (&*nearest(pmu, all.iter().cloned()), all) {
        (_, []) => "; this machine has no PMUs".to_owned(),
        ([], all) => format!("; the PMUs of this machine are {}", listed(all)),
        (near, _) => suggestion(near),
    }
}

fn has_events(events: &[String]) -> String {
    if events.is_empty() {
        return ", and which has no named events".to_owned();
    }
    format!(", and whose events are {}", listed(events))
}
