//! Names of the kernel's functions, for those that were misspelt.

use std::fs::File;
use std::io::{BufRead, BufReader};

/// What the kernel knows of a function's name.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    /// How many functions have it.
    pub(super) count: usize,
    /// Names that are like it, the nearest first.
    pub(super) near: Vec<String>,
}

/// Looks a function up in `/proc/kallsyms`.
pub(super) fn look_up(name: &str) -> Lookup {
    let Ok(file) = File::open("/proc/kallsyms") else { return Lookup::default() };
    let mut count = 0;
    let mut others = Vec::new();
    for line in BufReader::new(file).lines().map_while(Result::ok) {
        // "ffffffff81000000 T name [module]"
        let mut words = line.split_ascii_whitespace().skip(1);
        let (Some(kind), Some(symbol)) = (words.next(), words.next()) else { continue };
        if !matches!(kind, "t" | "T" | "w" | "W") {
            continue;
        }
        if symbol == name {
            count += 1;
        } else if !symbol.starts_with("__pfx_") && !symbol.starts_with("__cfi_") {
            others.push(symbol.to_owned());
        }
    }
    Lookup { count, near: nearest(name, others) }
}

/// Whether the function is on the kprobe blacklist, as far as debugfs lets us see it.
pub(super) fn is_blacklisted(name: &str) -> bool {
    let Ok(list) = std::fs::read_to_string("/sys/kernel/debug/kprobes/blacklist") else {
        return false;
    };
    // "0xffffffff81000000-0xffffffff81000010\tname"
    list.lines().any(|line| line.split_ascii_whitespace().nth(1) == Some(name))
}

/// The three names most like `name`, if any is like it at all.
pub(super) fn nearest(name: &str, others: impl IntoIterator<Item = String>) -> Vec<String> {
    const LIKE: f64 = 0.86;
    let mut near: Vec<(f64, String)> = others
        .into_iter()
        .map(|other| (strsim::jaro_winkler(name, &other), other))
        .filter(|(likeness, _)| *likeness >= LIKE)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    near.dedup_by(|a, b| a.1 == b.1);
    near.into_iter().take(3).map(|(_, other)| other).collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_come_first_and_the_far_not_at_all() {
        let names = ["do_sys_open", "do_sys_openat2", "vfs_read", "do_sys_openat2"];
        let near = nearest("do_sys_opnat2", names.map(str::to_owned));
        assert_eq!(near, ["do_sys_openat2", "do_sys_open"]);
        assert!(nearest("xyzzy", names.map(str::to_owned)).is_empty());
    }
}
