//! What stands between the slashes.

use super::error::PmuError;

/// Terms that every PMU has: the words of the attribute, how often samples are taken, and what the event is called.
pub(super) const WORDS: [&str; 4] = ["config", "config1", "config2", "config3"];
pub(super) const PERIOD: &str = "period";
pub(super) const FREQUENCY: &str = "freq";
pub(super) const NAME: &str = "name";

/// What names may have besides letters and digits.
const IN_NAMES: &[u8] = b"_-.:=+";

/// Terms of `perf` that are none here, and how it is done instead.
const OF_PERF: [(&[&str], &str); 8] = [
    (
        &["call-graph", "stack-size", "max-stack"],
        "samples have the functions that led there, by frame pointers",
    ),
    (&["time"], "samples have their time"),
    (&["inherit", "no-inherit"], "`probe sample --per-thread` leaves out what a process makes"),
    (&["cpu", "percore"], "`probe sample -C` says which CPUs"),
    (&["overwrite", "no-overwrite"], "rings are read, and never overwritten"),
    (&["branch_type"], "samples have no branches; `--aux` writes those that hardware traces"),
    (&["aux-output", "aux-sample-size"], "`probe sample --aux` writes the AUX area of an event"),
    (&["metric-id"], "`name` says what an event is called"),
];

/// A part of what is between the slashes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term<'t> {
    pub(super) name: &'t str,
    pub(super) value: Option<&'t str>,
}

impl Term<'_> {
    /// What it is set to: 1, if that is not said.
    pub(super) fn number(&self) -> Result<u64, PmuError> {
        let Some(value) = self.value else { return Ok(1) };
        let (digits, radix) = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None => (value, 10),
        };
        let number = u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'));
        let none = || PmuError::Number { term: self.name.into(), value: value.into() };
        number.ok_or_else(none)
    }

    /// The same of what has to be said, and is not 0.
    pub(super) fn rate(&self) -> Result<u64, PmuError> {
        let number = if self.value.is_none() { 0 } else { self.number()? };
        let none = || PmuError::NoRate { term: self.name.into() };
        Some(number).filter(|number| *number != 0).ok_or_else(none)
    }

    /// What the event is called by it. Quotes are for `perf`.
    pub(super) fn text(&self) -> Result<&str, PmuError> {
        let value = self.value.unwrap_or_default();
        let bare = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        let name = bare.unwrap_or(value);
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || IN_NAMES.contains(&byte);
        if name.is_empty() || !name.bytes().all(is_part) {
            return Err(PmuError::Name { name: value.to_owned() });
        }
        Ok(name)
    }

    /// How it is done here, if it is one of `perf`.
    pub(super) fn instead(&self) -> Option<&'static str> {
        OF_PERF.iter().find(|(names, _)| names.contains(&self.name)).map(|(_, instead)| *instead)
    }
}

/// Reads terms with commas between them.
pub(super) fn terms_of(text: &str) -> impl Iterator<Item = Term<'_>> {
    let term = |part| match str::split_once(part, '=') {
        Some((name, value)) => Term { name, value: Some(value) },
        None => Term { name: part, value: None },
    };
    text.trim().split(',').filter(|part| !part.is_empty()).map(term)
}
