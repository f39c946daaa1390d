//! What the probes of a trace are called.

use crate::resolve::probe::Probe;
use std::borrow::Cow;
use std::collections::HashMap;

/// What an output shows of a probe besides its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Beside {
    /// Its type: `kprobe`, `call` and so on.
    Type,
    /// Nothing by which probes could be told apart.
    Nothing,
}

/// The name of each probe of a trace: its function or tracepoint, or its whole spec if another probe would have the same
/// name but has a different spec.
pub fn labels<'p>(
    probes: impl Iterator<Item = &'p Probe> + Clone,
    beside: Beside,
) -> Vec<Cow<'p, str>> {
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
            Some((_, true)) => probe.spec().to_string().into(),
            _ => name.1,
        }
    };
    probes.map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(specs: &[&str], beside: Beside) -> Vec<String> {
        let probe = |spec: &&str| Probe::new(spec.parse().unwrap(), Vec::new());
        let probes: Vec<_> = specs.iter().map(probe).collect();
        labels(probes.iter(), beside).into_iter().map(Cow::into_owned).collect()
    }

    #[test]
    fn probes_of_one_name_are_called_by_their_specs() {
        let specs = [
            "vfs_read/count > 50/",
            "vfs_read/count <= 50/",
            "vfs_write",
            "kretprobe:vfs_write",
            "vfs_open+0x4",
            "vfs_open",
            "uprobe:/a:main",
            "uprobe:/b:main",
            "vfs_sync",
            "vfs_sync",
        ];
        let mut expected = [
            "kprobe:vfs_read/count > 50/",
            "kprobe:vfs_read/count <= 50/",
            "vfs_write",
            "vfs_write",
            "vfs_open+0x4",
            "vfs_open",
            "uprobe:/a:main",
            "uprobe:/b:main",
            "vfs_sync",
            "vfs_sync",
        ];
        assert_eq!(all(&specs, Beside::Type), expected);
        expected[2..4].copy_from_slice(&["kprobe:vfs_write", "kretprobe:vfs_write"]);
        assert_eq!(all(&specs, Beside::Nothing), expected);
    }
}
