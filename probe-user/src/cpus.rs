//! CPU ids: lists of them as the kernel writes them, and which there are.

use crate::error::descriptor_hint;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;

/// A list of CPUs that is not one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuListError {
    part: String,
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a CPU id or a range of them: write them like 0,2-3", self.part)
    }
}

impl std::error::Error for CpuListError {}

/// Highest CPU id that is taken for one: far above `CONFIG_NR_CPUS` of any kernel.
const HIGHEST: u32 = 1 << 16;

/// Reads a list as the kernel writes it (`0-3,8`), sorted and without duplicates.
///
/// # Errors
///
/// If a part of it is neither a number nor a range from a lower to a higher one.
///
/// ```
/// assert_eq!(probe_user::cpus::parse("0-2,8\n")?, [0, 1, 2, 8]);
/// # Ok::<(), probe_user::cpus::CpuListError>(())
/// ```
pub fn parse(list: &str) -> Result<Vec<u32>, CpuListError> {
    // However often a range comes, it takes its memory once.
    let mut cpus = BTreeSet::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let number = |text: &str| text.trim().parse().ok().filter(|&cpu: &u32| cpu <= HIGHEST);
        let range = match part.split_once('-') {
            Some((first, last)) => number(first).zip(number(last)),
            None => number(part).map(|cpu| (cpu, cpu)),
        };
        match range {
            Some((first, last)) if first <= last => cpus.extend(first..=last),
            _ => return Err(CpuListError { part: part.to_owned() }),
        }
    }
    Ok(cpus.into_iter().collect())
}

/// The CPUs that are online (`/sys/devices/system/cpu/online`).
///
/// # Errors
///
/// If sysfs cannot be read.
pub fn online() -> io::Result<Vec<u32>> {
    read("/sys/devices/system/cpu/online".as_ref())
}

/// The CPUs that the machine has: those of them that are offline can be switched on
/// (`/sys/devices/system/cpu/present`).
///
/// # Errors
///
/// If sysfs cannot be read.
pub fn present() -> io::Result<Vec<u32>> {
    read("/sys/devices/system/cpu/present".as_ref())
}

/// The CPUs that can ever be online: as many values has an entry of a per-CPU map
/// (`/sys/devices/system/cpu/possible`).
///
/// # Errors
///
/// If sysfs cannot be read.
pub fn possible() -> io::Result<Vec<u32>> {
    read("/sys/devices/system/cpu/possible".as_ref())
}

fn read(path: &Path) -> io::Result<Vec<u32>> {
    let named = |error: io::Error| {
        let hint = descriptor_hint(&error);
        io::Error::new(error.kind(), format!("cannot read {}: {error}{hint}", path.display()))
    };
    let list = std::fs::read_to_string(path).map_err(named)?;
    parse(&list).map_err(|error| named(io::Error::new(io::ErrorKind::InvalidData, error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_may_have_holes_and_overlaps() {
        assert!(parse("").unwrap().is_empty());
        assert_eq!(parse("0\n").unwrap(), [0]);
        assert_eq!(parse("4-5,0-1,5,7").unwrap(), [0, 1, 4, 5, 7]);
    }

    #[test]
    fn what_is_not_a_list_is_named() {
        for (list, part) in [
            ("0,x", "x"),
            ("3-1", "3-1"),
            ("-1", "-1"),
            ("0-", "0-"),
            ("0-4294967295", "0-4294967295"),
        ] {
            assert_eq!(parse(list).unwrap_err().part, part);
        }
    }

    #[test]
    fn this_machine_has_cpus() {
        let (online, present) = (online().unwrap(), present().unwrap());
        assert!(!online.is_empty());
        assert!(online.iter().all(|cpu| present.contains(cpu)));
        let possible = possible().unwrap();
        assert!(present.iter().all(|cpu| possible.contains(cpu)));
    }
}
