//! Why a PMU has no such event, and what it has.

use crate::error::descriptor_hint;
use crate::escape::Escaped;
use crate::nearest::suggestion;
use std::io;
use std::path::PathBuf;

/// Why what is written `PMU/TERMS/` is no event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmuError {
    /// The second slash is missing.
    #[error("`{}` has no end: it is written PMU/TERM=VALUE,.../", shown(text))]
    NotClosed {
        /// What there is.
        text: String,
    },
    /// There is no PMU of this name.
    #[error("there is no PMU `{}`{}", shown(pmu), near_or_all(near, all))]
    NoPmu {
        /// The name.
        pmu: String,
        /// Those that there are.
        all: Vec<String>,
        /// Those that are like it.
        near: Vec<String>,
    },
    /// It has no term, nor event, of this name.
    #[error(
        "`{}` is neither a term of {pmu} nor an event{}; its terms are {}{}",
        shown(term),
        suggestion(near),
        listed(terms),
        has_events(events)
    )]
    NoTerm {
        /// The PMU.
        pmu: String,
        /// The name.
        term: String,
        /// The terms that it has, with their bits.
        terms: Vec<String>,
        /// The events that it has.
        events: Vec<String>,
        /// Those that are like it.
        near: Vec<String>,
    },
    /// It is not said what a term of an event is, and the event is not without.
    #[error(
        "{event} of {pmu} needs to know `{}`: write {pmu}/{event},{}=NUMBER/",
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
    /// What a term is set to is none.
    #[error(
        "`{}` is no number that `{}` can be: write it like 60 or 0x3c",
        shown(value),
        shown(term)
    )]
    Number {
        /// The term.
        term: String,
        /// What it is set to.
        value: String,
    },
    /// How often samples are taken is not said by what says it.
    #[error("`{term}` needs a number from 1 on: write it like {term}=1000")]
    NoRate {
        /// The term.
        term: String,
    },
    /// No event is called so.
    #[error(
        "`{}` is no name of an event: write it like name=reads, of letters, digits and any of _-.:=+",
        shown(name)
    )]
    Name {
        /// What there is.
        name: String,
    },
    /// It is a term of `perf` that is done otherwise here.
    #[error("`{term}` is a term of perf that is none here: {instead}")]
    OfPerf {
        /// The term.
        term: String,
        /// How it is done.
        instead: &'static str,
    },
    /// The PMU is a pattern that is none.
    #[error("`{}` is no pattern of PMUs: {what}", shown(pattern))]
    Pattern {
        /// What was written.
        pattern: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// One event was asked for, and several PMUs have it.
    #[error("`{}` is {} events: {}; name one of them", shown(text), events.len(), listed(events))]
    Several {
        /// What was written.
        text: String,
        /// The events.
        events: Vec<String>,
    },
    /// What a term is set to has more bits than the term.
    #[error(
        "{value:#x} is too large for `{term}` of {pmu}, which is {format}: it is {most:#x} at most"
    )]
    TooLarge {
        /// The PMU.
        pmu: String,
        /// The term.
        term: String,
        /// What it is set to.
        value: u64,
        /// The bits that it has.
        format: String,
        /// The largest value.
        most: u64,
    },
    /// What the kernel says of it could not be read.
    #[error("cannot read {}: {source}{}", path.display(), descriptor_hint(source))]
    Sysfs {
        /// Where it says it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What the kernel says of it is not understood.
    #[error("{} has `{}`, which is not understood", path.display(), shown(text.trim()))]
    Malformed {
        /// Where it says it.
        path: PathBuf,
        /// What it says.
        text: String,
    },
}

fn shown(text: &str) -> Escaped<'_> {
    Escaped(text.as_bytes())
}

fn listed(names: &[String]) -> String {
    Escaped(names.join(", ").as_bytes()).to_string()
}

fn near_or_all(near: &[String], all: &[String]) -> String {
    match (near, all) {
        ([], []) => "; this machine has none".to_owned(),
        ([], all) => format!("; those of this machine are {}", listed(all)),
        (near, _) => suggestion(near),
    }
}

fn has_events(events: &[String]) -> String {
    if events.is_empty() {
        return ", and it has no named events".to_owned();
    }
    format!("; its events are {}", listed(events))
}
