//! The functions of 32-bit system calls. 32-bit programs make such calls, and 64-bit programs can, by `int $0x80`.
//!
//! The table of these calls (`arch/x86/entry/syscalls/syscall_32.tbl`) names a function for each, by the prefixes here.

use super::symbols;
use std::collections::{BTreeMap, HashSet};
use std::fs;

/// The prefix of a function with types of its own for 32-bit programs, which the table has instead of the other one.
const OWN: &str = "__ia32_compat_sys_";
/// The prefix of a function that takes the arguments of both.
const COMMON: &str = "__ia32_sys_";
/// The prefix of the functions of 64-bit calls.
const NATIVE: &str = "__x64_sys_";

/// Endings of the names of functions that take the arguments of the call without such an ending.
const ENDINGS: [&str; 4] = ["32", "_time32", "_time64", "16"];

/// The functions of 32-bit calls that are known by the names of 64-bit ones, or that have other arguments than the call of
/// their name. Each has the name of the 64-bit call, its own name, and how many arguments both have in common.
const OTHERS: &[(&str, &str, usize)] = &[
    ("clone", "ia32_clone", 3),
    ("fadvise64", "ia32_fadvise64", 1),
    ("fadvise64", "ia32_fadvise64_64", 1),
    ("fallocate", "ia32_fallocate", 2),
    ("fanotify_mark", "fanotify_mark", 2),
    ("fcntl", "fcntl64", 3),
    ("fstatfs", "fstatfs64", 1),
    ("ftruncate", "ia32_ftruncate64", 1),
    ("getrlimit", "old_getrlimit", 2),
    ("lookup_dcookie", "lookup_dcookie", 0),
    ("lseek", "llseek", 1),
    ("mmap", "ia32_mmap", 0),
    ("mmap", "mmap_pgoff", 5),
    ("newfstat", "ia32_fstat64", 2),
    ("newfstatat", "ia32_fstatat64", 4),
    ("newlstat", "ia32_lstat64", 2),
    ("newstat", "ia32_stat64", 2),
    ("pread64", "ia32_pread64", 3),
    ("pwrite64", "ia32_pwrite64", 3),
    ("readahead", "ia32_readahead", 1),
    ("select", "old_select", 0),
    ("sendfile64", "sendfile", 4),
    ("statfs", "statfs64", 1),
    ("sync_file_range", "ia32_sync_file_range", 1),
    ("truncate", "ia32_truncate64", 1),
];

/// The functions of 32-bit calls, by their names without a prefix.
#[derive(Debug, Default)]
pub(crate) struct CompatCalls(BTreeMap<String, &'static str>);

impl CompatCalls {
    /// Reads them from the symbol table. Where the kernel hides addresses, only those without a 64-bit namesake are found.
    pub(crate) fn read() -> Self {
        Self::of(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// Without the functions that are those of 64-bit calls, too: a probe there sees both. A call without arguments has
    /// one function under both names.
    fn of(symbols: &str) -> Self {
        let native: HashSet<_> = symbols::named(symbols, NATIVE).collect();
        let mut found = BTreeMap::new();
        for prefix in [COMMON, OWN] {
            let own = symbols::named(symbols, prefix).filter(|one| !native.contains(one));
            found.extend(own.map(|(name, _)| (name.to_owned(), prefix)));
        }
        Self(found)
    }

    /// The function of this name, with its prefix.
    pub(crate) fn function(&self, name: &str) -> Option<String> {
        Some(format!("{}{name}", self.0.get(name)?))
    }

    /// The names of all functions, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The names of the functions that do for 32-bit programs what a 64-bit call does.
    pub(crate) fn of_call(&self, native: &str) -> impl Iterator<Item = String> {
        let ending = ENDINGS.iter().map(|ending| format!("{native}{ending}"));
        let other = OTHERS.iter().filter(|(call, ..)| *call == native);
        let other = other.map(|(_, name, _)| (*name).to_owned()).filter(|name| name != native);
        let all = std::iter::once(native.to_owned()).chain(ending).chain(other);
        all.filter(|name| self.0.contains_key(name)).collect::<Vec<_>>().into_iter()
    }
}

/// The 64-bit calls that may have the arguments of a function, and how many of them from the first on. `None` stands for
/// all.
pub(crate) fn like(name: &str) -> impl Iterator<Item = (&str, Option<usize>)> {
    let others = OTHERS.iter().filter(move |(_, own, _)| *own == name);
    let others = others.map(|&(call, _, common)| (call, Some(common)));
    let endings = ENDINGS.iter().filter_map(move |ending| name.strip_suffix(ending));
    others.chain(std::iter::once(name).chain(endings).map(|call| (call, None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "1000 T __x64_sys_openat\n1010 T __ia32_sys_openat\n1020 T __ia32_compat_sys_openat\n\
        1030 T __x64_sys_getpid\n1030 T __ia32_sys_getpid\n1040 T __x64_sys_futex\n1050 T __ia32_sys_futex\n\
        1060 T __ia32_sys_futex_time32\n1070 T __ia32_compat_sys_socketcall\n1080 T __ia32_sys_ia32_pread64\n\
        1090 T __x64_sys_pread64\n1000 t __pfx___ia32_sys_openat\n\
        10a0 W __ia32_sys_spu_run\n10b0 t __ia32_sys_futex.cold\n10c0 t __ia32_compat_sys_setitimer.cold\n";

    #[test]
    fn a_call_has_the_functions_that_32_bit_programs_call() {
        let calls = CompatCalls::of(SYMBOLS);
        let of_call = |name: &str| calls.of_call(name).collect::<Vec<_>>();
        assert_eq!(of_call("openat"), ["openat"]);
        assert_eq!(calls.function("openat").as_deref(), Some("__ia32_compat_sys_openat"));
        assert_eq!(of_call("futex"), ["futex", "futex_time32"]);
        assert_eq!(calls.function("futex").as_deref(), Some("__ia32_sys_futex"));
        assert_eq!(of_call("pread64"), ["ia32_pread64"]);
        // One function has both names.
        assert_eq!(of_call("getpid"), [""; 0]);
        let names = ["futex", "futex_time32", "ia32_pread64", "openat", "socketcall"];
        assert_eq!(calls.names().collect::<Vec<_>>(), names);
    }

    #[test]
    fn addresses_that_are_hidden_tell_nothing() {
        let hidden = "0 T __x64_sys_openat\n0 T __ia32_sys_openat\n0 T __x64_sys_getpid\n0 T __ia32_sys_getpid\n";
        assert_eq!(CompatCalls::of(hidden).names().count(), 0);
        let hidden = format!("{hidden}0 T __ia32_compat_sys_socketcall\n");
        assert_eq!(CompatCalls::of(&hidden).names().collect::<Vec<_>>(), ["socketcall"]);
    }

    #[test]
    fn arguments_are_those_of_a_64_bit_call() {
        let like = |name| like(name).collect::<Vec<_>>();
        assert_eq!(like("openat")[0], ("openat", None));
        assert_eq!(like("fanotify_mark")[0], ("fanotify_mark", Some(2)));
        assert_eq!(like("ia32_pread64")[0], ("pread64", Some(3)));
        assert!(like("futex_time32").contains(&("futex", None)));
    }
}
