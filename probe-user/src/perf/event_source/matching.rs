//! Which PMUs a name stands for: those of one sort differ by a number at the end of their names
//! (`Documentation/ABI/testing/sysfs-bus-event_source-devices`), and `perf` has them named together.

use super::error::PmuError;
use crate::nearest::nearest;
use crate::pattern::Glob;
use std::collections::BTreeMap;

/// What names of PMUs outside of the cores begin with, which may be left out.
const UNCORE: &str = "uncore_";

/// A hexadecimal number has more digits than this: names end in fewer that are words (`cpum_cf`).
const SHORT: usize = 2;

/// Those of all PMUs that `text` means, in the order of their numbers: the one of this name; else those that are
/// called so but for a number behind it, or match it as a pattern, with or without `uncore_` before it.
pub(super) fn matching(all: Vec<String>, text: &str) -> Result<Vec<String>, PmuError> {
    if all.iter().any(|name| name == text) {
        return Ok(vec![text.to_owned()]);
    }
    let is_pattern = text.contains(['*', '?', '[']);
    let glob = is_pattern.then(|| Glob::new(text)).transpose();
    let glob = glob.map_err(|bad| PmuError::Pattern { pattern: bad.pattern, what: bad.what })?;
    let is_meant = |name: &str| match &glob {
        Some(glob) => glob.matches(name),
        None => name.strip_prefix(text).is_some_and(|rest| rest.is_empty() || is_number(rest)),
    };
    let is_one = |name: &&String| is_meant(name) || name.strip_prefix(UNCORE).is_some_and(is_meant);
    let mut found: Vec<_> = all.iter().filter(is_one).cloned().collect();
    if found.is_empty() {
        let near = nearest(text, all.iter().cloned());
        return Err(PmuError::NoPmu { pmu: text.to_owned(), all, near });
    }
    found.sort_by_cached_key(|name| {
        let (stem, number) = parts(name);
        (stem.to_owned(), number.len(), number.to_owned())
    });
    Ok(found)
}

/// The names by which several of these PMUs can be meant, each with those PMUs.
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

/// Whether it is what PMUs of one sort differ by.
fn is_number(rest: &str) -> bool {
    let digits = rest.strip_prefix('_').unwrap_or(rest);
    let is_decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_hexadecimal = || {
        let is_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digits && digits.len() > SHORT && digits.len() < rest.len()
    };
    is_decimal || is_hexadecimal()
}

/// A name, up to its number; and the number.
fn parts(name: &str) -> (&str, &str) {
    if let Some((stem, number)) = name.rsplit_once('_')
        && is_number(&name[stem.len()..])
    {
        return (stem, number);
    }
    let stem = name.trim_end_matches(|char: char| char.is_ascii_digit());
    (stem, &name[stem.len()..])
}
