//! What the probes of a trace are called.

use crate::resolve::probe::Probe;
use std::collections::HashMap;

/// What an output shows of a probe besides its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Beside {
    /// Its type: `kprobe`, `call` and so on.
    Type,
    /// Nothing that tells probes apart.
    Nothing,
}

/// The name of each probe of a trace: its function or tracepoint, or its whole spec if another probe would have the same
/// name but has a different spec.
pub fn labels<'p>(probes: impl Iterator<Item = &'p Probe> + Clone, beside: Beside) -> Vec<String> {
    let kind = |probe: &Probe| match beside {
        Beside::Type => probe.kind(),
        Beside::Nothing => "",
    };
    // The first probe of each name, and whether another one has it.
    let mut names = HashMap::new();
    for probe in probes.clone() {
        let name = (kind(probe), probe.spec().site());
        let (first, is_shared) = names.entry(name).or_insert((probe, false));
        *is_shared |= first.kind() != probe.kind() || first.spec() != probe.spec();
    }
    let label = |probe: &'p Probe| {
        let name = (kind(probe), probe.spec().site());
        match names.get(&name) {
            Some((_, true)) => probe.spec().to_string(),
            _ => name.1.into_owned(),
        }
    };
    probes.map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_of_one_name_are_called_by_their_specs() {
        // The label beside a type, and that beside nothing.
        let expected = [
            ("kprobe:vfs_read/count > 50/", ["kprobe:vfs_read/count > 50/"; 2]),
            ("kprobe:vfs_read/count <= 50/", ["kprobe:vfs_read/count <= 50/"; 2]),
            ("vfs_write", ["vfs_write", "kprobe:vfs_write"]),
            ("kretprobe:vfs_write", ["vfs_write", "kretprobe:vfs_write"]),
            ("vfs_open+0x4", ["vfs_open+0x4"; 2]),
            ("vfs_open", ["vfs_open"; 2]),
            ("uprobe:/a:main", ["uprobe:/a:main"; 2]),
            ("uprobe:/b:main", ["uprobe:/b:main"; 2]),
            ("vfs_sync", ["vfs_sync"; 2]),
            ("vfs_sync", ["vfs_sync"; 2]),
        ];
        let probe = |(spec, _): &(&str, _)| Probe::new(spec.parse().unwrap(), Vec::new());
        let probes: Vec<_> = expected.iter().map(probe).collect();
        for (n, beside) in [Beside::Type, Beside::Nothing].into_iter().enumerate() {
            assert_eq!(labels(probes.iter(), beside), expected.map(|(_, labels)| labels[n]));
        }
    }
}
