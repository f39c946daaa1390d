//! Events by the name of what counts them: `PMU/term=value,…/`, as the kernel describes them in sysfs
//! (`Documentation/ABI/testing/sysfs-bus-event_source-devices-*`).

mod error;
mod format;
mod matching;
mod pmu;
mod term;
#[cfg(test)]
mod tests;

pub use error::PmuError;

use matching::stems;
use pmu::{Pmu, names};
use std::collections::BTreeSet;
use std::path::Path;
use term::{FREQUENCY, NAME, PERIOD, Term, WORDS, terms_of};

/// Where the kernel tells which there are.
const DEVICES: &str = "/sys/bus/event_source/devices";

/// How often samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rate {
    /// For every so many events.
    Period(u64),
    /// So many a second.
    Frequency(u64),
}

/// An event of a PMU (a performance monitoring unit), of the CPU, beside it, or of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PmuEvent {
    /// As it was written, from the PMU's name up to the second slash.
    text: String,
    name: Option<String>,
    kind: u32,
    words: [u64; 4],
    rate: Option<Rate>,
    cpus: Option<Vec<u32>>,
}

impl PmuEvent {
    /// Finds what `PMU` and `TERMS` of `PMU/TERMS/` mean on this machine: an event, or one of each PMU of a sort.
    pub(super) fn matching(pmu: &str, terms: &str) -> Result<Vec<Self>, PmuError> {
        Self::matching_in(DEVICES.as_ref(), pmu, terms)
    }

    pub(super) fn matching_in(
        devices: &Path,
        pmu: &str,
        terms: &str,
    ) -> Result<Vec<Self>, PmuError> {
        let (mut found, mut lacking) = (Vec::new(), None);
        for pmu in Pmu::matching(devices, pmu)? {
            match Self::of(&pmu, terms) {
                Ok(event) => found.push((pmu.name, event)),
                // Another one may have it.
                Err(error @ PmuError::NoTerm { .. }) => lacking = lacking.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        match lacking {
            Some(error) if found.is_empty() => return Err(error),
            _ => {}
        }
        if found.len() > 1 {
            for (pmu, event) in &mut found {
                event.name = event.name.take().map(|name| format!("{pmu}/{name}/"));
            }
        }
        Ok(found.into_iter().map(|(_, event)| event).collect())
    }

    fn of(pmu: &Pmu, terms: &str) -> Result<Self, PmuError> {
        let text = format!("{}/{terms}/", pmu.name);
        let (kind, cpus) = (pmu.kind()?, pmu.cpus()?);
        let mut event = Self { text, name: None, kind, words: [0; 4], rate: None, cpus };
        let typed: Vec<_> = terms_of(terms).collect();
        for term in &typed {
            let name = term.value.is_none().then(|| pmu.event(term.name)).transpose()?.flatten();
            match name {
                Some(described) => event.describe(pmu, term.name, &described, &typed)?,
                None => event.set(pmu, *term)?,
            }
        }
        Ok(event)
    }

    /// What it is called, if the terms say it; with its PMU, if there are several.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The number of the PMU: `type` of `struct perf_event_attr`.
    pub fn kind(&self) -> u32 {
        self.kind
    }

    /// `config`, `config1`, `config2` and `config3` of `struct perf_event_attr`.
    pub fn words(&self) -> [u64; 4] {
        self.words
    }

    /// How many events a sample stands for, if the terms say it.
    pub fn period(&self) -> Option<u64> {
        match self.rate {
            Some(Rate::Period(period)) => Some(period),
            _ => None,
        }
    }

    /// How many samples are taken a second, if the terms say it.
    pub fn frequency(&self) -> Option<u64> {
        match self.rate {
            Some(Rate::Frequency(frequency)) => Some(frequency),
            _ => None,
        }
    }

    /// How often samples are taken, if the terms say it.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// The CPUs on which it is observed, where that is not all of them.
    pub fn cpus(&self) -> Option<&[u32]> {
        self.cpus.as_deref()
    }

    /// Whether it is observed on a CPU, by what the kernel says now, for CPUs come and go.
    pub(super) fn is_observed_on(&self, cpu: u32) -> bool {
        self.is_observed_in(DEVICES.as_ref(), cpu)
    }

    fn is_observed_in(&self, devices: &Path, cpu: u32) -> bool {
        let name = self.text.split('/').next().unwrap_or_default();
        // What cannot be read is no reason not to try.
        let cpus = Pmu::of(devices, name).cpus().ok().flatten();
        cpus.is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// As it was written, without where it is observed.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Takes the terms that the kernel describes one of its events by. What it leaves open, was typed.
    fn describe(
        &mut self,
        pmu: &Pmu,
        event: &str,
        described: &str,
        typed: &[Term<'_>],
    ) -> Result<(), PmuError> {
        for term in terms_of(described) {
            if term.value != Some("?") {
                self.set(pmu, term)?;
            } else if !typed.iter().any(|own| own.name == term.name && own.value.is_some()) {
                let (event, term) = (event.to_owned(), term.name.to_owned());
                return Err(PmuError::Open { pmu: pmu.name.clone(), event, term });
            }
        }
        Ok(())
    }

    fn set(&mut self, pmu: &Pmu, term: Term<'_>) -> Result<(), PmuError> {
        if term.name == PERIOD {
            self.rate = Some(Rate::Period(term.rate()?));
        } else if term.name == FREQUENCY {
            self.rate = Some(Rate::Frequency(term.rate()?));
        } else if term.name == NAME {
            self.name = Some(term.text()?.to_owned());
        } else if let Some(word) = WORDS.iter().position(|word| *word == term.name) {
            self.words[word] = term.number()?;
        } else {
            let Some(format) = pmu.format(term.name)? else {
                return Err(match term.instead() {
                    Some(instead) => PmuError::OfPerf { term: term.name.to_owned(), instead },
                    None => pmu.no_term(term.name),
                });
            };
            let value = term.number()?;
            if !format.put(value, &mut self.words) {
                let (pmu, term) = (pmu.name.clone(), term.name.to_owned());
                let (format, most) = (format.to_string(), format.most());
                return Err(PmuError::TooLarge { pmu, term, value, format, most });
            }
        }
        Ok(())
    }
}

/// The number of a PMU that may be there: `type` of `struct perf_event_attr`.
#[cfg(feature = "trace")]
pub(crate) fn kind_of(pmu: &str) -> Result<u32, PmuError> {
    Pmu::of(DEVICES.as_ref(), pmu).kind()
}

/// The PMUs of this machine, each as far as its slash, and the events that they have names for; and of those of one
/// sort, what all of them are called together. What cannot be read is not known.
pub(super) fn known() -> Vec<String> {
    known_in(DEVICES.as_ref())
}

fn known_in(devices: &Path) -> Vec<String> {
    let all = names(devices).unwrap_or_default();
    let events_of = |pmu: &str| Pmu::of(devices, pmu).events();
    let own = all.iter().map(|pmu| (pmu.as_str(), events_of(pmu)));
    let together = stems(&all).into_iter().map(|(stem, pmus)| {
        let events: BTreeSet<_> = pmus.into_iter().flat_map(events_of).collect();
        (stem, events.into_iter().collect())
    });
    let written = |(pmu, events): (&str, Vec<String>)| {
        let events = events.into_iter().map(move |event| format!("{pmu}/{event}/"));
        [format!("{pmu}/")].into_iter().chain(events).collect::<Vec<_>>()
    };
    own.chain(together).flat_map(written).collect()
}
