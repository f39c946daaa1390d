//! A PMU, as sysfs has it.

use super::error::PmuError;
use super::format::Format;
use super::matching::matching;
use super::term::{FREQUENCY, NAME, PERIOD, WORDS};
use crate::cpus;
use crate::nearest::nearest;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What files of `events/` end in that tell more of an event, and are none.
const BESIDES_EVENTS: [&str; 4] = [".scale", ".unit", ".per-pkg", ".snapshot"];

/// A PMU, as sysfs has it.
pub(super) struct Pmu {
    pub(super) name: String,
    folder: PathBuf,
}

impl Pmu {
    pub(super) fn of(devices: &Path, name: &str) -> Self {
        Self { name: name.to_owned(), folder: devices.join(name) }
    }

    /// Those that a name stands for: one, at least.
    pub(super) fn matching(devices: &Path, text: &str) -> Result<Vec<Self>, PmuError> {
        let found = matching(names(devices)?, text)?;
        Ok(found.iter().map(|name| Self::of(devices, name)).collect())
    }

    pub(super) fn kind(&self) -> Result<u32, PmuError> {
        let path = self.folder.join("type");
        let text = fs::read_to_string(&path).map_err(|source| failed(&path, source))?;
        text.trim().parse().map_err(|_| PmuError::Malformed { path, text })
    }

    /// The CPUs that observe for others, too, or that have it at all.
    pub(super) fn cpus(&self) -> Result<Option<Vec<u32>>, PmuError> {
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

    pub(super) fn format(&self, term: &str) -> Result<Option<Format>, PmuError> {
        let Some((path, text)) = self.file("format", term)? else { return Ok(None) };
        match text.parse() {
            Ok(format) => Ok(Some(format)),
            Err(()) => Err(PmuError::Malformed { path, text }),
        }
    }

    /// The terms that an event stands for.
    pub(super) fn event(&self, name: &str) -> Result<Option<String>, PmuError> {
        if is_beside_event(name) {
            return Ok(None);
        }
        Ok(self.file("events", name)?.map(|(_, text)| text))
    }

    /// The events that it has names for. What cannot be read is not known.
    pub(super) fn events(&self) -> Vec<String> {
        let mut events = names(&self.folder.join("events")).unwrap_or_default();
        events.retain(|event| !is_beside_event(event));
        events
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

    pub(super) fn no_term(&self, term: &str) -> PmuError {
        // What cannot be read is no reason to say nothing.
        let own = names(&self.folder.join("format")).unwrap_or_default();
        let events = self.events();
        let terms = || own.iter().map(String::as_str).chain(WORDS).chain([PERIOD, FREQUENCY, NAME]);
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
pub(super) fn names(folder: &Path) -> Result<Vec<String>, PmuError> {
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
