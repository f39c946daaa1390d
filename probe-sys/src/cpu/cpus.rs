//! Lists of CPU ids, in the kernel's notation, and the CPUs of this machine.

use crate::hint::descriptor_hint;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;

/// A part of a text that is not a CPU id or a range.
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

/// The highest CPU id that is accepted: far above `CONFIG_NR_CPUS` of any kernel.
const HIGHEST: u32 = 1 << 16;

/// Reads a list as the kernel writes it (`0-3,8`), sorted and without duplicates.
///
/// # Errors
///
/// If a part of it is neither a number nor a range from a lower to a higher one.
///
/// ```
/// assert_eq!(probe_sys::cpus::parse("0-2,8\n")?, [0, 1, 2, 8]);
/// # Ok::<(), probe_sys::cpus::CpuListError>(())
/// ```
pub fn parse(list: &str) -> Result<Vec<u32>, CpuListError> {
    // A set, so that repeated ranges take no more memory.
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

/// The CPUs that the machine has, whether they are online or can be brought online
/// (`/sys/devices/system/cpu/present`).
///
/// # Errors
///
/// If sysfs cannot be read.
pub fn present() -> io::Result<Vec<u32>> {
    read("/sys/devices/system/cpu/present".as_ref())
}

/// The CPUs that can ever be online (`/sys/devices/system/cpu/possible`). An entry of a per-CPU map has a value for
/// each.
///
/// # Errors
///
/// If sysfs cannot be read.
pub fn possible() -> io::Result<Vec<u32>> {
    read("/sys/devices/system/cpu/possible".as_ref())
}

/// The possible CPUs, given that the kernel has shown that there are `count`. If the file in sysfs has another number, it
/// is not the kernel's: lxcfs, for example, shows a container only its share. The ids then count from 0.
pub fn possible_of(count: usize) -> io::Result<Vec<u32>> {
    let listed = possible().unwrap_or_default();
    if listed.len() == count {
        return Ok(listed);
    }
    let count = u32::try_from(count).ok().filter(|&count| 0 < count && count <= HIGHEST);
    let count = count.ok_or_else(|| io::Error::other("the kernel has no possible CPUs"))?;
    Ok((0..count).collect())
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
    fn the_invalid_part_of_a_list_is_named() {
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
    fn a_list_that_the_kernel_contradicts_is_ignored() {
        let possible = possible().unwrap();
        assert_eq!(possible_of(possible.len()).unwrap(), possible);
        assert_eq!(possible_of(4097).unwrap(), (0..4097).collect::<Vec<_>>());
        assert!(possible_of(0).is_err());
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
