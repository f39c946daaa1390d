//! PMUs in sysfs. PMUs of one type differ by a number at the end of their names
//! (`Documentation/ABI/testing/sysfs-bus-event_source-devices`), and `perf` allows one name for all of them.

use super::term::{FREQUENCY, Format, NAME, PERIOD, WORDS};
use crate::event::PmuError;
use crate::nearest::nearest;
use crate::pattern::Glob;
use probe_sys::cpus;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The endings of files in `events/` that describe an event and are not events.
const BESIDES_EVENTS: [&str; 4] = [".scale", ".unit", ".per-pkg", ".snapshot"];

/// The prefix of PMUs outside of the cores, which may be omitted.
const UNCORE: &str = "uncore_";

/// A hexadecimal number has more digits than this. Shorter ones may be words (`cpum_cf`).
const SHORT: usize = 2;

/// A PMU in sysfs.
pub(super) struct Pmu {
    pub(super) name: String,
    folder: PathBuf,
}

impl Pmu {
    pub(super) fn of(devices: &Path, name: &str) -> Self {
        Self { name: name.to_owned(), folder: devices.join(name) }
    }

    /// Finds the PMUs that a name stands for: at least one.
    pub(super) fn matching(devices: &Path, text: &str) -> Result<Vec<Self>, PmuError> {
        let found = matching(names(devices)?, text)?;
        Ok(found.iter().map(|name| Self::of(devices, name)).collect())
    }

    pub(super) fn kind(&self) -> Result<u32, PmuError> {
        let path = self.folder.join("type");
        let text = fs::read_to_string(&path).map_err(|cause| failed(&path, cause))?;
        text.trim().parse().map_err(|_| PmuError::Malformed { path, text })
    }

    /// Whether it is the PMU of some cores. Others have a list of CPUs that represent all (`cpumask`), if any.
    pub(super) fn is_of_cores(&self) -> bool {
        self.folder.join("cpus").exists()
    }

    /// The CPUs on which the PMU can be observed: those that represent others, or those that have it.
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

    /// The terms of a named event.
    pub(super) fn event(&self, name: &str) -> Result<Option<String>, PmuError> {
        if is_beside_event(name) {
            return Ok(None);
        }
        Ok(self.file("events", name)?.map(|(_, text)| text))
    }

    /// The named events. Empty if they cannot be read.
    pub(super) fn events(&self) -> Vec<String> {
        let mut events = names(&self.folder.join("events")).unwrap_or_default();
        events.retain(|event| !is_beside_event(event));
        events
    }

    /// Reads a file in one of the PMU's folders. Only names that the folder lists are opened, so `..` is not.
    fn file(&self, folder: &str, name: &str) -> Result<Option<(PathBuf, String)>, PmuError> {
        let folder = self.folder.join(folder);
        if !names(&folder)?.iter().any(|own| own == name) {
            return Ok(None);
        }
        let path = folder.join(name);
        Ok(read(&path)?.map(|text| (path, text)))
    }

    pub(super) fn no_term(&self, term: &str) -> PmuError {
        // A useful message is possible even if the folder cannot be read.
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

/// The names in a folder, sorted. Empty if there is no such folder.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, PmuError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|cause| failed(folder, cause))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
    let mut names: Vec<_> = entries
        .filter_map(|entry| name(entry).transpose())
        .collect::<io::Result<_>>()
        .map_err(|cause| failed(folder, cause))?;
    names.sort();
    Ok(names)
}

/// The contents of a file, if it exists.
fn read(path: &Path) -> Result<Option<String>, PmuError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(failed(path, cause)),
    }
}

fn failed(path: &Path, cause: io::Error) -> PmuError {
    PmuError::Sysfs { path: path.to_owned(), cause }
}

/// Finds the PMUs that `text` stands for, in the order of their numbers: the one with this name, or else those that have
/// this name plus a number, or match it as a pattern, with or without `uncore_` in front.
fn matching(all: Vec<String>, text: &str) -> Result<Vec<String>, PmuError> {
    if all.iter().any(|name| name == text) {
        return Ok(vec![text.to_owned()]);
    }
    let is_pattern = text.contains(['*', '?', '[']);
    let glob = is_pattern.then(|| Glob::new(text)).transpose().map_err(PmuError::Pattern)?;
    let is_meant = |name: &str| match &glob {
        Some(glob) => glob.matches(name),
        None => name.strip_prefix(text).is_some_and(|rest| rest.is_empty() || is_number(rest)),
    };
    let is_one = |name: &&String| is_meant(name) || name.strip_prefix(UNCORE).is_some_and(is_meant);
    let mut found: Vec<_> = all.iter().filter(is_one).cloned().collect();
    if found.is_empty() {
        return Err(PmuError::NoPmu { pmu: text.to_owned(), all });
    }
    found.sort_by_cached_key(|name| {
        let (stem, number) = parts(name);
        (stem.to_owned(), number.len(), number.to_owned())
    });
    Ok(found)
}

/// The names that stand for several of these PMUs, each with its PMUs.
pub(super) fn stems(all: &[String]) -> BTreeMap<&str, Vec<&str>> {
    let mut stems = BTreeMap::<_, Vec<_>>::new();
    for name in all {
        let (stem, number) = parts(name);
        if !number.is_empty() {
            stems.entry(stem).or_default().push(name.as_str());
        }
    }
    stems.retain(|stem, names| names.len() > 1 && !all.iter().any(|name| name == stem));
    stems
}

/// Whether a suffix is a number by which PMUs of one type differ.
fn is_number(rest: &str) -> bool {
    let digits = rest.strip_prefix('_').unwrap_or(rest);
    let is_decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_hexadecimal = || {
        let is_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digits && digits.len() > SHORT && digits.len() < rest.len()
    };
    is_decimal || is_hexadecimal()
}

/// Splits a name into a stem and a number.
fn parts(name: &str) -> (&str, &str) {
    if let Some((stem, number)) = name.rsplit_once('_')
        && is_number(&name[stem.len()..])
    {
        return (stem, number);
    }
    let stem = name.trim_end_matches(|char: char| char.is_ascii_digit());
    (stem, &name[stem.len()..])
}
