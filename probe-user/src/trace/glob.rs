//! What the kernel has that matches patterns.

use super::deny;
use super::symbols;
use super::tracefs::Tracefs;
pub(super) use crate::pattern::Glob;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

/// Functions that match a pattern, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Functions {
    /// Those that their names are enough to find.
    pub(super) names: Vec<String>,
    /// Names that several functions have.
    pub(super) ambiguous: Vec<String>,
    /// How many must not be probed.
    pub(super) denied: usize,
}

impl Functions {
    /// Functions of the kernel that match, and none of `exclude`; of one module, if it is said. `vmlinux`
    /// stands for what is of no module.
    pub(super) fn find(
        glob: &Glob,
        exclude: &[Glob],
        module: Option<&str>,
        tracefs: Option<&Tracefs>,
    ) -> io::Result<Self> {
        let wanted = Wanted { glob, exclude, module, blacklist: &symbols::blacklist() };
        let traceable = tracefs.map(|tracefs| tracefs.root().join("available_filter_functions"));
        if let Some(text) = traceable.and_then(|path| fs::read_to_string(path).ok()) {
            return Ok(Self::among(traceable_functions(&text), &wanted));
        }
        let text = fs::read_to_string("/proc/kallsyms")?;
        Ok(Self::among(symbols::functions(&text), &wanted))
    }

    /// Out of functions and their modules.
    fn among<'t>(
        functions: impl Iterator<Item = (&'t str, Option<&'t str>)>,
        wanted: &Wanted<'_>,
    ) -> Self {
        let mut counts = BTreeMap::<&str, usize>::new();
        for (name, of) in functions {
            if wanted.has(name, of) {
                *counts.entry(name).or_default() += 1;
            }
        }
        let mut found = Self::default();
        for (name, count) in counts {
            if deny::is_denied(name) || wanted.blacklist.contains(name) {
                found.denied += 1;
            } else if count > 1 {
                found.ambiguous.push(name.to_owned());
            } else {
                found.names.push(name.to_owned());
            }
        }
        found
    }
}

/// Which functions are looked for.
struct Wanted<'w> {
    glob: &'w Glob,
    exclude: &'w [Glob],
    module: Option<&'w str>,
    blacklist: &'w BTreeSet<String>,
}

impl Wanted<'_> {
    fn has(&self, name: &str, of: Option<&str>) -> bool {
        self.module.is_none_or(|module| of.unwrap_or(symbols::NO_MODULE) == module)
            && self.glob.matches(name)
            && !self.exclude.iter().any(|glob| glob.matches(name))
            && !symbols::is_hidden(name)
    }
}

/// Reads "name" or "name [module]", as `available_filter_functions` has them.
fn traceable_functions(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        Some((words.next()?, words.next().map(symbols::unbracketed)))
    })
}

/// Those of these tracepoints, written `category:name`, that match, in order.
pub(super) fn tracepoints(all: Vec<String>, glob: &Glob) -> Vec<String> {
    // Those of ftrace itself are formats, and are never hit.
    let is_meant = |name: &String| glob.matches(name) && !name.starts_with("ftrace:");
    all.into_iter().filter(is_meant).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_once_and_in_order() {
        let traceable = "vfs_write\nvfs_read\n__pfx_vfs_read\nvfs_twice\nvfs_odd [fuse]\nvfs_twice\n\
            __ftrace_invalid_address___64\nvfs_never\nother\n";
        let symbols = "ffffffff81000000 T vfs_write\nffffffff81000010 t vfs_read\n\
            ffffffff81000020 t vfs_twice\nffffffff81000030 t vfs_twice\n\
            ffffffff81000040 d vfs_data\nffffffff81000050 W vfs_never\n\
            ffffffff81000060 t __cfi_vfs_read\nffffffffc0000000 t vfs_odd\t[fuse]\n";
        let blacklist = &BTreeSet::from(["vfs_never".to_owned()]);
        let glob = &Glob::new("*vfs_*").unwrap();
        for module in [None, Some("vmlinux"), Some("fuse"), Some("btrfs")] {
            let wanted = Wanted { glob, exclude: &[], module, blacklist };
            let found = Functions::among(traceable_functions(traceable), &wanted);
            let names: &[&str] = match module {
                None => &["vfs_odd", "vfs_read", "vfs_write"],
                Some("vmlinux") => &["vfs_read", "vfs_write"],
                Some("fuse") => &["vfs_odd"],
                Some(_) => &[],
            };
            assert_eq!(found.names, names);
            let in_kernel = matches!(module, None | Some("vmlinux"));
            let twice: &[&str] = if in_kernel { &["vfs_twice"] } else { &[] };
            assert_eq!(found.ambiguous, twice);
            assert_eq!(found.denied, usize::from(in_kernel));
            let others = Functions::among(symbols::functions(symbols), &wanted);
            assert_eq!(others, found);
        }
        let exclude = &["*_r*", "*_tw??e"].map(|glob| Glob::new(glob).unwrap());
        let wanted = Wanted { glob, exclude, module: None, blacklist };
        let found = Functions::among(traceable_functions(traceable), &wanted);
        assert_eq!(found.names, ["vfs_odd", "vfs_write"]);
        assert_eq!((found.ambiguous.len(), found.denied), (0, 1));
    }

    #[test]
    fn what_the_tracer_runs_itself_is_denied() {
        let all = "bpf_perf_event_output\nperf_output_begin\nperform\n".lines();
        let glob = &Glob::new("*").unwrap();
        let wanted = Wanted { glob, exclude: &[], module: None, blacklist: &BTreeSet::new() };
        let found = Functions::among(all.map(|name| (name, None)), &wanted);
        assert_eq!((&*found.names, found.denied), (&["perform".to_owned()][..], 2));
    }

    #[test]
    fn tracepoints_are_found() {
        let all = ["sched:b", "sched:a", "ftrace:a", "tcp:a", "sched:a"].map(str::to_owned);
        let found = |pattern| tracepoints(all.to_vec(), &Glob::new(pattern).unwrap());
        assert_eq!(found("*:a"), ["sched:a", "tcp:a"]);
        assert_eq!(found("sched:*"), ["sched:a", "sched:b"]);
        assert_eq!(found("x:*"), [""; 0]);
    }
}
