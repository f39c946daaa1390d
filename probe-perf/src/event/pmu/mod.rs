//! Events of PMUs: `PMU/term=value,…/`, as the kernel describes them in sysfs
//! (`Documentation/ABI/testing/sysfs-bus-event_source-devices-*`).

mod sysfs;
mod term;
#[cfg(test)]
mod tests;

use super::PmuError;
use std::collections::BTreeSet;
use std::path::Path;
use sysfs::{Pmu, names, stems};
use term::{FREQUENCY, NAME, PERIOD, Term, WORDS, terms_of};

/// Where the kernel lists the PMUs.
pub(super) const DEVICES: &str = "/sys/bus/event_source/devices";

/// The rate of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rate {
    /// One sample per this many events.
    Period(u64),
    /// This many samples per second.
    Frequency(u64),
}

/// An event of a PMU (performance monitoring unit): of the CPU, of other hardware, or of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PmuEvent {
    /// The notation, from the PMU's name to the second slash.
    pub text: String,
    /// The name that the terms set, together with the PMU if several match.
    pub name: Option<String>,
    /// The number of the PMU: `type` in `struct perf_event_attr`.
    pub kind: u32,
    /// `config`, `config1`, `config2` and `config3` in `struct perf_event_attr`.
    pub words: [u64; 4],
    /// The rate of samples, if the terms set it.
    pub rate: Option<Rate>,
    /// The CPUs on which the event can be observed; `None` for all.
    pub cpus: Option<Vec<u32>>,
}

impl PmuEvent {
    /// Finds the event `PMU/TERMS/` of each matching PMU in `devices`.
    pub(crate) fn matching(devices: &Path, pmu: &str, terms: &str) -> Result<Vec<Self>, PmuError> {
        let (mut found, mut lacking) = (Vec::new(), None);
        for pmu in Pmu::matching(devices, pmu)? {
            match Self::of(&pmu, terms) {
                Ok(event) => found.push((pmu.name, event)),
                // Another PMU may have the term.
                Err(error @ PmuError::NoTerm { .. }) => lacking = lacking.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = lacking.filter(|_| found.is_empty()) {
            return Err(error);
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
        // The terms of the kernel's named events take their places.
        let described = |term: &Term<'_>| match term.value {
            None => pmu.event(term.name),
            Some(_) => Ok(None),
        };
        let described = typed.iter().map(described).collect::<Result<Vec<_>, _>>()?;
        let mut all = Vec::new();
        for (term, described) in typed.iter().zip(&described) {
            match described {
                Some(described) => all.extend(described_terms(pmu, term.name, described, &typed)?),
                None => all.push(*term),
            }
        }
        // Whole words come first, as for perf: the other terms set some of their bits.
        let (words, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|term| WORDS.contains(&term.name));
        for term in words.into_iter().chain(others) {
            event.set(pmu, term)?;
        }
        Ok(event)
    }

    /// Whether the event can be observed on a CPU. Reads sysfs again, since CPUs go online and offline.
    pub(super) fn is_observed_on(&self, devices: &Path, cpu: u32) -> bool {
        let name = self.text.split('/').next().unwrap_or_default();
        // If the file cannot be read, opening the event reports the error.
        let cpus = Pmu::of(devices, name).cpus().ok().flatten();
        cpus.is_none_or(|cpus| cpus.contains(&cpu))
    }

    fn set(&mut self, pmu: &Pmu, term: Term<'_>) -> Result<(), PmuError> {
        match term.name {
            PERIOD => self.rate = Some(Rate::Period(term.rate()?)),
            FREQUENCY => self.rate = Some(Rate::Frequency(term.rate()?)),
            NAME => self.name = Some(term.text()?.to_owned()),
            name => {
                if let Some(word) = WORDS.iter().position(|word| *word == name) {
                    self.words[word] = term.number()?;
                    return Ok(());
                }
                let Some(format) = pmu.format(name)? else {
                    return Err(match term.instead() {
                        Some(instead) => PmuError::Unsupported { term: name.to_owned(), instead },
                        None => pmu.no_term(name),
                    });
                };
                if term.value.is_none() && format.most() > 1 {
                    let (term, most) = (name.to_owned(), format.most());
                    return Err(PmuError::NoValue { pmu: pmu.name.clone(), term, most });
                }
                let value = term.number()?;
                if !format.put(value, &mut self.words) {
                    let (pmu, term) = (pmu.name.clone(), name.to_owned());
                    let (format, most) = (format.to_string(), format.most());
                    return Err(PmuError::TooLarge { pmu, term, value, format, most });
                }
            }
        }
        Ok(())
    }
}

/// The terms of one of the kernel's named events. The user must set those that it leaves open.
fn described_terms<'d>(
    pmu: &Pmu,
    event: &str,
    described: &'d str,
    typed: &[Term<'_>],
) -> Result<Vec<Term<'d>>, PmuError> {
    let (open, set): (Vec<_>, Vec<_>) =
        terms_of(described).partition(|term| term.value == Some("?"));
    let is_typed =
        |term: &Term<'_>| typed.iter().any(|own| own.name == term.name && own.value.is_some());
    match open.iter().find(|term| !is_typed(term)) {
        Some(term) => {
            let (event, term) = (event.to_owned(), term.name.to_owned());
            Err(PmuError::Open { pmu: pmu.name.clone(), event, term })
        }
        None => Ok(set),
    }
}

/// The number of a PMU: `type` in `struct perf_event_attr`.
///
/// # Errors
///
/// If this machine has no such PMU.
pub fn kind_of(pmu: &str) -> Result<u32, PmuError> {
    Pmu::of(DEVICES.as_ref(), pmu).kind()
}

/// The PMUs in `devices` that count for some of the cores, and list the CPUs of these.
pub(super) fn of_cores(devices: &Path) -> Result<Vec<String>, PmuError> {
    let mut all = names(devices)?;
    all.retain(|name| Pmu::of(devices, name).is_of_cores());
    Ok(all)
}

/// The PMUs in `devices`, up to the slash, and their named events; also the common names of PMUs that differ by a number.
/// Skips what cannot be read.
pub(super) fn known(devices: &Path) -> Vec<String> {
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
