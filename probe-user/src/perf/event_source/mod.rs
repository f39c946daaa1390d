//! Events by the name of what counts them: `PMU/term=value,…/`, as the kernel describes them in sysfs
//! (`Documentation/ABI/testing/sysfs-bus-event_source-devices-*`).

mod error;
mod format;
#[cfg(test)]
mod tests;

pub use error::PmuError;

use crate::cpus;
use crate::nearest::nearest;
use format::Format;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel tells which there are.
const DEVICES: &str = "/sys/bus/event_source/devices";

/// What files of `events/` end in that tell more of an event, and are none.
const BESIDES_EVENTS: [&str; 4] = [".scale", ".unit", ".per-pkg", ".snapshot"];

/// Terms that every PMU has: the words of the attribute, and how many events a sample stands for.
const WORDS: [&str; 4] = ["config", "config1", "config2", "config3"];
const PERIOD: &str = "period";

/// An event of a PMU (a performance monitoring unit), of the CPU, beside it, or of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PmuEvent {
    /// As it was written, from the PMU's name up to the second slash.
    text: String,
    kind: u32,
    words: [u64; 4],
    period: u64,
    cpus: Option<Vec<u32>>,
}

impl PmuEvent {
    /// Finds what `PMU` and `TERMS` of `PMU/TERMS/` mean on this machine.
    pub(super) fn find(pmu: &str, terms: &str) -> Result<Self, PmuError> {
        Self::find_in(DEVICES.as_ref(), pmu, terms)
    }

    pub(super) fn find_in(devices: &Path, pmu: &str, terms: &str) -> Result<Self, PmuError> {
        let pmu = Pmu::find(devices, pmu)?;
        let text = format!("{}/{terms}/", pmu.name);
        let (kind, cpus) = (pmu.kind()?, pmu.cpus()?);
        let mut event = Self { text, kind, words: [0; 4], period: 0, cpus };
        let typed: Vec<_> = terms_of(terms).collect();
        for term in &typed {
            let name = term.value.is_none().then(|| pmu.event(term.name)).transpose()?.flatten();
            match name {
                Some(described) => event.describe(&pmu, term.name, &described, &typed)?,
                None => event.set(&pmu, *term)?,
            }
        }
        Ok(event)
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
        (self.period != 0).then_some(self.period)
    }

    /// The CPUs on which it is observed, where that is not all of them.
    pub fn cpus(&self) -> Option<&[u32]> {
        self.cpus.as_deref()
    }

    /// Whether it is observed on a CPU, by what the kernel says now, for CPUs come and go.
    #[cfg(feature = "trace")]
    pub(super) fn is_observed_on(&self, cpu: u32) -> bool {
        self.is_observed_in(DEVICES.as_ref(), cpu)
    }

    #[cfg(feature = "trace")]
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
            self.period = term.number()?;
        } else if let Some(word) = WORDS.iter().position(|word| *word == term.name) {
            self.words[word] = term.number()?;
        } else {
            let Some(format) = pmu.format(term.name)? else { return Err(pmu.no_term(term.name)) };
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

/// The PMUs of this machine, each as far as its slash, and the events that they have names for. What cannot be
/// read is not known.
pub(super) fn known() -> Vec<String> {
    known_in(DEVICES.as_ref())
}

fn known_in(devices: &Path) -> Vec<String> {
    let of = |pmu: &String| {
        let mut events = names(&devices.join(pmu).join("events")).unwrap_or_default();
        events.retain(|event| !is_beside_event(event));
        let events = events.into_iter().map(|event| format!("{pmu}/{event}/")).collect::<Vec<_>>();
        [format!("{pmu}/")].into_iter().chain(events)
    };
    names(devices).unwrap_or_default().iter().flat_map(of).collect()
}

/// A part of what is between the slashes.
#[derive(Clone, Copy, Debug)]
struct Term<'t> {
    name: &'t str,
    value: Option<&'t str>,
}

impl Term<'_> {
    /// What it is set to: 1, if that is not said.
    fn number(&self) -> Result<u64, PmuError> {
        let Some(value) = self.value else { return Ok(1) };
        let (digits, radix) = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None => (value, 10),
        };
        let number = u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'));
        let none = || PmuError::Number { term: self.name.into(), value: value.into() };
        number.ok_or_else(none)
    }
}

