//! Finding kernel functions that match patterns.

use crate::kernel::deny;
use crate::kernel::symbols;
use probe_perf::pattern::Glob;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;

/// The functions that match a pattern, sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Functions {
    /// Names that identify one function.
    pub(crate) names: Vec<String>,
    /// Names that several functions share.
    pub(crate) ambiguous: Vec<String>,
    /// The number of functions that must not be probed.
    pub(crate) denied: usize,
}

impl Functions {
    /// Finds the functions that match `glob` and none of `exclude`, in `module` only if it is given; `vmlinux` selects
    /// functions outside modules. `traceable` is the file in tracefs that lists functions, if tracefs is mounted;
    /// without it, the symbol table is searched.
    pub(crate) fn find(
        glob: &Glob,
        exclude: &[Glob],
        module: Option<&str>,
        traceable: Option<PathBuf>,
    ) -> io::Result<Self> {
        let criteria = Criteria { glob, exclude, module, blacklist: &symbols::blacklist() };
        if let Some(text) = traceable.and_then(|path| fs::read_to_string(path).ok()) {
            return Ok(Self::among(traceable_functions(&text), &criteria));
        }
        let text = fs::read_to_string("/proc/kallsyms")?;
        Ok(Self::among(symbols::functions(&text), &criteria))
    }

    /// Selects from functions and their modules.
    fn among<'t>(
        functions: impl Iterator<Item = (&'t str, Option<&'t str>)>,
        criteria: &Criteria<'_>,
    ) -> Self {
        let mut counts = BTreeMap::<&str, usize>::new();
        for (name, of) in functions {
            if criteria.fit(name, of) {
                *counts.entry(name).or_default() += 1;
            }
        }
        let mut found = Self::default();
        for (name, count) in counts {
            if deny::is_denied(name) || criteria.blacklist.contains(name) {
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

/// The criteria of a search.
struct Criteria<'w> {
    glob: &'w Glob,
    exclude: &'w [Glob],
    module: Option<&'w str>,
    blacklist: &'w BTreeSet<String>,
}

impl Criteria<'_> {
    fn fit(&self, name: &str, of: Option<&str>) -> bool {
        self.module.is_none_or(|module| of.unwrap_or(symbols::NO_MODULE) == module)
            && self.glob.matches(name)
            && !self.exclude.iter().any(|glob| glob.matches(name))
            && !symbols::is_hidden(name)
    }
}

/// Parses the lines of `available_filter_functions`: `name` or `name [module]`.
fn traceable_functions(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        Some((words.next()?, words.next().map(symbols::unbracketed)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matching_functions_are_found_once_and_sorted() {
        let traceable = "vfs_write\nvfs_read\n__pfx_vfs_read\nvfs_twice\nvfs_odd [fuse]\nvfs_twice\n\
            __ftrace_invalid_address___64\nvfs_never\nother\n";
        let symbols = "ffffffff81000000 T vfs_write\nffffffff81000010 t vfs_read\n\
            ffffffff81000020 t vfs_twice\nffffffff81000030 t vfs_twice\n\
            ffffffff81000040 d vfs_data\nffffffff81000050 W vfs_never\n\
            ffffffff81000060 t __cfi_vfs_read\nffffffff81000070 t vfs_read.cold\n\
            ffffffffc0000000 t vfs_odd\t[fuse]\n";
        let blacklist = &BTreeSet::from(["vfs_never".to_owned()]);
        let glob = &Glob::new("*vfs_*").unwrap();
        for module in [None, Some("vmlinux"), Some("fuse"), Some("btrfs")] {
            let criteria = Criteria { glob, exclude: &[], module, blacklist };
            let found = Functions::among(traceable_functions(traceable), &criteria);
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
            let others = Functions::among(symbols::functions(symbols), &criteria);
            assert_eq!(others, found);
        }
        let exclude = &["*_r*", "*_tw??e"].map(|glob| Glob::new(glob).unwrap());
        let criteria = Criteria { glob, exclude, module: None, blacklist };
        let found = Functions::among(traceable_functions(traceable), &criteria);
        assert_eq!(found.names, ["vfs_odd", "vfs_write"]);
        assert_eq!((found.ambiguous.len(), found.denied), (0, 1));
    }

    #[test]
    fn functions_that_the_tracer_runs_are_denied() {
        let all = "bpf_perf_event_output\nperf_output_begin\nperform\n".lines();
        let glob = &Glob::new("*").unwrap();
        let criteria = Criteria { glob, exclude: &[], module: None, blacklist: &BTreeSet::new() };
        let found = Functions::among(all.map(|name| (name, None)), &criteria);
        assert_eq!((&*found.names, found.denied), (&["perform".to_owned()][..], 2));
    }
}