fn terms_of(text: &str) -> impl Iterator<Item = Term<'_>> {
    let term = |part| match str::split_once(part, '=') {
        Some((name, value)) => Term { name, value: Some(value) },
        None => Term { name: part, value: None },
    };
    text.trim().split(',').filter(|part| !part.is_empty()).map(term)
}

/// A PMU, as sysfs has it.
struct Pmu {
    name: String,
    folder: PathBuf,
}

impl Pmu {
    fn of(devices: &Path, name: &str) -> Self {
        Self { name: name.to_owned(), folder: devices.join(name) }
    }

    fn find(devices: &Path, name: &str) -> Result<Self, PmuError> {
        let all = names(devices)?;
        if all.iter().any(|own| own == name) {
            return Ok(Self::of(devices, name));
        }
        let near = nearest(name, all.iter().cloned());
        Err(PmuError::NoPmu { pmu: name.to_owned(), all, near })
    }

    fn kind(&self) -> Result<u32, PmuError> {
        let path = self.folder.join("type");
        let text = fs::read_to_string(&path).map_err(|source| failed(&path, source))?;
        text.trim().parse().map_err(|_| PmuError::Malformed { path, text })
    }

    /// The CPUs that observe for others, too, or that have it at all.
    fn cpus(&self) -> Result<Option<Vec<u32>>, PmuError> {
        for name in ["cpumask", "cpus"] {
            let path = self.folder.join(name);
            let Some(text) = read(&path)? else { continue };
            let Ok(cpus) = cpus::parse(&text) else {
                return Err(PmuError::Malformed { path, text });
            };
            return Ok(Some(cpus).filter(|cpus| !cpus.is_empty()));
        }
        Ok(None)
    }

    fn format(&self, term: &str) -> Result<Option<Format>, PmuError> {
        let Some((path, text)) = self.file("format", term)? else { return Ok(None) };
        match text.parse() {
            Ok(format) => Ok(Some(format)),
            Err(()) => Err(PmuError::Malformed { path, text }),
        }
    }

    /// The terms that an event stands for.
    fn event(&self, name: &str) -> Result<Option<String>, PmuError> {
        if is_beside_event(name) {
            return Ok(None);
        }
        Ok(self.file("events", name)?.map(|(_, text)| text))
    }

    /// A file that is in one of its folders: a name that is none is that of no file.
    fn file(&self, folder: &str, name: &str) -> Result<Option<(PathBuf, String)>, PmuError> {
        let folder = self.folder.join(folder);
        if !names(&folder)?.iter().any(|own| own == name) {
            return Ok(None);
        }
        let path = folder.join(name);
        Ok(read(&path)?.map(|text| (path, text)))
    }

    fn no_term(&self, term: &str) -> PmuError {
        // What cannot be read is no reason to say nothing.
        let all = |folder: &str| names(&self.folder.join(folder)).unwrap_or_default();
        let (own, mut events) = (all("format"), all("events"));
        events.retain(|event| !is_beside_event(event));
        let terms = || own.iter().map(String::as_str).chain(WORDS).chain([PERIOD]);
        let near = nearest(term, terms().map(str::to_owned).chain(events.iter().cloned()));
        let with_format = |term: &str| match self.format(term) {
            Ok(Some(format)) => format!("{term} ({format})"),
            _ => term.to_owned(),
        };
        let terms = terms().map(with_format).collect();
        PmuError::NoTerm { pmu: self.name.clone(), term: term.to_owned(), terms, events, near }
    }
}

fn is_beside_event(name: &str) -> bool {
    BESIDES_EVENTS.iter().any(|end| name.ends_with(end))
}

/// What a folder has, in order; nothing, if there is none.
fn names(folder: &Path) -> Result<Vec<String>, PmuError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|source| failed(folder, source))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
    let mut names: Vec<_> = entries
        .filter_map(|entry| name(entry).transpose())
        .collect::<io::Result<_>>()
        .map_err(|source| failed(folder, source))?;
    names.sort();
    Ok(names)
}

/// What a file has, if there is one.
fn read(path: &Path) -> Result<Option<String>, PmuError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed(path, source)),
    }
}

fn failed(path: &Path, source: io::Error) -> PmuError {
    PmuError::Sysfs { path: path.to_owned(), source }
}
